"""From a SPEC to a run directory: the same tables, views and files that an ingest makes."""

from __future__ import annotations

import os
from dataclasses import dataclass
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
from gapscope.simulate.clock import RankClock, Reading, clocks, readings
from gapscope.simulate.rows import Rows, device_uuid, host_name, process_id
from gapscope.simulate.spec import Spec, parse, text_of
from gapscope.simulate.times import Times
from gapscope.simulate.truth import Setting, Step, setting, simulate

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "simulated"

# Starting worker processes takes longer than deriving this many small ranks in one.
FEW_RANKS = 8


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
        told = played(spec, work / "spill", progress)
        truth.update(told.truth)
        # A run says by itself what it is a simulation of.
        (work / "spec.toml").write_text(text, encoding="utf-8")
        staged = _stage(spec, source, told, work / "staging", progress)
        plan = [
            Placement(rank, one.partitions[0], is_primary=True, rank=rank, rank_source=FORMAT)
            for rank, one in enumerate(staged)
        ]
        return Gathered(staged, plan, [])

    return make_run(
        out,
        gather,
        force=force,
        crew=Crew(workers or (1 if spec.ranks <= FEW_RANKS else os.cpu_count() or 1)),
        memory_limit=memory_limit,
        progress=progress,
        add_tables=lambda database: tables.install(database, truth),
    )


@dataclass(frozen=True)
class Played:
    """A training that was simulated: its times in files, its truth in tables."""

    common: Setting
    times: Times
    clocks: list[RankClock]
    readings: list[list[Reading]]
    # When its last op ended, in true ns.
    end_ns: float
    truth: dict[str, pa.Table]


def played(spec: Spec, directory: Path, progress: Progress | None) -> Played:
    """Simulate the training; `directory` gets its times."""
    common = setting(spec, spec.injection)
    own = clocks(spec)
    directory.mkdir(exist_ok=True)
    times = Times(directory, spec.steps, len(common.program.ops), len(common.program.items))
    witness = tables.Witness(spec, common, own)
    total = spec.steps * (
        1 + bool(spec.injection) + len(spec.injection) * (len(spec.injection) > 1)
    )
    done = 0

    def on_step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress("simulating", done, total)

    def take(step: Step) -> None:
        times.write(step, own)
        witness.take(step)

    truth = simulate(spec, on_step, take)
    end_ns = float(truth.observed.window_end.max())
    told = readings(spec, own, (0.0, end_ns))
    return Played(common, times, own, told, end_ns, witness.tables(truth))


def _stage(
    spec: Spec, source: Path, told: Played, work: Path, progress: Progress | None
) -> list[Staged]:
    """Canonical rows of every rank, as a reader would leave them."""
    rows = Rows(told.common, spec.ranks)
    size, hashed = digest(source)
    found = Found(source, FORMAT, source.name)
    staged = []
    for rank, clock in enumerate(told.clocks):
        directory = work / str(rank)
        seen = told.times.of(rank)
        counts = rows.write(rank, directory, seen, clock, told.readings[rank])
        process = ProcessInfo(
            process_id(rank),
            hostname=host_name(spec, rank),
            rank=rank,
            rank_source=FORMAT,
            world_size=spec.ranks,
            clock_base_ns=clock.base_ns,
        )
        device = DeviceInfo(0, process_id(rank), device_uuid(rank), "simulated")
        info = SourceInfo(FORMAT, [process], [device])
        partition = Partition(process_id(rank), 0, counts["gpu_op"], None, None)
        staged.append(Staged(found, directory, info, [partition], counts, size, hashed))
        if progress is not None:
            progress("writing", rank + 1, spec.ranks)
    return staged
