"""The report for a pull request: what fits in a comment, with the rest in the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gapscope.report.document import Quantity, Status, Waterfall
from gapscope.units import interval, value, values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapscope.report.document import Cell, Column, Document, Statement, Table

# GitHub cuts comments off at 65,536 characters.
LIMIT = 60_000
_OPPORTUNITIES = 5
_STEPS = 24
_CUT = "\n\n_The rest does not fit into a comment; the HTML report has all of it._\n"


def render(document: Document) -> str:
    """Verdict, capture quality, budget, ranks, the first opportunities, and claim counts."""
    parts = [f"# GapScope: {text(document.header.run_name)}", ""]
    parts += ["## 1. Verdict", ""]
    verdict = document.section("verdict")
    parts += [f"**{text(document.verdict.headline.text)}**", ""]
    parts += statements(verdict.statements[1:])
    parts += statements(verdict.missing)
    for figure in verdict.figures:
        if isinstance(figure, Waterfall):
            parts += _waterfall(figure)
    parts += ["## 2. Capture quality", ""]
    parts += statements(document.section("quality").statements)
    parts += _quality(document.section("quality").tables[0])
    parts += ["## 3. Per-step budget", ""]
    budget = document.section("budget")
    steps = [table for table in budget.tables if table.id == "steps"]
    parts += statements(budget.statements)
    for table in budget.tables:
        if table.id in _MODEL and table.rows:
            parts += _table(table, _MODEL[table.id])
        if table.id == "class-metrics":
            parts += _table(table, _METRICS)
    parts += _steps(steps[0]) if steps else []
    parts += ["## 4. Rank and communication findings", ""]
    parts += statements(document.section("ranks").statements)
    parts += statements(document.section("ranks").missing)
    parts += ["## 5. Ranked opportunities", ""]
    parts += _opportunities(document)
    parts += ["## 6. Claim status", ""]
    counted = ", ".join(
        f"{sum(1 for claim in document.claims if claim.status is status)} {status.value}"
        for status in Status
    )
    parts += [f"{len(document.claims)} claims: {counted}.", ""]
    return cut("\n".join(parts))


def cut(page: str) -> str:
    """The page as far as a comment holds it."""
    if len(page) > LIMIT:
        return page[: LIMIT - len(_CUT)].rsplit("\n", 1)[0] + _CUT
    return page


def text(sentence: str) -> str:
    """A sentence with its code spans; everything else cannot become markup, link or mention."""
    parts = " ".join(sentence.split()).split("`")
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


def statements(items: tuple[Statement, ...]) -> list[str]:
    """A list of sentences."""
    return [*(f"- {text(item.text)}" for item in items), ""] if items else []


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
                        text(f"`{entry['check_name']}`"),
                        text(entry["detail"]),
                        text(entry["forbids"]),
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
    lines = [text(table.caption), "", _row(head)]
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
                    text(str(entry["boundary"])),
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


_METRICS = (
    "source_path",
    "device",
    "rank",
    "time_class",
    "op_class",
    "timing_share",
    "covered_share",
    "full_count",
    "status",
    "sm_issue",
    "tensor_active",
    "gpc_clock",
)


def _table(table: Table, keys: tuple[str, ...]) -> list[str]:
    columns = {c.key: (place, c) for place, c in enumerate(table.columns)}
    shown = [columns[key] for key in keys if key in columns]
    return [
        f"**{text(table.title)}**",
        "",
        text(table.caption),
        "",
        *grid(
            [column for _, column in shown],
            [[row[place] for place, _ in shown] for row in table.rows],
        ),
        "",
        *(line for note in table.notes for line in (text(note), "")),
    ]


def grid(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """Lines of a table."""
    numeric = [column.kind not in ("text", "code", "id", "status") for column in columns]
    return [
        _row([column.label for column in columns]),
        _row(["---:" if is_number else "---" for is_number in numeric]),
        *(
            _row([_cell(cell, column) for cell, column in zip(row, columns, strict=True)])
            for row in rows
        ),
    ]


def _cell(cell: Cell, column: Column) -> str:
    if cell is None:
        return ""
    if isinstance(cell, Quantity):
        return _quantity(cell)
    if column.kind in ("ns", "+ns", "count", "share", "Hz") and isinstance(cell, int | float):
        return value(cell, column.kind)
    if column.kind == "code":
        # A backtick in a name would end its span.
        return text("`" + str(cell).replace("`", "'") + "`")
    return text(str(cell))


def _opportunities(document: Document) -> list[str]:
    section = document.section("opportunities")
    lines = statements(section.statements)
    for table in section.tables:
        if table.rows:
            lines += _table(table, tuple(column.key for column in table.columns))
    for place, card in enumerate(document.opportunities[:_OPPORTUNITIES], start=1):
        ceiling = ""
        if card.ceiling is not None:
            labels = "".join(f", {label}" for label in card.labels)
            ceiling = f"Ceiling +{_quantity(card.ceiling)} throughput{labels}; "
        lines += [
            f"### {place}. {text(card.title)}",
            "",
            (
                f"{ceiling}{_quantity(card.time)}, "
                f"{value(card.step_share, 'share')} of the window"
                + (
                    f"; modelled step without it {_quantity(card.modelled)}"
                    if card.modelled
                    else ""
                )
                + f". {text(card.mechanism.text)}"
            ),
            "",
            *(f"- {text(item.text)}" for item in card.evidence),
            f"- Bound: {text(card.bound.text)}",
            f"- Confidence: {text(card.confidence.text)}",
            *(f"- Try: {text(item)}" for item in card.what_to_try),
            f"- Does not apply when: {text(card.not_when)}",
            f"- To verify: {text(card.verify)}",
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
    return [*lines, *statements(section.missing)]
