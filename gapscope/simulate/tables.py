"""The truth as tables of the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.schema.catalog import quoted
from gapscope.simulate.clock import RankClock
from gapscope.simulate.pieces import Walk
from gapscope.simulate.spec import Injection, Spec
from gapscope.simulate.truth import Setting, Step, Truth, expected_class

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Ints = npt.NDArray[np.int64]

TRUTH, PIECE, CLOCK = "simulated_truth", "simulated_piece", "simulated_clock"

_DOCS = {
    TRUTH: "One row a rank, step and injection (one without any): what it really cost.",
    PIECE: """Why compute was absent, for gaps above 100 us: what held each start, walked back.
        `transfer` says nothing about whether the collective could have started earlier.""",
    CLOCK: """What the clock of each rank really is: local = true * (1 + drift_ppb / 1e9) + offset,
        and from jump_at_ns on jump_ns + (true - jump_at_ns) * bend_ppb / 1e9 more.""",
}

# Column, type, meaning.
_COLUMNS = {
    TRUTH: """
        rank             BIGINT  Global rank.
        step_id          BIGINT  Step, as in v1.step.
        injection        BIGINT  Its number in the SPEC, from 0; NULL without any.
        injected_class   VARCHAR R1, R2, R3, H1, H2 or none.
        place            VARCHAR What was done: the place of the injection.
        is_injected_here BOOLEAN It happens on this rank and in this step.
        expected_class   VARCHAR What it shows as here: R3 where another rank is late, H2 where it computes longer.
        injected_ns      BIGINT  observed_ns less the length of the step without this injection.
        observed_ns      BIGINT  Length of the step in the device projection.
        clean_step_ns    BIGINT  The same with nothing injected and the same random numbers.
        compute_ns       BIGINT  Time of compute kernels in it.
        clean_compute_ns BIGINT  The same with nothing injected.
        ideal_step_ns    BIGINT  Same lengths of all ops, but all ranks start at once with all issued, no queue is shared, no wait is coarser than data and buffers need, starting costs nothing.
    """,  # noqa: E501 -- one column a line
    PIECE: """
        rank             BIGINT  Global rank.
        step_id          BIGINT  Step, as in v1.step.
        start_ns         BIGINT  Start, on the clock of the rank.
        end_ns           BIGINT  End.
        wait_class       VARCHAR R1 not issued, R2 held by queue or stream, R3 last arrival, transfer, work, floor, before (the step before).
        place            VARCHAR hw_queue or stream, for R2.
        op_id            BIGINT  Op that waited (R1, R2, floor) or ran (transfer, R3, work).
        node             VARCHAR Its node: AG, AGOUT, FWD, RSIN, RS, ... and its module.
    """,  # noqa: E501 -- one column a line
    CLOCK: """
        rank             BIGINT  Global rank.
        offset_ns        BIGINT  Added to true time; a second more is added on all ranks alike.
        drift_ppb        DOUBLE  Drift in ns a second.
        jump_ns          BIGINT  Jump ahead, 0 without one.
        bend_ppb         DOUBLE  Further drift from the jump on.
        jump_at_ns       DOUBLE  True time of it.
    """,
}


class Witness:
    """Sees each step once, and remembers what the tables say of it."""

    def __init__(self, spec: Spec, common: Setting, clocks: list[RankClock]) -> None:
        ops = common.program.ops
        self._spec = spec
        self._clocks = clocks
        self._ops = ops
        self._walk = Walk(common.program, common.order)
        self._chosen = [number for number, op in enumerate(ops) if op.work == "compute"]
        self._compute: list[Ints] = []
        self._pieces: list[pa.Table] = []

    def take(self, step: Step) -> None:
        """Look at a step."""
        import numpy as np

        start, end = step.timing.start[self._chosen], step.timing.end[self._chosen]
        # Compute ops never overlap.
        self._compute.append(
            np.array(
                [
                    (clock.local(end[:, rank]) - clock.local(start[:, rank])).sum()
                    for rank, clock in enumerate(self._clocks)
                ]
            )
        )
        self._pieces += [
            self._pieces_of(step, rank, clock) for rank, clock in enumerate(self._clocks)
        ]

    def _pieces_of(self, step: Step, rank: int, clock: RankClock) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        found = self._walk.step(step.timing, rank, float(step.window_start[rank]))
        before = step.number * len(self._ops)
        return pa.table(
            {
                "rank": pa.array([rank] * len(found), pa.int64()),
                "step_id": pa.array([step.number] * len(found), pa.int64()),
                "start_ns": clock.local(np.array([piece.start for piece in found])),
                "end_ns": clock.local(np.array([piece.end for piece in found])),
                "wait_class": [piece.wait_class for piece in found],
                "place": pa.array([piece.place or None for piece in found], pa.string()),
                "op_id": pa.array([piece.op + before for piece in found], pa.int64()),
                "node": pa.array([self._ops[piece.op].node for piece in found], pa.string()),
            },
            schema=_schema(PIECE),
        )

    def tables(self, truth: Truth) -> dict[str, pa.Table]:
        """All tables, once the whole training has been seen."""
        import pyarrow as pa

        pieces = pa.concat_tables(self._pieces)
        order = [("rank", "ascending"), ("step_id", "ascending"), ("start_ns", "ascending")]
        return {
            TRUTH: self._truth(truth),
            PIECE: pieces.sort_by(order),
            CLOCK: clock_table(self._clocks),
        }

    def _truth(self, truth: Truth) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        spec, clocks = self._spec, self._clocks
        training = truth.observed
        rates = np.array([clock.rate for clock in clocks])
        start = np.stack(
            [clock.local(training.window_start[:, r]) for r, clock in enumerate(clocks)], 1
        )
        end = np.stack(
            [clock.local(training.window_end[:, r]) for r, clock in enumerate(clocks)], 1
        )
        start[0] = [clock.local(float(training.opened[0][r])) for r, clock in enumerate(clocks)]
        observed = end - start
        numbered: list[tuple[int | None, Injection | None]] = list(enumerate(spec.injection))
        places = [(rank, step) for rank in range(spec.ranks) for step in range(spec.steps)]
        parts = []
        for number, one in numbered or [(None, None)]:
            without = truth.clean if number is None else truth.without[number]
            lengths = {
                "injected_ns": observed - np.rint(without * rates),
                "observed_ns": observed,
                "clean_step_ns": np.rint(truth.clean * rates),
                "compute_ns": np.array(self._compute),
                "clean_compute_ns": np.rint(truth.clean_compute * rates),
                "ideal_step_ns": np.rint(training.ideal * rates),
            }
            columns: dict[str, Any] = {
                "rank": [rank for rank, _ in places],
                "step_id": [step for _, step in places],
                "injection": [number] * len(places),
                "injected_class": ["none" if one is None else one.gap_class] * len(places),
                "place": [None if one is None else one.place] * len(places),
                "is_injected_here": [one is not None and one.happens(*place) for place in places],
                "expected_class": [
                    None if one is None else expected_class(one, *place, spec.ranks)
                    for place in places
                ],
                # Arrays are by step and rank.
                **{name: values.T.ravel().astype(np.int64) for name, values in lengths.items()},
            }
            parts.append(pa.table(columns, schema=_schema(TRUTH)))
        return pa.concat_tables(parts)


def clock_table(clocks: list[RankClock]) -> pa.Table:
    """Rows of `simulated_clock`."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "rank": list(range(len(clocks))),
        "offset_ns": [clock.offset_ns for clock in clocks],
        "drift_ppb": [clock.drift_ppb for clock in clocks],
        "jump_ns": [clock.jump_ns for clock in clocks],
        "bend_ppb": [clock.bend_ppb for clock in clocks],
        "jump_at_ns": [clock.jump_at_ns for clock in clocks],
    }
    return pa.table(columns, schema=_schema(CLOCK))


def install(database: Path, tables: dict[str, pa.Table]) -> None:
    """Put the tables into `run.duckdb`, where any shell shows them."""
    import duckdb

    with duckdb.connect(str(database)) as con:
        for name, table in tables.items():
            con.register("rows", table)
            con.execute(f"CREATE TABLE v1.{name} AS FROM rows")
            con.unregister("rows")
            con.execute(f"COMMENT ON TABLE v1.{name} IS {quoted(' '.join(_DOCS[name].split()))}")
            for column, _, meaning in _described(name):
                con.execute(f"COMMENT ON COLUMN v1.{name}.{column} IS {quoted(meaning)}")
            con.execute(f"CREATE VIEW main.{name} AS FROM v1.{name}")


def _described(name: str) -> list[list[str]]:
    return [line.split(None, 2) for line in _COLUMNS[name].strip().splitlines()]


def _schema(name: str) -> pa.Schema:
    import pyarrow as pa

    types = {
        "BIGINT": pa.int64(),
        "VARCHAR": pa.string(),
        "BOOLEAN": pa.bool_(),
        "DOUBLE": pa.float64(),
    }
    return pa.schema([(column, types[kind]) for column, kind, _ in _described(name)])
