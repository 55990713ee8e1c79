"""The comparison as a document. Renderers format it; whatever they show is a field here.

A is the base, B the candidate, and a difference is B less A. Times are nanoseconds a unit of work;
means and medians of few steps may have a fraction.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapscope.compare.intervals import Interval
from gapscope.report.document import Claim, Statement

# History: 1 = first layout.
COMPARE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the runs have in common or not. `verdict`: as in `pair.comparability`."""

    area: str
    item: str
    a: str | None
    b: str | None
    verdict: str
    is_confounding: bool
    detail: str | None


@dataclass(frozen=True, slots=True)
class StepLine:
    """The step of the run (`rank` is None: the longest over ranks) or of one rank, in both runs."""

    rank: int | None
    a_count: int
    b_count: int
    a_median_ns: float
    b_median_ns: float
    median_delta_ns: float
    median_delta_share: float
    share_low: float
    share_high: float
    median_interval: Interval
    mean_delta_ns: float
    mean_interval: Interval
    a_low_ns: float
    a_high_ns: float
    b_low_ns: float
    b_high_ns: float


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a ledger. `median_delta_ns` is None where only means were taken.

    `a_ns` or `b_ns` is None where that run never has the part, or does not know it; then the
    difference counts it as 0, or is None too.
    """

    label: str
    a_ns: float | None
    b_ns: float | None
    delta_ns: float | None
    interval: Interval | None
    median_delta_ns: float | None = None
    compute_delta_ns: float | None = None
    wait_delta_ns: float | None = None
    op_class: str = ""
    time_class: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Parts that sum to the step of one rank, or of the run: means over the steps that count.

    `residual_ns` is what the parts leave of the difference of means, `median_residual_ns` of that
    of medians.
    """

    id: str
    title: str
    caption: str
    rank: int | None
    lines: tuple[Line, ...]
    total: Line
    residual_ns: float
    median_residual_ns: float | None
    query: str
    claim: str
    is_provisional: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeLine:
    """Launches and work volume of a device op a unit of work."""

    name: str
    time_class: str
    op_class: str
    a_launches: float | None
    b_launches: float | None
    a_ns: float | None
    b_ns: float | None
    delta_ns: float


@dataclass(frozen=True, slots=True)
class Volumes:
    """Device ops by work volume, in which overlap counts twice: no part of a ledger."""

    caption: str
    lines: tuple[VolumeLine, ...]
    left_out: int
    query: str
    claim: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole comparison. Without `is_comparable` everything below the checks is empty.

    `is_confounded`: tool, GPU or the like differ, so that no difference is the program's alone.
    `unit` is what times are given for: a step, or a launch of a kernel.
    """

    a: str
    b: str
    gapscope_version: str
    is_comparable: bool
    is_confounded: bool
    unit: str
    shown_rank: int | None
    headline: Statement
    statements: tuple[Statement, ...]
    checks: tuple[Check, ...]
    steps: tuple[StepLine, ...]
    ledgers: tuple[Ledger, ...]
    volumes: Volumes | None
    claims: tuple[Claim, ...]

    @property
    def run(self) -> StepLine:
        """The step of the run, where a caller knows that there is one."""
        return next(line for line in self.steps if line.rank is None)
