"""From a proven cost to what to do about it: the rows of `v1.cost` and `v1.action`, chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapscope.report.facts import Row

COSTS = "FROM v1.cost"
ACTIONS = "FROM v1.action ORDER BY place"


@dataclass(frozen=True, slots=True)
class Advice:
    """What is said of one cost, and everything that could be tried against it, in order."""

    cost: str
    title: str
    mechanism: str
    not_when: str
    verify: str
    actions: tuple[Row, ...]

    def chosen(self, tags: frozenset[str], *, shape: str = "", cause: str = "") -> list[Row]:
        """Actions whose evidence is there: those for the cause first, then those for the shape."""
        fit = [
            row
            for row in self.actions
            if set(row["needs"].split()) <= tags and row["cause"] in ("", cause)
        ]
        return sorted(fit, key=lambda row: (row["cause"] == "", row["prefers"] != shape))


def read(rows: Callable[[str], list[Row]]) -> dict[str, Advice]:
    """Every cost with its actions, read through `rows`."""
    actions = rows(ACTIONS)
    return {
        row["cost"]: Advice(
            cost=row["cost"],
            title=row["title"],
            mechanism=row["mechanism"],
            not_when=row["not_when"],
            verify=row["verify"],
            actions=tuple(action for action in actions if action["cost"] == row["cost"]),
        )
        for row in rows(COSTS)
    }
