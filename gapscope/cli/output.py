"""Where words go: data to stdout, talk to stderr; plain text that needs no colour."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from gapscope.errors import GapscopeError
from gapscope.units import plain

# Stands for the columns of a table that do not fit.
MORE = "…"

# Text in a table is not squeezed below this.
_NARROWEST = 12

_RED, _YELLOW, _BOLD, _RESET = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"


def colour_on(stream: Any) -> bool:
    """NO_COLOR beats FORCE_COLOR beats whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Columns to lay text out in: COLUMNS, the terminal, or 80; never below 40."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def screen_width() -> int | None:
    """Columns that a table on stdout must fit in; None for a pipe or file, which get everything.

    An exported COLUMNS asks for a width, terminal or not.
    """
    return width() if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def data(text: str) -> None:
    """One piece of the answer, with a line end, to stdout."""
    sys.stdout.write(_encodable(text if text.endswith("\n") else text + "\n", sys.stdout))


def document(schema: str, content: dict[str, Any]) -> None:
    """The answer as one JSON document; its first key names its schema."""
    data(json.dumps({"schema": schema, **content}, indent=2, ensure_ascii=False))


def say(text: str, *, quiet: bool = False) -> None:
    """Talk: progress, tables for the eye, what to do next."""
    if not quiet:
        sys.stderr.write(plain(text) + "\n")


def warn(text: str) -> None:
    """A warning; `--quiet` keeps it."""
    sys.stderr.write(_painted("warning", _YELLOW) + f": {plain(text)}\n")


def fail(error: GapscopeError) -> None:
    """The error and what to type next."""
    sys.stderr.write(_painted(f"error[{error.slug}]", _RED) + f": {plain(error.message)}\n")
    if error.hint:
        sys.stderr.write(f"  hint: {plain(error.hint)}\n")


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    limit: int | None = None,
    cell_lines: int | None = None,
) -> str:
    """Aligned plain text, numbers to the right.

    Within `limit` columns long text wraps, to `cell_lines` lines at most; columns for which no room
    is left go, whole, and `…` stands for them: half a number would be a wrong number.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths, numeric = _measured(header, cells)
    if limit is not None:
        count, cap = _fit(widths, numeric, limit)
        header, cells = list(header[:count]), [row[:count] for row in cells]
        widths = [
            w if is_number else min(w, cap)
            for w, is_number in zip(widths[:count], numeric[:count], strict=True)
        ]
        if count < len(numeric):
            header, widths = [*header, MORE], [*widths, 1]
            numeric = [*numeric[:count], False]
            cells = [[*row, MORE] for row in cells]
    lines = []
    for row in [list(header), ["-" * w for w in widths], *cells]:
        for line in _row_lines(row, widths, cell_lines):
            parts = [
                cell.rjust(w) if number else cell.ljust(w)
                for cell, w, number in zip(line, widths, numeric, strict=True)
            ]
            lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def paged(header: Sequence[str], rows: Iterable[Sequence[object]], *, limit: int | None) -> str:
    """`table` with every column: those that do not fit follow in tables of their own.

    Each of these begins with the first column, which says whose row it is.
    """
    cells = [list(row) for row in rows]
    texts = [[_cell(value) for value in row] for row in cells]
    widths, numeric = _measured(header, texts)
    pages: list[str] = []
    left = list(range(1, len(header)))
    while left or not pages:
        shown = [0, *left]
        while limit is not None and len(shown) > 2:
            count, _ = _fit([widths[i] for i in shown], [numeric[i] for i in shown], limit)
            if count == len(shown):
                break
            shown.pop()
        left = left[len(shown) - 1 :]
        named = [header[i] for i in shown]
        pages.append(table(named, [[row[i] for i in shown] for row in cells], limit=limit))
    return "\n\n".join(pages)


def wrapped(lead: str, text: str) -> str:
    """`text` behind `lead`, wrapped to the screen under a hanging indent."""
    indent = min(len(lead), 24)
    return textwrap.fill(
        plain(lead + " ".join(text.split())),
        width=width(),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _measured(
    header: Sequence[str], cells: Sequence[Sequence[str]]
) -> tuple[list[int], list[bool]]:
    """How wide each column is, and which are of numbers."""
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(header)]
    numeric = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(header))]
    return widths, numeric


def _fit(widths: Sequence[int], numeric: Sequence[bool], limit: int) -> tuple[int, int]:
    """How many columns fit in `limit`, and the widest that text may then be."""
    for count in range(len(widths), 0, -1):
        kept = list(zip(widths[:count], numeric[:count], strict=True))
        # Two blanks between columns, and three places for the sign that some are missing.
        room = limit - 2 * (count - 1) - (3 if count < len(widths) else 0)
        for cap in range(max(widths), _NARROWEST - 1, -1):
            if sum(w if is_number else min(w, cap) for w, is_number in kept) <= room:
                return count, cap
        if max(widths) < _NARROWEST and sum(widths[:count]) <= room:
            return count, _NARROWEST
    return 1, limit


def _row_lines(
    row: Sequence[str], widths: Sequence[int], cell_lines: int | None
) -> list[tuple[str, ...]]:
    """One row of a table as lines: a cell that is too long goes on below itself."""
    wrapped_cells = []
    for cell, w in zip(row, widths, strict=True):
        lines = [cell] if len(cell) <= w else textwrap.wrap(cell, w, break_on_hyphens=False)
        if cell_lines is not None and len(lines) > cell_lines:
            lines = [*lines[: cell_lines - 1], lines[cell_lines - 1][: w - 1] + "…"]
        wrapped_cells.append(lines)
    return list(itertools.zip_longest(*wrapped_cells, fillvalue=""))


def _encodable(text: str, stream: Any) -> str:
    """The text with what the stream cannot encode (names that are no UTF-8) written out."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _painted(text: str, colour: str) -> str:
    return f"{_BOLD}{colour}{text}{_RESET}" if colour_on(sys.stderr) else text


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return plain(str(value).replace("\r\n", " ").replace("\n", " "))


def _is_number(text: str) -> bool:
    return not text or text.lstrip("-").replace(".", "", 1).replace("e-", "", 1).isdigit()
