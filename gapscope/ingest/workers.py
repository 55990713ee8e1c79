"""Processes that read and derive in parallel, and that never outlive the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

# How long a worker may take to clean up after itself once it is told to stop.
_GRACE_S = 3.0
# What a worker of a cluster is given at once: it may be one of hundreds, and may be lost.
_PIECES_OF_A_TASK = 4


@dataclass(frozen=True)
class Crew:
    """Who reads and derives: this process, others of this machine, or the workers of a cluster."""

    workers: int
    cluster: Executor | None = None

    def is_alone(self, jobs: int) -> bool:
        """Whether this process does the work itself."""
        return self.cluster is None and min(self.workers, jobs) == 1

    def threads(self, jobs: int) -> int:
        """How many threads a job may have; a worker of a cluster is told so by who starts it."""
        if self.cluster is not None:
            return 1
        return max(1, (os.cpu_count() or 1) // min(self.workers, jobs))

    def most(self, pieces: int) -> int:
        """How many pieces a job may have, so that there is work for everybody."""
        if self.cluster is not None:
            return _PIECES_OF_A_TASK
        return -(-pieces // min(self.workers, pieces))

    def pool(self, jobs: int) -> AbstractContextManager[Executor]:
        """Where to submit that many jobs."""
        if self.cluster is not None:
            return nullcontext(self.cluster)
        return worker_pool(min(self.workers, jobs))


@contextmanager
def crew_of(workers: int, cluster: str | None) -> Iterator[Crew]:
    """Processes of this machine, or the workers of the Dask scheduler at `cluster`."""
    if cluster is None:
        yield Crew(workers)
        return
    from gapscope.ingest.cluster import cluster_executor

    with cluster_executor(cluster) as executor:
        yield Crew(workers, executor)


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are stopped, not waited for, when the block is left by an error."""
    # Arrow and DuckDB have threads by now; a forked child could inherit a held lock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start)
    try:
        yield pool
    except BaseException:
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(_GRACE_S)
            if process.is_alive():
                process.kill()
        pool.shutdown(wait=True)
        raise
    pool.shutdown(wait=True)


def _start() -> None:
    # Ctrl-C reaches the whole process group: the parent alone decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    # Unwinds, so that temporary files of readers are removed.
    raise SystemExit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
