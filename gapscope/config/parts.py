"""`[parts]`: which ranks run the same program and may be compared."""

from __future__ import annotations

import re
from typing import Any

from gapscope.errors import GapscopeError

# The SQL that reads them knows blanks and digits of ASCII alone.
_RANKS = re.compile(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", re.ASCII)


def check(table: dict[str, Any], source: str) -> None:
    """Refuse parts without a name, values that are no ranks, and a rank in two parts.

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
