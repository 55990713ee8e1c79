"""Shapley values of the mechanisms over the steps of a run: one sum for the report and the CLI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapscope.model.ladder import MECHANISMS, shapley

if TYPE_CHECKING:
    from collections.abc import Iterable

LADDERS = "SELECT step_id, removed, step_ns FROM v1.what_if_step WHERE NOT is_boundary"


def mean(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[float, int, int]]:
    """Mechanism -> (mean over the steps, least, most over all orders of removal and steps), ns."""
    ladders: dict[int, dict[str, int]] = {}
    for row in rows:
        ladders.setdefault(row["step_id"], {})[row["removed"]] = row["step_ns"]
    found = [shapley(ladder) for ladder in ladders.values()]
    return {
        name: (
            sum(one[name][0] for one in found) / len(found),
            min(one[name][1] for one in found),
            max(one[name][2] for one in found),
        )
        for name in MECHANISMS
        if all(name in one for one in found)
    }
