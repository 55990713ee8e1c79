"""A confusion matrix as SVG."""

from __future__ import annotations

_CELL, _ROW, _LEFT, _TOP = 86, 30, 150, 64
_RIGHT, _WRONG = (38, 112, 171), (190, 60, 50)


def heat_map(
    rows: list[str], columns: list[str], counts: list[list[int]], is_expected: list[list[bool]]
) -> str:
    """Each row shaded by its own share: blue where that class is expected, red where not."""
    width, height = _LEFT + _CELL * len(columns) + 10, _TOP + _ROW * len(rows) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
        "<style>text { font: 13px sans-serif }</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20">class that grew most beside the clean twin (ranks)</text>',
    ]
    for c, column in enumerate(columns):
        x = _LEFT + c * _CELL + _CELL / 2
        parts.append(f'<text x="{x}" y="{_TOP - 12}" text-anchor="middle">{column}</text>')
    for r, row in enumerate(rows):
        y = _TOP + r * _ROW
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 20}" text-anchor="end">{row}</text>')
        total = sum(counts[r]) or 1
        for c, count in enumerate(counts[r]):
            share = count / total
            hue = _RIGHT if is_expected[r][c] else _WRONG
            fill = ",".join(f"{255 - share * (255 - one):.0f}" for one in hue)
            x = _LEFT + c * _CELL
            ink = "white" if share > 0.5 else "black"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_ROW - 2}" '
                f'fill="rgb({fill})" stroke="#ccc"/>'
            )
            if count:
                parts.append(
                    f'<text x="{x + _CELL / 2}" y="{y + 20}" text-anchor="middle" '
                    f'fill="{ink}">{count}</text>'
                )
    return "\n".join([*parts, "</svg>", ""])
