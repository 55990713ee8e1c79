"""A comparison for a terminal: 80 columns, plain ASCII, meaning without colour."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gapscope.render import comparison_tables as tables
from gapscope.report.document import Quantity
from gapscope.units import plain, value

if TYPE_CHECKING:
    from gapscope.compare.document import Comparison
    from gapscope.report.document import Column, Table

WIDTH = 80
# Rows of a ledger, and letters of a name, that are read without scrolling.
_ROWS = 14
_NAME = 26
_TIMES = ("ns", "+ns")
# Columns that fit; every other form has all of them.
_STEPS = ("rank", "a", "b", "delta", "low", "high", "share")
_PARTS = ("part", "a", "b", "delta", "low", "high", "median_delta")
_CHARGE = ("part", "a", "b", "delta", "computes", "waits")


def render(document: Comparison) -> str:
    """Verdict, what is compared, the step, and the ledgers of the shown rank."""
    lines = [f"A  {document.a}", f"B  {document.b}", ""]
    lines += _wrap(document.headline.text)
    lines += [line for item in document.statements for line in _wrap(item.text, "- ")]
    lines += ["", *_checks(document)]
    if document.is_comparable:
        lines += ["", *_table(tables.steps(document), _STEPS)]
        for item in document.ledgers:
            if item.rank == document.shown_rank:
                table = tables.ledger(item)
                is_charge = any(column.key == "waits" for column in table.columns)
                lines += ["", *_table(table, _CHARGE if is_charge else _PARTS, pinned=2)]
    return _ascii("\n".join(lines)) + "\n"


def _checks(document: Comparison) -> list[str]:
    same = sum(check.verdict == "same" for check in document.checks)
    lines = [f"Compared: {same} of {len(document.checks)} checks are alike; the others:"]
    for check in document.checks:
        if check.verdict == "same":
            continue
        sides = (
            f"{check.a} in both"
            if check.a == check.b and check.a is not None
            else f"A {check.a or 'unknown'} | B {check.b or 'unknown'}"
        )
        lines += _wrap(f"{check.item}: {sides}", f"{check.verdict:<8} ")
    return lines


def _table(table: Table, keys: tuple[str, ...], pinned: int = 0) -> list[str]:
    """A grid in one unit, which its head names; the last `pinned` rows are always shown."""
    columns = [(place, c) for place, c in enumerate(table.columns) if c.key in keys]
    rows = list(table.rows)
    left_out = len(rows) - _ROWS
    if left_out > 0:
        rows = [*rows[: _ROWS - pinned], *rows[len(rows) - pinned :]]
    times = [_number(row[i]) for row in table.rows for i, c in columns if c.kind in _TIMES]
    divisor, unit = _unit(max((abs(time) for time in times if time is not None), default=0))
    texts = [
        [
            _head(column, unit),
            *(_cell(row[place], column, divisor) for row in rows),
        ]
        for place, column in columns
    ]
    widths = [max(map(len, column)) for column in texts]
    is_text = [column.kind in ("text", "code") for _, column in columns]
    body = [
        "  "
        + "  ".join(
            f"{column[line]:<{width}}" if left else f"{column[line]:>{width}}"
            for column, width, left in zip(texts, widths, is_text, strict=True)
        ).rstrip()
        for line in range(len(rows) + 1)
    ]
    if left_out > 0:
        body.insert(len(body) - pinned, f"  ({left_out} more: `--format md`)")
    notes = [line for note in table.notes for line in _wrap(note, "  ")]
    return [*_wrap(table.title), *body, *notes]


def _head(column: Column, unit: str) -> str:
    return f"{column.label} {unit}" if column.kind == "ns" else column.label


def _unit(largest: float) -> tuple[float, str]:
    """The largest unit that leaves two digits before the point."""
    for divisor, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if largest >= 10 * divisor:
            return divisor, name
    return 1.0, "ns"


def _number(cell: object) -> float | None:
    if isinstance(cell, Quantity):
        return cell.value
    return cell if isinstance(cell, int | float) else None


def _cell(cell: object, column: Column, divisor: float) -> str:
    if column.kind in ("text", "code"):
        return _name(cell)
    amount = _number(cell)
    if amount is None:
        return ""
    if column.kind == "share":
        return value(amount, "share")
    sign = "+" if column.kind == "+ns" else ""
    return f"{amount / divisor:{sign}.2f}" if amount else "0"


def _name(cell: object) -> str:
    text = "" if cell is None else plain(str(cell)).replace("\n", " ")
    return text if len(text) <= _NAME else f"{text[: _NAME - 3]}..."


def _wrap(text: str, first: str = "") -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )


def _ascii(text: str) -> str:
    return "".join(c if c == "\n" or " " <= c <= "~" else "?" for c in text)
