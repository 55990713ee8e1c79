"""Reading and deriving on the workers of a Dask cluster instead of processes of this machine."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gapscope.errors import GapscopeError
from gapscope.ingest.discover import Found
from gapscope.ingest.resume import fingerprint
from gapscope.ingest.workplace import LOCK

_T = TypeVar("_T")

_CONNECT_S = 10
# Batch systems may take long to start workers; a scheduler without any still answers.
_FIRST_WORKER_S = 60


@contextmanager
def cluster_executor(address: str, first_worker_s: float = _FIRST_WORKER_S) -> Iterator[Executor]:
    """An executor whose tasks run on the workers of the scheduler at `address`.

    A task whose worker is lost is run again by another; only one result is ever delivered.
    """
    try:
        import distributed
    except ImportError as error:
        raise GapscopeError(
            "no-dask", "`--cluster` needs Dask", "`pip install 'gapscope[cluster]'`"
        ) from error

    # It narrates on stderr what is said here in one line, or is mended by itself.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise GapscopeError(
            "cluster-unreachable",
            f"no Dask scheduler answers at `{address}` ({type(error).__name__})",
            "give the address that the scheduler prints, for example `--cluster tcp://host:8786`",
        ) from error
    try:
        try:
            client.wait_for_workers(1, timeout=first_worker_s)
        except (TimeoutError, distributed.TimeoutError) as error:
            raise GapscopeError(
                "cluster-empty",
                f"the scheduler at `{address}` has no workers after {first_worker_s:g} s",
                f"start some: `dask worker {address} --nthreads 1`",
            ) from error
        yield _Checked(client.get_executor(pure=False))
    finally:
        client.close(timeout=_CONNECT_S)


class _Checked(Executor):
    """Every task looks first whether its worker is fit for it: workers come and go."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner

    def submit(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        outcome: Future[_T] = Future()
        try:
            inner = self._inner.submit(_on_worker, fingerprint(), function, *args, **kwargs)
        except Exception as error:  # the class differs between versions of Dask
            raise _lost() from error
        inner.add_done_callback(functools.partial(_hand_on, outcome))
        return outcome


def _hand_on(outcome: Future[_T], inner: Future[_T]) -> None:
    """What came of a task; what Dask itself has to say becomes an error with a way out."""
    from distributed import KilledWorker

    # A failed ingest has withdrawn what it waited for.
    if not outcome.set_running_or_notify_cancel():
        return
    if inner.cancelled():
        # Nobody here has: Dask gives up all tasks when it does not find the scheduler again.
        outcome.set_exception(_lost())
        return
    error = inner.exception()
    if error is None:
        outcome.set_result(inner.result())
    elif isinstance(error, KilledWorker):
        outcome.set_exception(
            GapscopeError(
                "cluster-lost-workers",
                "workers died one after another at the same capture or rank (out of memory?)",
                "workers with more memory, or `--memory-limit 2GB`",
            )
        )
    elif isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("gapscope"):
        outcome.set_exception(
            GapscopeError(
                "cluster-version",
                "a worker has no gapscope",
                "install the same version everywhere",
            )
        )
    else:
        outcome.set_exception(error)


def _lost() -> GapscopeError:
    return GapscopeError(
        "cluster-lost",
        "the scheduler went away, and did not answer again",
        "start it and its workers",
    )


def _on_worker(expected: str, function: Callable[..., _T], *args: Any) -> _T:
    try:
        own = fingerprint()
    except GapscopeError:
        own = None
    if own != expected:
        raise GapscopeError(
            "cluster-version",
            f"{_worker_name()} runs another gapscope, DuckDB or pyarrow than this machine",
            "install the same versions everywhere",
        )
    for argument in args:
        if isinstance(argument, Path) and not _in_unfinished_run(argument):
            raise GapscopeError(
                "cluster-path",
                f"{_worker_name()} does not see the directory where the run is written",
                "write it to a file system that all workers share: `-o`",
            )
        if isinstance(argument, Found) and not (argument.url or argument.path.exists()):
            raise GapscopeError(
                "cluster-path",
                f"{_worker_name()} does not see `{argument.path}`",
                "keep captures on a file system that all workers share, or name them by URL",
            )
    return function(*args)


def _in_unfinished_run(path: Path) -> bool:
    return any((directory / LOCK).exists() for directory in (path, *path.parents))


def _worker_name() -> str:
    from distributed import get_worker

    return f"the worker at {get_worker().address}"
