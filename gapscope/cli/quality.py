"""Rows of v1.capture_quality as lines for a person: ranks that say the same share one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ORDER = ("fail", "warn", "info", "ok")


@dataclass(frozen=True)
class Finding:
    """One check with one outcome, on one rank, several, or the whole run (no ranks)."""

    status: str
    check: str
    ranks: tuple[int, ...]
    detail: str
    forbids: str | None

    @property
    def name(self) -> str:
        """The check, and the ranks where it came out like this."""
        return f"{self.check} (rank {_spans(self.ranks)})" if self.ranks else self.check

    @property
    def finding(self) -> str:
        """What was seen and what it forbids to say."""
        return f"{self.detail}; this forbids: {self.forbids}" if self.forbids else self.detail


def findings(rows: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Worst first; within one status as the view orders them."""
    ranks: dict[tuple[str, str, str, str | None], list[int]] = {}
    for row in rows:
        key = (row["status"], row["check_name"], row["detail"], row["forbids"])
        named = ranks.setdefault(key, [])
        if row["rank"] is not None:
            named.append(row["rank"])
    found = [
        Finding(status, check, tuple(sorted(named)), detail, forbids)
        for (status, check, detail, forbids), named in ranks.items()
    ]
    return sorted(found, key=lambda finding: ORDER.index(finding.status))


def _spans(numbers: tuple[int, ...]) -> str:
    """`0-3, 7` for 0, 1, 2, 3, 7."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
