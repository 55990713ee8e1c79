"""From a SPEC to the directory that `gapscope trace` would have written, and its truth."""

from __future__ import annotations

import functools
import os
import shutil
from concurrent.futures import as_completed
from pathlib import Path

from gapscope.ingest.pipeline import Progress
from gapscope.ingest.workers import Crew
from gapscope.ingest.workplace import WorkPlace, check_target
from gapscope.simulate.clock import RankClock, Reading
from gapscope.simulate.run import FEW_RANKS, played
from gapscope.simulate.spec import Spec, parse, text_of
from gapscope.simulate.times import Times
from gapscope.simulate.traced import TracedProcesses
from gapscope.simulate.truth import setting

# Ranks that a worker writes before it says so.
_AT_ONCE = 8


def write_trace(
    source: Path,
    out: Path,
    *,
    force: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Simulate the SPEC in `source` and write its trace at `out`, whole or not at all.

    Beside the directories of the processes lie the SPEC and the tables of its truth, as Parquet.
    Returns the number of ranks.
    """
    import pyarrow.parquet as pq

    check_target(out, force=force)
    text = text_of(source)
    spec = parse(text)
    place = WorkPlace(out)
    try:
        spool = place.path / ".times"
        told = played(spec, spool, progress)
        (place.path / "spec.toml").write_text(text, encoding="utf-8")
        for name, table in told.truth.items():
            pq.write_table(table, place.path / f"{name}.parquet", compression="zstd")
        ranks = list(range(spec.ranks))
        jobs = [
            (
                [
                    (rank, told.clocks[rank], told.readings[rank])
                    for rank in ranks[at : at + _AT_ONCE]
                ],
                *(spec, told.times, told.end_ns, place.path),
            )
            for at in range(0, len(ranks), _AT_ONCE)
        ]
        told.truth.clear()
        crew = Crew(workers or (1 if spec.ranks <= FEW_RANKS else os.cpu_count() or 1))
        if crew.is_alone(len(jobs)):
            for number, job in enumerate(jobs):
                _write_ranks(*job)
                _tell(progress, number + 1, len(jobs))
        else:
            with crew.pool(len(jobs)) as pool:
                running = [pool.submit(_write_ranks, *job) for job in jobs]
                for number, done in enumerate(as_completed(running)):
                    done.result()
                    _tell(progress, number + 1, len(jobs))
        shutil.rmtree(spool)
        place.publish(out, force=force)
    except BaseException:
        place.discard()
        raise
    return spec.ranks


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress("writing", done, total)


@functools.lru_cache(maxsize=1)
def _processes(spec: Spec, end_ns: float) -> TracedProcesses:
    return TracedProcesses(spec, setting(spec, spec.injection), end_ns)


def _write_ranks(
    ranks: list[tuple[int, RankClock, list[Reading]]],
    spec: Spec,
    times: Times,
    end_ns: float,
    out: Path,
) -> None:
    """Some processes; runs in a worker."""
    processes = _processes(spec, end_ns)
    for rank, clock, told in ranks:
        processes.write(rank, out, times.of(rank), clock, told)
