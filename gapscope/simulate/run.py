"""From a SPEC to a run directory: the same tables, views and files that an ingest makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gapscope.ingest.base import DeviceInfo, ProcessInfo, SourceInfo
from gapscope.ingest.discover import Found
from gapscope.ingest.pipeline import Gathered, IngestResult, Progress, make_run
from gapscope.ingest.ranks import Placement
from gapscope.ingest.stage import Partition, Staged, digest
from gapscope.ingest.workers import Crew
from gapscope.ingest.workplace import check_target
from gapscope.simulate import tables
from gapscope.simulate.clock import RankClock, clocks
from gapscope.simulate.rows import Rows
from gapscope.simulate.spec import Spec, parse, text_of
from gapscope.simulate.truth import Truth, simulate

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "simulated"

# Starting worker processes takes longer than deriving this many small ranks in one.
_FEW_RANKS = 8


def write_run(
    source: Path,
    out: Path,
    *,
    force: bool = False,
    workers: int | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Simulate the SPEC in `source` and write the run at `out`, whole or not at all."""
    check_target(out, force=force)
    text = text_of(source)
    spec = parse(text)
    truth: dict[str, pa.Table] = {}

    def gather(work: Path, _crew: Crew) -> Gathered:
        simulated = _simulate(spec, progress)
        own = clocks(spec)
        truth[tables.TRUTH] = tables.truth_table(simulated, spec, own)
        truth[tables.PIECE] = tables.piece_table(simulated, own)
        truth[tables.CLOCK] = tables.clock_table(own)
        # A run says by itself what it is a simulation of.
        (work / "spec.toml").write_text(text, encoding="utf-8")
        staged = _stage(spec, source, simulated, own, work / "staging", progress)
        plan = [
            Placement(rank, one.partitions[0], is_primary=True, rank=rank, rank_source=FORMAT)
            for rank, one in enumerate(staged)
        ]
        return Gathered(staged, plan, [])

    return make_run(
        out,
        gather,
        force=force,
        crew=Crew(workers or (1 if spec.ranks <= _FEW_RANKS else os.cpu_count() or 1)),
        memory_limit=memory_limit,
        progress=progress,
        add_tables=lambda database: tables.install(database, truth),
    )


def _simulate(spec: Spec, progress: Progress | None) -> Truth:
    total = spec.steps * (
        1 + bool(spec.injection) + len(spec.injection) * (len(spec.injection) > 1)
    )
    done = 0

    def on_step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress("simulating", done, total)

    return simulate(spec, on_step)


def _stage(
    spec: Spec,
    source: Path,
    truth: Truth,
    own: list[RankClock],
    work: Path,
    progress: Progress | None,
) -> list[Staged]:
    """Canonical rows of every rank, as a reader would leave them."""
    rows = Rows(truth.observed, spec.ranks)
    size, hashed = digest(source)
    found = Found(source, FORMAT, source.name)
    staged = []
    for rank, clock in enumerate(own):
        directory = work / str(rank)
        counts = rows.write(rank, directory, clock)
        process_id = rows.process_id
        process = ProcessInfo(
            process_id,
            hostname=f"host{rank // spec.clock.ranks_per_host}",
            rank=rank,
            rank_source=FORMAT,
            world_size=spec.ranks,
            clock_base_ns=clock.base_ns,
        )
        device = DeviceInfo(0, process_id, f"simulated-{rank:04d}", "simulated")
        info = SourceInfo(FORMAT, [process], [device])
        partition = Partition(process_id, 0, counts["gpu_op"], None, None)
        staged.append(Staged(found, directory, info, [partition], counts, size, hashed))
        if progress is not None:
            progress("writing", rank + 1, spec.ranks)
    return staged
