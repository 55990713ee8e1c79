"""What the dependency model left in the run: the bound, the classes, the ladder, or why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gapscope.report import model_queries
from gapscope.report.document import Quantity, Statement

Row = dict[str, Any]

# A gap below this share of the step is what launches and jitter cost anywhere.
CLEAN = 0.04

NAMES = {
    "R1": "late launch",
    "R2": "queue serialization",
    "R3": "cross-rank skew",
    "H1": "structural idle",
    "H2": "budget idle",
    "floor": "launch floor",
    "unresolved": "unresolved",
    "carried": "carried",
    "work": "work besides compute",
    "compute": "compute",
}

_WHERE = {
    "hw_queue": "in hardware queues",
    "stream": "on shared streams",
    "communicator": "on a communicator",
}


@dataclass(frozen=True, slots=True)
class Model:
    """Rows by what they are about; all empty for a workload without a rule pack.

    `gaps`: one row a rank with a bound, that of the run first. `mechanisms`: classes of the run's
    rank with their ceilings, recoverable ones first: in the shown step, or the mean where steps are
    uneven. `rungs`: the ladder, mean over steps, by what it removes. `factor`: how much
    communication beside it slows compute.
    """

    checks: list[Row]
    gaps: list[Row]
    mechanisms: list[Row]
    rungs: dict[str, Row]
    changes: list[Row]
    factor: float | None

    @property
    def has_bound(self) -> bool:
        """Whether a lower bound stands."""
        return bool(self.gaps)

    @property
    def is_provisional(self) -> bool:
        """Whether the verdict on what lies above the bound is refused."""
        return self.has_bound and self.run["is_provisional"]

    @property
    def has_classes(self) -> bool:
        """Whether the classes of the gap may be relied on."""
        return self.has_bound and not self.is_provisional

    @property
    def is_clean(self) -> bool:
        """Whether little is left to get back."""
        return self.has_classes and not self.is_uneven and self.run["gap_share"] < CLEAN

    @property
    def is_uneven(self) -> bool:
        """Whether some steps are so much longer that the median step does not stand for them."""
        return self.has_bound and self.run["long_count"] > 0

    @property
    def run(self) -> Row:
        """The rank that stands for the run."""
        return self.gaps[0]

    @property
    def top(self) -> Row | None:
        """The largest recoverable mechanism of the run's rank."""
        found = [row for row in self.mechanisms if row["gap_class"] in model_queries.RECOVERABLE]
        return found[0] if found and found[0]["total_ns"] else None

    @property
    def recoverable_ns(self) -> int:
        """What of the shown step of the run's rank is known to be recoverable."""
        return sum(self.run[f"{name.lower()}_ns"] or 0 for name in model_queries.RECOVERABLE)

    @property
    def sees_skew(self) -> bool:
        """Whether all waits for other ranks show: those for ranks without a capture do not."""
        return not any(row["check_name"] == "collectives_matched" for row in self.checks)

    @property
    def shown_step_id(self) -> int | None:
        """The step that stands for all ranks; None without a bound."""
        return self.run["step_id"] if self.has_bound else None

    def why_no(self, withheld: str) -> str:
        """The checks that withhold something, worst first, as a part of a sentence."""
        said = [row["detail"] for row in self.checks if row["withholds"] == withheld]
        return "; ".join(dict.fromkeys(said))

    def amount(self, measure: str) -> Quantity:
        """A measure of the run's shown step, with its range."""
        return amount(self.run, measure)


def amount(row: Row, measure: str) -> Quantity:
    """A measure of one rank's shown step, with its range."""
    name = measure.lower()
    return Quantity(
        row[f"{name}_ns"],
        "ns",
        row["step_count"],
        row[f"{name}_min_ns"],
        row[f"{name}_max_ns"],
    )


def ranged(row: Row, name: str) -> Quantity:
    """`name` of a row of the ladder, the changes or the bounds, with its range."""
    return Quantity(
        row[f"{name}_ns"], "ns", row["step_count"], row[f"{name}_min_ns"], row[f"{name}_max_ns"]
    )


def load(rows: Callable[[str], list[Row]]) -> Model:
    """Read it through `rows`."""
    gaps = rows(model_queries.gaps())
    found: list[Row] = []
    rungs: list[Row] = []
    changes: list[Row] = []
    if gaps:
        found = rows(mechanisms_query(gaps[0]))
        rungs = rows(model_queries.LADDER)
        changes = rows(model_queries.CHANGES)
    factors = [row["factor"] for row in rows(model_queries.STRETCH)]
    return Model(
        checks=rows(model_queries.CHECKS),
        gaps=gaps,
        mechanisms=found,
        rungs={row["removed"]: row for row in rungs},
        changes=changes,
        factor=factors[0] if factors else None,
    )


def mechanisms_query(run: Row) -> str:
    """Classes of the rank that stands for the run: where steps are uneven, by their mean."""
    return model_queries.mechanisms(run["rank"], run["step_id"], of_mean=run["long_count"] > 0)


def mechanism(gap_class: str, sub_cause: str | None) -> str:
    """`R2 queue serialization in hardware queues`."""
    where = _WHERE.get(sub_cause or "", "")
    return f"{gap_class} {NAMES[gap_class]} {where}".rstrip()


def no_bound(known: Model) -> Statement:
    """Why there is no bound."""
    why = known.why_no("bound") or "no step was analysed"
    return Statement(
        f"No lower bound (T_lb): {why}. What follows is the three-way split over recorded "
        "launches and waits, which cannot see queue serialization.",
        "no-bound",
    )
