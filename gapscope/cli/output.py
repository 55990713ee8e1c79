"""Where words go: data to stdout, talk to stderr; plain text that needs no colour."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from gapscope.errors import GapscopeError

# Control characters but tab and line end, and what reverses the order of text.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

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


def plain(text: str) -> str:
    r"""The text with characters that could steer a terminal written out, as `\x1b`.

    Names in captures and files are not ours: they may hold any character.
    """
    return _STEERING.sub(_written_out, text)


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
    header: Sequence[str], rows: Iterable[Sequence[object]], *, limit: int | None = None
) -> str:
    """Aligned plain text, numbers to the right. `limit` cuts lines to that width."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(header))]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(header)]
    lines = []
    for row in [list(header), ["-" * w for w in widths], *cells]:
        parts = [
            cell.rjust(w) if number else cell.ljust(w)
            for cell, w, number in zip(row, widths, numeric, strict=True)
        ]
        line = "  ".join(parts).rstrip()
        if limit is not None and len(line) > limit:
            line = line[: limit - 1] + "…"
        lines.append(line)
    return "\n".join(lines)


def wrapped(lead: str, text: str) -> str:
    """`text` behind `lead`, wrapped to the screen under a hanging indent."""
    indent = min(len(lead), 24)
    return textwrap.fill(
        lead + " ".join(text.split()),
        width=width(),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _encodable(text: str, stream: Any) -> str:
    """The text with what the stream cannot encode (names that are no UTF-8) written out."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


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
