"""The report model. Renderers format it; whatever they show is a field here.

Times are integer nanoseconds, shares are fractions of 1, rates carry their unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# History: 1 = first layout.
REPORT_VERSION = 1


class Status(Enum):
    """How well a claim is supported."""

    MEASURED = "measured"
    SOURCE_VERIFIED = "source-verified"
    INFERRED = "inferred"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Quantity:
    """The value of the shown step, or a mean, with the smallest and largest one over `n` steps."""

    value: float | None
    unit: str
    n: int | None = None
    low: float | None = None
    high: float | None = None


Cell = str | int | float | bool | Quantity | None


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence; `claim` is the row of section 6 that says how it is known."""

    text: str
    claim: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of section 6."""

    id: str
    text: str
    status: Status
    evidence: str
    falsify: str


@dataclass(frozen=True, slots=True)
class Column:
    """`kind` is text, code, id, flag, or a unit of `gapscope.units`."""

    key: str
    label: str
    kind: str = "text"
    help: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows exactly as `query` returns them. `row_ids` are link targets, one a row or none."""

    id: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    query: str
    claim: str
    row_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a waterfall: it stands on `base_ns`."""

    label: str
    time_class: str
    base_ns: int
    value_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Waterfall:
    """From the observed step down to its compute; bars close exactly.

    A bar that stands on 0 is a length that is reached there: observed, T_lb, compute.
    """

    id: str
    title: str
    caption: str
    bars: tuple[Bar, ...]
    query: str
    claim: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A box of a Gantt row; several ops share one box where they are too small to see.

    `node`: the node of the dependency model to which it belongs. `label`: text to draw in it, where
    there is room.
    """

    row: int
    start_ns: int
    end_ns: int
    time_class: str
    name: str
    count: int
    busy_ns: int
    node: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Gantt:
    """One step of one rank; times count from the start of its window."""

    id: str
    title: str
    caption: str
    rank: int
    step_id: int
    window_ns: int
    rows: tuple[str, ...]
    marks: tuple[Mark, ...]
    query: str
    claim: str
    notes: tuple[str, ...] = ()
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A share of the step for each rank and step; `values[i][j]` belongs to `ranks[i]`, `steps[j]`.

    Where ranks or steps are binned these name the first of each bin, and the labels all of it.
    `measure` says what is drawn: maps of one run that stand beside each other differ in it.
    """

    id: str
    title: str
    caption: str
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    low: float
    high: float
    query: str
    claim: str
    notes: tuple[str, ...] = ()
    measure: str = ""
    rank_labels: tuple[str, ...] = ()
    step_labels: tuple[str, ...] = ()


Figure = Waterfall | Gantt | HeatMap


@dataclass(frozen=True, slots=True)
class Opportunity:
    """One mechanism that holds compute back.

    `ceiling` is the speed-up if it vanished entirely; None where a percentage would mislead.
    `modelled` is the step that a replay without it takes; None where nothing was replayed. `bound`
    says which way the time may be wrong, `verify` what a capture after the change must show.
    `labels` stand beside its figures: `perturbed`.
    """

    id: str
    title: str
    mechanism: Statement
    time: Quantity
    step_share: float
    ceiling: Quantity | None
    evidence: tuple[Statement, ...]
    see: tuple[str, ...]
    what_to_try: tuple[str, ...]
    not_when: str
    query: str
    claim: str
    bound: Statement
    confidence: Statement
    verify: str
    modelled: Quantity | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the step that the verdict names."""

    label: str
    time_class: str
    time: Quantity


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first screen. `is_withheld`: the capture does not support one and `headline` says why.

    `rank`, `window` and the quantities are those of the rank that stands for the run: the one with
    the longest step where there is a bound, else the one whose compute is absent longest. `t_lb` is
    None without a bound; `is_provisional`: with a bound, but without a verdict on what lies above
    it. `parts` is what to show beside the step, `labels` what every figure is: `perturbed`.
    """

    is_withheld: bool
    headline: Statement
    statements: tuple[Statement, ...]
    window: str
    rank: int | None
    step_id: int | None
    step: Quantity | None
    compute: Quantity | None
    launch_starved: Quantity | None
    blocking: Quantity | None
    stalled: Quantity | None
    tail: Quantity | None
    blocking_bound: str
    t_lb: Quantity | None = None
    gap: Quantity | None = None
    gap_share: float | None = None
    is_provisional: bool = False
    parts: tuple[Part, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One of the six. `missing` says in a user's words what this version cannot fill."""

    id: str
    title: str
    statements: tuple[Statement, ...]
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    missing: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Header:
    """What was captured and with what; `facts` are label and text."""

    run_name: str
    gapscope_version: str
    sql_version: str
    schema_version: int
    rank_count: int
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The whole report."""

    header: Header
    verdict: Verdict
    sections: tuple[Section, ...]
    opportunities: tuple[Opportunity, ...]
    claims: tuple[Claim, ...]
    quality_counts: tuple[tuple[str, int], ...]

    def section(self, name: str) -> Section:
        """The section with that id."""
        for section in self.sections:
            if section.id == name:
                return section
        raise KeyError(name)
