"""The report for a pull request: what fits in a comment, with the rest in the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gapscope.report.document import Quantity, Status, Waterfall
from gapscope.units import interval, value, values

if TYPE_CHECKING:
    from gapscope.report.document import Cell, Column, Document, Statement, Table

# GitHub cuts comments off at 65,536 characters.
LIMIT = 60_000
_OPPORTUNITIES = 5
_STEPS = 24
_CUT = "\n\n_The rest does not fit into a comment; the HTML report has all of it._\n"


def render(document: Document) -> str:
    """Verdict, capture quality, budget, ranks, the first opportunities, and claim counts."""
    parts = [f"# GapScope: {_text(document.header.run_name)}", ""]
    parts += ["## 1. Verdict", ""]
    verdict = document.section("verdict")
    parts += [f"**{_text(document.verdict.headline.text)}**", ""]
    parts += _statements(verdict.statements[1:])
    parts += _statements(verdict.missing)
    for figure in verdict.figures:
        if isinstance(figure, Waterfall):
            parts += _waterfall(figure)
    parts += ["## 2. Capture quality", ""]
    parts += _statements(document.section("quality").statements)
    parts += _quality(document.section("quality").tables[0])
    parts += ["## 3. Per-step budget", ""]
    budget = document.section("budget")
    steps = [table for table in budget.tables if table.id == "steps"]
    parts += _statements(budget.statements)
    for table in budget.tables:
        if table.id in _MODEL and table.rows:
            parts += _table(table, _MODEL[table.id])
    parts += _steps(steps[0]) if steps else []
    parts += ["## 4. Rank and communication findings", ""]
    parts += _statements(document.section("ranks").statements)
    parts += _statements(document.section("ranks").missing)
    parts += ["## 5. Ranked opportunities", ""]
    parts += _opportunities(document)
    parts += ["## 6. Claim status", ""]
    counted = ", ".join(
        f"{sum(1 for claim in document.claims if claim.status is status)} {status.value}"
        for status in Status
    )
    parts += [f"{len(document.claims)} claims: {counted}.", ""]
    text = "\n".join(parts)
    if len(text) > LIMIT:
        text = text[: LIMIT - len(_CUT)].rsplit("\n", 1)[0] + _CUT
    return text


def _text(text: str) -> str:
    """A sentence with its code spans; everything else cannot become markup, link or mention."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        return _plain(" ".join(parts))
    # A span around nothing would be two backticks, which open or close another kind of span.
    return "".join(
        f"`{part.replace('|', '&#124;')}`" if index % 2 and part else _plain(part)
        for index, part in enumerate(parts)
    )


def _plain(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A letter behind @ or # would call a person or an issue.
    escaped = re.sub(r"([@#])(?=\w)", "\\1\u200b", escaped)
    return re.sub(r"([\\*_\[\]|~])", r"\\\1", escaped)


def _quantity(amount: Quantity) -> str:
    return interval(amount.value, amount.unit, amount.n, amount.low, amount.high)


def _statements(items: tuple[Statement, ...]) -> list[str]:
    return [*(f"- {_text(item.text)}" for item in items), ""] if items else []


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _waterfall(figure: Waterfall) -> list[str]:
    times = values([bar.value_ns for bar in figure.bars], "ns")
    return [
        _row(["part", "time", "of the whole"]),
        _row(["---", "---:", "---:"]),
        *(
            _row([bar.label, time, value(bar.share, "share")])
            for bar, time in zip(figure.bars, times, strict=True)
        ),
        "",
    ]


def _quality(table: Table) -> list[str]:
    rows = []
    for row in table.rows:
        entry = {c.key: str(cell or "") for c, cell in zip(table.columns, row, strict=True)}
        if entry["status"] != "ok":
            rows.append(
                _row(
                    [
                        entry["status"],
                        entry["ranks"],
                        _text(f"`{entry['check_name']}`"),
                        _text(entry["detail"]),
                        _text(entry["forbids"]),
                    ]
                )
            )
    if not rows:
        return ["Every check is ok.", ""]
    head = ["status", "rank", "check", "what was seen", "what this prevents us from saying"]
    return [_row(head), _row(["---"] * len(head)), *rows, ""]


_STEP_KEYS = (
    "step_ns",
    "compute_ns",
    "launch_starved_ns",
    "blocking_ns",
    "stalled_ns",
    "tail_ns",
    "exposed_comm_ns",
    "copy_ns",
)


def _steps(table: Table) -> list[str]:
    labels = {column.key: column.label for column in table.columns}
    head = ["rank", "step", *(labels[key] for key in _STEP_KEYS), "boundary"]
    lines = [_text(table.caption), "", _row(head)]
    lines.append(_row(["---:"] * (len(head) - 1) + ["---"]))
    for row in table.rows[:_STEPS]:
        entry = {c.key: cell for c, cell in zip(table.columns, row, strict=True)}
        amounts: list[float | None] = []
        for key in _STEP_KEYS:
            cell = entry[key]
            amounts.append(cell if isinstance(cell, int | float) else None)
        lines.append(
            _row(
                [
                    str(entry["rank"]),
                    str(entry["step_id"]),
                    *values(amounts, "ns"),
                    _text(str(entry["boundary"])),
                ]
            )
        )
    if len(table.rows) > _STEPS:
        lines += ["", f"{len(table.rows) - _STEPS} more rows are in the HTML report."]
    return [*lines, ""]


# Tables of the dependency model, with the columns to show.
_MODEL = {
    "gaps": (
        "rank",
        "observed",
        "t_lb",
        "gap",
        "R1",
        "R2",
        "R3",
        "H1",
        "H2",
        "floor",
        "unresolved",
    ),
    "bounds": ("limits", "bound"),
    "ladder": ("removed", "step", "saved_ns", "stretched", "shapley_ns"),
    "changes": ("change", "step", "saved_ns"),
    "queues": ("streams", "until", "instance_count", "counter_examples"),
}


def _table(table: Table, keys: tuple[str, ...]) -> list[str]:
    columns = {c.key: (place, c) for place, c in enumerate(table.columns)}
    shown = [columns[key] for key in keys]
    return [
        f"**{_text(table.title)}**",
        "",
        _text(table.caption),
        "",
        _row([column.label for _, column in shown]),
        _row(["---" if column.kind in ("text", "code", "id") else "---:" for _, column in shown]),
        *(_row([_cell(row[place], column) for place, column in shown]) for row in table.rows),
        "",
        *(line for note in table.notes for line in (_text(note), "")),
    ]


def _cell(cell: Cell, column: Column) -> str:
    if cell is None:
        return ""
    if isinstance(cell, Quantity):
        return _quantity(cell)
    if column.kind in ("ns", "count", "share") and isinstance(cell, int | float):
        return value(cell, column.kind)
    return _text(f"`{cell}`" if column.kind == "code" else str(cell))


def _opportunities(document: Document) -> list[str]:
    section = document.section("opportunities")
    lines = _statements(section.statements)
    for place, card in enumerate(document.opportunities[:_OPPORTUNITIES], start=1):
        ceiling = ""
        if card.ceiling is not None:
            ceiling = f"Ceiling +{_quantity(card.ceiling)} throughput; "
        lines += [
            f"### {place}. {_text(card.title)}",
            "",
            (
                f"{ceiling}{_quantity(card.time)}, "
                f"{value(card.step_share, 'share')} of the window"
                + (
                    f"; modelled step without it {_quantity(card.modelled)}"
                    if card.modelled
                    else ""
                )
                + f". {_text(card.mechanism.text)}"
            ),
            "",
            *(f"- {_text(item.text)}" for item in card.evidence),
            *(f"- Try: {_text(item)}" for item in card.what_to_try),
            f"- Does not apply when: {_text(card.not_when)}",
            "",
        ]
    for query in dict.fromkeys(card.query for card in document.opportunities):
        lines += [
            "<details><summary>SQL</summary>",
            "",
            "```sql",
            f"{query};",
            "```",
            "",
            "</details>",
            "",
        ]
    return [*lines, *_statements(section.missing)]
