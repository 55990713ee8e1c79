"""`gapscope.toml`: what the user declares about a run, because no capture can tell it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from gapscope.errors import GapscopeError

DEFAULT = Path("gapscope.toml")
TABLES = ("fsdp2", "parts")
# The SQL that reads them knows blanks and digits of ASCII alone.
_RANKS = re.compile(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", re.ASCII)


def read(path: Path | None) -> dict[str, dict[str, Any]]:
    """Tables of the file; of `gapscope.toml` in the working directory when none is named.

    Raises GapscopeError `bad-config` for a file that is missing, no TOML, or holds unknown tables.
    """
    if path is None:
        if not DEFAULT.is_file():
            return {}
        path = DEFAULT
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise GapscopeError(
            "bad-config", f"`{path}` cannot be read: {reason}", "name a file with `--config FILE`"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise GapscopeError(
            "bad-config", f"`{path}` is no TOML: {error}", "a table looks like `[fsdp2]`"
        ) from error
    for name, table in found.items():
        if name not in TABLES or not isinstance(table, dict):
            raise GapscopeError(
                "bad-config", f"`{path}`: unknown `{name}`", f"known tables: {', '.join(TABLES)}"
            )
    return found


def check_parts(table: dict[str, Any], source: str) -> None:
    """Refuse a `[parts]` table that does not name parts and ranks, or a rank in two of them.

    Raises GapscopeError `bad-config`.
    """
    taken: list[tuple[int, int, str]] = []
    for part, ranks in table.items():
        if not part.strip():
            raise GapscopeError(
                "bad-config",
                f"`{source}`: [parts] a part has no name",
                'name it, like stage0 = "0-3"',
            )
        for piece in str(ranks).split(","):
            match = _RANKS.fullmatch(piece)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not isinstance(ranks, str) or last < first:
                raise GapscopeError(
                    "bad-config",
                    f"`{source}`: [parts] `{part}` is {ranks!r}",
                    'it must name ranks, like "0-3,8"',
                )
            for low, high, other in taken:
                if first <= high and low <= last:
                    raise GapscopeError(
                        "bad-config",
                        f"`{source}`: [parts] rank {max(first, low)} is in `{other}` and `{part}`",
                        "a rank belongs to one part",
                    )
            taken.append((first, last, part))
