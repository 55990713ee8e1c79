"""Figures as static SVG, and as the compact data from which the page draws its charts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from gapscope._resources import read_text
from gapscope.report.document import Gantt, HeatMap, Waterfall
from gapscope.units import scale, value

if TYPE_CHECKING:
    from gapscope.report.document import Bar, Figure

_GUTTER = 118
_WIDTH = 1000
_LANE = 24
_PLOT = _WIDTH - _GUTTER - 8
# Boxes are placed in whole steps of this part of a unit.
_FINE = 100
# Above so many cells a heat map is drawn in shades.
_MANY_CELLS = 600
_SHADES = 20
# Width of a letter of 11 pixels, to know what a box has room for.
_LETTER = 6.2


@dataclass(frozen=True, slots=True)
class TimeClass:
    """Label and colour of a time class, the same in every output."""

    name: str
    label: str
    color: str


@lru_cache(maxsize=1)
def palette() -> dict[str, TimeClass]:
    """Time classes by name, in the order of `reports/assets/palette.json`."""
    known = json.loads(read_text("reports", "assets", "palette.json"))["classes"]
    return {name: TimeClass(name, entry["label"], entry["color"]) for name, entry in known.items()}


def time_class(name: str) -> TimeClass:
    """A class of the palette; one that it does not know is grey and keeps its name."""
    return palette().get(name) or TimeClass("other", name, "#999999")


def legend(figure: Figure) -> list[TimeClass]:
    """Classes that occur in a Gantt, in palette order."""
    if not isinstance(figure, Gantt):
        return []
    present = {mark.time_class for mark in figure.marks}
    known = [entry for name, entry in palette().items() if name in present]
    return known + [time_class(name) for name in sorted(present - palette().keys())]


def ticks(length_ns: int) -> list[int]:
    """About eight round positions on an axis of that length."""
    step = 1
    while length_ns / step > 8:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, length_ns + 1, step))


def gantt_svg(figure: Gantt) -> str:
    """One path a row and class: a few hundred bytes where boxes would take a hundred thousand."""
    height = _LANE * len(figure.rows) + 26
    shapes: dict[tuple[int, str], list[tuple[int, int]]] = {}
    per_ns = _PLOT / max(figure.window_ns, 1)
    for mark in figure.marks:
        x = round(mark.start_ns * per_ns * _FINE)
        # A box wider than its time would paint time that is not its own.
        width = max(round((mark.end_ns - mark.start_ns) * per_ns * _FINE), 1)
        shapes.setdefault((mark.row, time_class(mark.time_class).name), []).append((x, width))
    parts = [
        (
            f'<svg class="gantt" viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-labelledby="{figure.id}-t">'
            f'<title id="{figure.id}-t">{escape(figure.caption)}</title>'
        )
    ]
    for index, row in enumerate(figure.rows):
        y = index * _LANE
        parts.append(
            f'<rect class="lane" x="{_GUTTER}" y="{y + 1}" width="{_PLOT}" height="{_LANE - 2}"/>'
            f'<text x="{_GUTTER - 8}" y="{y + 16}" text-anchor="end">{escape(row)}</text>'
        )
    parts += [
        f'<path class="c-{name}" transform="translate({_GUTTER} {row * _LANE + 3})'
        f'scale({1 / _FINE:g} 1)" d="{_boxes(boxes)}"/>'
        for (row, name), boxes in sorted(shapes.items())
    ]
    parts += [
        f'<text class="in-box" x="{_GUTTER + mark.start_ns * per_ns + 5:.1f}" '
        f'y="{mark.row * _LANE + 16}">{escape(mark.label)}</text>'
        for mark in figure.marks
        if mark.label and (mark.end_ns - mark.start_ns) * per_ns > _LETTER * len(mark.label) + 10
    ]
    base = _LANE * len(figure.rows)
    divisor, unit = scale([figure.window_ns], "ns")
    marks = ticks(figure.window_ns)
    for at_ns in marks:
        tick_x = _GUTTER + at_ns * per_ns
        anchor = "start" if at_ns == 0 else "middle"
        if at_ns > 0.97 * figure.window_ns:
            anchor = "end"
        label = f"{at_ns / divisor:g}" + (f" {unit}" if at_ns in (0, marks[-1]) else "")
        parts.append(
            f'<path class="tick" d="M{tick_x:.1f} 0V{base + 4}"/>'
            f'<text x="{tick_x:.1f}" y="{base + 18}" text-anchor="{anchor}">{label}</text>'
        )
    return "".join([*parts, "</svg>"])


def _boxes(boxes: list[tuple[int, int]]) -> str:
    """Each box starts where the last one did, and moves on: small numbers, few bytes."""
    at = 0
    steps = []
    for x, width in sorted(boxes):
        steps.append(f"m{x - at} 0h{width}v{_LANE - 6}h-{width}z")
        at = x
    return "".join(steps)


def bar_svg(bar: Bar, figure: Waterfall) -> str:
    """One bar of a waterfall. Browsers clamp coordinates far below the nanoseconds of a step."""
    # A waterfall that goes up ends higher than it begins.
    whole = max(1, *(one.base_ns + one.value_ns for one in figure.bars))
    return (
        '<svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="c-{time_class(bar.time_class).name}" x="{1000 * bar.base_ns / whole:.2f}" '
        f'y="0" width="{1000 * bar.value_ns / whole:.2f}" height="10"/></svg>'
    )


def heat_svg(figure: HeatMap) -> str:
    """A grid of cells; opacity is the share, from zero to the largest.

    Many cells are drawn as one path a shade: a tenth of the bytes, and no text to point at.
    """
    columns = max(len(figure.steps), 1)
    lane = 24 if len(figure.ranks) <= 16 else 12
    width = min(_PLOT / columns, 90)
    height = lane * len(figure.ranks) + 24
    parts = [
        (
            f'<svg class="heat" viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-labelledby="{figure.id}-t">'
            f'<title id="{figure.id}-t">{escape(figure.caption)}</title>'
        )
    ]
    parts += [
        f'<text x="{_GUTTER - 8}" y="{index * lane + lane / 2 + 4:g}" text-anchor="end">'
        f"{escape(label)}</text>"
        for index, label in enumerate(rank_labels(figure))
    ]
    many = len(figure.ranks) * columns > _MANY_CELLS
    parts += _shades(figure, lane, width) if many else _cells(figure, lane, width)
    every = max(1, round(columns / 12))
    for column in range(0, columns, every):
        x = _GUTTER + (column + 0.5) * width
        parts.append(
            f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{figure.steps[column]}</text>'
        )
    parts.append(f'<text x="{_GUTTER - 8}" y="{height - 6}" text-anchor="end">step</text></svg>')
    return "".join(parts)


def rank_labels(figure: HeatMap) -> tuple[str, ...]:
    """What stands before each row."""
    return figure.rank_labels or tuple(f"rank {rank}" for rank in figure.ranks)


def step_labels(figure: HeatMap) -> tuple[str, ...]:
    """What each column is called."""
    return figure.step_labels or tuple(f"step {step}" for step in figure.steps)


def _cells(figure: HeatMap, lane: int, width: float) -> list[str]:
    top = figure.high or 1.0
    columns = step_labels(figure)
    return [
        f'<rect x="{_GUTTER + column * width:.1f}" y="{index * lane + 1}" '
        f'width="{width - 1:.1f}" height="{lane - 2}" '
        f'fill-opacity="{max(share / top, 0.02):.2f}"><title>{escape(label)}, '
        f"{escape(columns[column])}: {value(share, 'share')}</title></rect>"
        for index, label in enumerate(rank_labels(figure))
        for column, share in enumerate(figure.values[index])
        if share is not None
    ]


def _shades(figure: HeatMap, lane: int, width: float) -> list[str]:
    top = figure.high or 1.0
    shades: dict[int, list[str]] = {}
    for index, row in enumerate(figure.values):
        for column, share in enumerate(row):
            if share is not None:
                shade = max(1, round(_SHADES * share / top))
                place = f"M{column} {index * lane + 1}h1v{lane - 2}h-1z"
                shades.setdefault(shade, []).append(place)
    return [
        f'<path transform="translate({_GUTTER} 0)scale({width:.4g} 1)" '
        f'fill-opacity="{shade / _SHADES:.2f}" d="{"".join(places)}"/>'
        for shade, places in sorted(shades.items())
    ]


def chart(figure: Figure) -> dict[str, Any]:
    """What `report.js` needs to draw the interactive twin of a figure."""
    if isinstance(figure, Waterfall):
        divisor, unit = scale([figure.bars[0].value_ns], "ns")
        return {
            "id": figure.id,
            "kind": "waterfall",
            "unit": unit,
            "divisor": divisor,
            "bars": [
                {
                    "label": bar.label,
                    "color": time_class(bar.time_class).color,
                    "base": bar.base_ns,
                    "value": bar.value_ns,
                    "text": value(bar.value_ns, "ns"),
                    "share": value(bar.share, "share"),
                }
                for bar in figure.bars
            ],
        }
    if isinstance(figure, HeatMap):
        return {
            "id": figure.id,
            "kind": "heat",
            "rows": rank_labels(figure),
            "columns": step_labels(figure),
            "values": [
                [None if share is None else round(share, 4) for share in row]
                for row in figure.values
            ],
            "high": figure.high,
            "color": palette()["compute"].color,
        }
    return _gantt_chart(figure)


def _gantt_chart(figure: Gantt) -> dict[str, Any]:
    """Numbers in flat lists and each name once: kernel names are most of the bytes otherwise."""
    names = list(dict.fromkeys(mark.name for mark in figure.marks))
    nodes = list(dict.fromkeys(mark.node for mark in figure.marks))
    node_at = {node: index for index, node in enumerate(nodes)}
    classes = list(dict.fromkeys(mark.time_class for mark in figure.marks))
    name_at = {name: index for index, name in enumerate(names)}
    class_at = {name: index for index, name in enumerate(classes)}
    divisor, unit = scale([figure.window_ns], "ns")
    return {
        "id": figure.id,
        "kind": "gantt",
        "unit": unit,
        "divisor": divisor,
        "window": figure.window_ns,
        "rows": figure.rows,
        "names": names,
        "nodes": nodes,
        "labels": {index: mark.label for index, mark in enumerate(figure.marks) if mark.label},
        "classes": [
            {"label": time_class(name).label, "color": time_class(name).color} for name in classes
        ],
        # row, class, name, start, length, items, busy, node; one list a mark
        "marks": [
            [
                mark.row,
                class_at[mark.time_class],
                name_at[mark.name],
                mark.start_ns,
                mark.end_ns - mark.start_ns,
                mark.count,
                mark.busy_ns,
                node_at[mark.node],
            ]
            for mark in figure.marks
        ],
    }
