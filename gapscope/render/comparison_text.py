"""A comparison for a terminal: 80 columns, plain ASCII, meaning without colour."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from gapscope.render import comparison_tables as tables
from gapscope.report.document import Quantity
from gapscope.units import fixed, plain, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    if same == len(document.checks):
        return [f"Compared: all {same} checks are alike."]
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
        [_head(column, unit), *_cells([row[place] for row in rows], column, divisor)]
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


def _cells(cells: Sequence[object], column: Column, divisor: float) -> list[str]:
    if column.kind in ("text", "code"):
        texts = ["" if cell is None else plain(str(cell)).replace("\n", " ") for cell in cells]
        short = shortened(texts, _NAME)
        return [short[text] for text in texts]
    return [_time(_number(cell), column.kind, divisor) for cell in cells]


def _time(amount: float | None, kind: str, divisor: float) -> str:
    if amount is None:
        return ""
    if kind == "share":
        return value(amount, "share")
    return fixed(amount / divisor, "+" if kind == "+ns" else "") if amount else "0"


def shortened(texts: Iterable[str], room: int) -> dict[str, str]:
    """Each text within `room` letters, so that different ones stay different.

    What is too long is cut at its end. Where that leaves some alike, what follows from where they
    begin to differ is shown too, behind what told them from the others. Last, they are numbered.
    """
    short = {text: text for text in texts}
    long = [text for text in short if len(text) > room]
    pending = [(0, group) for group in _alike(short, {text: _cut(text, room) for text in long})]
    while pending:
        start, group = pending.pop()
        ends = min(group), max(group)
        differing = (i for i, (a, b) in enumerate(zip(*ends, strict=False)) if a != b)
        shared = next(differing, min(map(len, ends)))
        # From the word in which they differ; of a long one, only its last letters before that.
        word = len(re.sub(r"\w*$", "", group[0][:shared]))
        follows = max(word, shared - room // 4)
        head = room // 3
        cuts = {
            text: f"{text[start : start + head]}...{_cut(text[follows:], room - head - 3)}"
            for text in group
        }
        pending += [(follows, group) for group in _alike(short, cuts)]
    for same in _alike(short, {text: short[text] for text in long}):
        for number, text in enumerate(same[1:], start=2):
            short[text] = f"{short[text][: room - 3]}~{number}"
    return short


def _alike(short: dict[str, str], cuts: dict[str, str]) -> list[list[str]]:
    """Take the cuts over, and say which texts they leave alike."""
    short |= cuts
    groups: dict[str, list[str]] = {}
    for text, cut in cuts.items():
        groups.setdefault(cut, []).append(text)
    return [group for group in groups.values() if len(group) > 1]


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 3]}..."


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
