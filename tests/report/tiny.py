"""A run made by hand, small enough to know each of its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from gapscope.run import Run
from gapscope.schema.results import RESULT_TABLES
from gapscope.schema.tables import TABLES
from gapscope.schema.views import all_views, install

US = 1_000
STEP = 100 * US
RUN_TABLES = {
    "run_option": "name VARCHAR, value VARCHAR",
    "audit_result": "rank BIGINT, audit_name VARCHAR, failed_count BIGINT",
    "ingest_note": "check_name VARCHAR, status VARCHAR, detail VARCHAR, forbids VARCHAR",
}


class Maker:
    """Canonical tables in memory; `run()` puts the views on top."""

    def __init__(self) -> None:
        self.con = duckdb.connect(config={"threads": 1})
        self.con.execute("CREATE SCHEMA v1")
        for name, columns in RUN_TABLES.items():
            self.con.execute(f"CREATE TABLE v1.{name} ({columns})")
        for table in TABLES.values():
            columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
            self.con.execute(f'CREATE TABLE v1."{table.name}" (rank BIGINT, {columns})')
        for table in RESULT_TABLES.values():
            columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
            self.con.execute(f'CREATE TABLE v1."{table.name}" ({columns})')
        self._names: dict[tuple[int, str], int] = {}

    def add(self, table: str, **values: Any) -> None:
        columns = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" for _ in values)
        self.con.execute(
            f'INSERT INTO v1."{table}" ({columns}) VALUES ({marks})', list(values.values())
        )

    def name(self, rank: int, text: str) -> int:
        key = (rank, text)
        if key not in self._names:
            self._names[key] = len(self._names) + 1
            self.add("name", rank=rank, name_id=self._names[key], name=text)
        return self._names[key]

    def rank(self, rank: int, **values: Any) -> None:
        known = {
            "hostname": f"node{rank // 2}",
            "process_id": 100 + rank,
            "device": rank,
            "device_uuid": f"GPU-{rank}",
            "device_name": "H200",
            "source_format": "nsys",
            "source_path": f"rank{rank}.sqlite",
            "source_bytes": 4096,
            "source_digest": "00ff",
            "world_size": 2,
            "rank_source": "RANK",
        }
        self.add("rank", rank=rank, **{**known, **values})

    def launch(
        self,
        rank: int,
        op: int,
        name: str,
        stream: int,
        host: tuple[int, int],
        device: tuple[int, int],
    ) -> None:
        """One kernel and the call that launched it."""
        common = {"rank": rank, "process_id": 100 + rank, "correlation_id": 10 * op}
        self.add(
            "api_call",
            **common,
            call_id=op,
            tid=1,
            domain="runtime",
            name_id=self.name(rank, "cudaLaunchKernel"),
            start_ns=host[0],
            end_ns=host[1],
        )
        self.add(
            "gpu_op",
            **common,
            op_id=op,
            kind="kernel",
            name_id=self.name(rank, name),
            device=rank,
            context=1,
            stream=stream,
            start_ns=device[0],
            end_ns=device[1],
        )

    def step(
        self,
        rank: int,
        step: int,
        *,
        label: str | None = None,
        late: int = 0,
        gemm: str = "my_gemm",
    ) -> None:
        """100 us: gemm, a collective that the second gemm waits for, gemm.

        In every step but the first: 4 us launch-starved, 20 us blocking, 10 us stalled, 66 us
        compute. `late` shortens the first gemm and moves its launch by as much.
        """
        t = step * STEP
        if label is not None:
            self.add(
                "range",
                rank=rank,
                range_id=step,
                process_id=100 + rank,
                tid=1,
                domain="default",
                kind="push_pop",
                name_id=self.name(rank, label),
                start_ns=t,
                end_ns=t + STEP,
            )
        first = 3 * step
        self.launch(
            rank, first, gemm, 7, (t + late, t + 2 * US + late), (t + 10 * US + late, t + 50 * US)
        )
        self.launch(
            rank,
            first + 1,
            "ncclDevKernel_AllGather_RING_LL",
            20,
            (t + 53 * US // 10, t + 6 * US),
            (t + 50 * US, t + 70 * US),
        )
        wait = {"rank": rank, "process_id": 100 + rank, "device": rank, "context": 1}
        self.add(
            "event_record",
            **wait,
            stream=20,
            event_id=1,
            event_sync_id=step,
            correlation_id=10 * (first + 1) + 1,
        )
        self.add(
            "stream_wait",
            **wait,
            wait_id=step,
            stream=7,
            event_id=1,
            event_sync_id=step,
            correlation_id=10 * (first + 1) + 2,
        )
        self.launch(
            rank,
            first + 2,
            "other_gemm",
            7,
            (t + 7 * US, t + 8 * US),
            (t + 72 * US, t + 98 * US),
        )

    def run(self, path: Path | None = None) -> Run:
        for view in all_views():
            if view.materialise == "no":
                install(self.con, view)
            else:
                self.con.execute(f"CREATE TABLE {view.name} AS {view.query}")
        return Run(path or Path("tiny.run"), self.con, {"schema_version": 1})


def two_ranks(**values: Any) -> Maker:
    """Two ranks of three steps."""
    made = Maker()
    for rank in (0, 1):
        made.rank(rank, **values)
        for step in range(3):
            made.step(rank, step, label=f"step {step}", late=rank * 2 * US)
    return made


# Pieces of a step without compute, us from its start: [start, end), class, cause, last rank, awaited.
_PIECES = (
    (-2, 4, "R1", "no CUDA call", None, None),
    (4, None, "R2", "hw_queue", None, None),
    (50, 60, "H1", None, None, "AG(root)"),
    (60, 70, "R3", "R1", 0, None),
    (70, 72, "floor", "same_stream", None, None),
)
# What the run's step is without these mechanisms, us.
_RUNGS = {
    "": 101,
    "R1": 96,
    "R2": 95,
    "R3": 92,
    "R1+R2": 89,
    "R1+R3": 86,
    "R2+R3": 84,
    "R1+R2+R3": 78,
}


def modelled(*, is_provisional: bool = False, has_ladder: bool = True, **values: Any) -> Maker:
    """`two_ranks` with what a dependency model would have left, made up but closing."""
    made = two_ranks(**values)
    for rank in (0, 1):
        first_op = 10 + 2 * rank
        for step in range(3):
            _gap(made, rank, step, first_op, is_provisional=is_provisional)
            for removed, length in _RUNGS.items() if has_ladder else ():
                made.add(
                    "what_if", rank=rank, step_id=step, removed=removed,
                    step_ns=(length - rank) * US,
                    stretched_ns=(length - rank + 2 * ("R2" in removed)) * US,
                )  # fmt: skip
            if has_ladder:
                made.add(
                    "what_if_change", rank=rank, step_id=step, change="more hardware queues",
                    step_ns=(95 - rank) * US,
                )  # fmt: skip
    made.add(
        "hardware_queue", streams="7 + 20", until="start", instance_count=9, counter_examples=1
    )
    made.add("launch_floor", kind="same_stream", floor_ns=3 * US)
    checks = [("rule_pack", "ok", "tiny: 3 nodes a step", None)]
    if is_provisional:
        checks.append(("replay_error", "fail", "the replay is off by -25.0%", "verdict"))
    elif not has_ladder:
        checks.append(("blocking_sync", "warn", "2 blocking calls inside the step", "ladder"))
    for name, status, detail, withholds in checks:
        made.add("model_check", check_name=name, status=status, detail=detail, withholds=withholds)
    return made


def _gap(made: Maker, rank: int, step: int, first_op: int, *, is_provisional: bool) -> None:
    """One step of one rank: its pieces, their sums, and the schedule of the bound."""
    total = dict.fromkeys(("R1", "R2", "R3", "H1", "floor"), 0)
    for start, end, gap_class, cause, last, awaited in _PIECES:
        begin = 0 if step == 0 and start < 0 else start
        finish = first_op if end is None else end
        total[gap_class] += (finish - begin) * US
        made.add(
            "gap_piece", rank=rank, step_id=step,
            start_ns=step * STEP + begin * US, end_ns=step * STEP + finish * US,
            gap_class=gap_class, sub_cause=cause, culprit_rank=None if last is None else 1 - rank,
            awaited_node=awaited, is_hidden=False, is_provisional=is_provisional,
        )  # fmt: skip
    compute = (66 - 2 * rank) * US
    observed = compute + sum(total.values())
    bound = compute + total["H1"]
    made.add(
        "step_gap", rank=rank, step_id=step, observed_ns=observed, t_lb_ns=bound,
        gap_ns=observed - bound, compute_ns=compute, work_ns=0, r1_ns=total["R1"],
        r2_ns=total["R2"], r3_ns=total["R3"], h1_ns=total["H1"], h2_ns=0,
        floor_ns=total["floor"], unresolved_ns=0, carried_ns=0, is_boundary=False,
        is_provisional=is_provisional,
    )  # fmt: skip
    made.add(
        "step_bound", rank=rank, step_id=step, t_lb_ns=bound, plus_one_ns=bound,
        free_engine_ns=bound, free_link_ns=bound, engine_ns=compute, link_ns=total["H1"],
    )  # fmt: skip
    ends = (0, 10 * US, 40 * US, bound)
    for node, name in enumerate(("AG(root)", "FWD(root)", "BWD(root)")):
        made.add(
            "bound_node", rank=rank, step_id=step, node_id=node, node=name,
            start_ns=ends[node], end_ns=ends[node + 1], slack_ns=0,
            chain_position=node if rank == 0 else None,
            chain_rule=(None, "F4", "FB")[node] if rank == 0 else None,
        )  # fmt: skip
