"""From files to a run directory: discover, read in parallel, number the ranks, derive, rename."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gapscope.errors import GapscopeError
from gapscope.ingest.discover import Found, discover
from gapscope.ingest.ranks import Placement, RankOptions, assign, place
from gapscope.ingest.stage import Staged, stage
from gapscope.ingest.workers import worker_pool
from gapscope.ingest.workplace import WorkPlace, check_target

if TYPE_CHECKING:
    import duckdb

    from gapscope.schema.catalog import IngestNote
    from gapscope.schema.derive import AuditResult

Progress = Callable[[str, int, int], None]
_T = TypeVar("_T")

# Starting worker processes takes longer than reading this much in one.
SMALL_INPUT_BYTES = 8 << 20


@dataclass
class IngestResult:
    """What an ingest made: the run, rows by rank and table, and the quality rows not `ok`."""

    out: Path
    rows: dict[int, dict[str, int]]
    quality: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Gathered:
    """What a run is made of: staged sources, the rank of each, and notes on the whole."""

    staged: list[Staged]
    plan: list[Placement]
    notes: list[IngestNote]


def ingest(
    sources: Sequence[Path],
    out: Path,
    *,
    force: bool = False,
    steps: str | None = None,
    rank_from_name: bool = False,
    ranks: dict[str, int] | None = None,
    declared_fsdp2: dict[str, Any] | None = None,
    declared_parts: dict[str, str] | None = None,
    workers: int | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Ingest files and directories into one run directory at `out`.

    Nothing appears at `out` until everything is written: the work is done in a temporary
    directory beside it and renamed once. Inputs are only read. `steps` is a regular expression
    that a step range must match whole; `declared_fsdp2` and `declared_parts`
    are the tables `[fsdp2]` and `[parts]` of `gapscope.toml`.
    Raises GapscopeError; leaves nothing behind when it does.
    """
    check_target(out, force=force)
    found, ignored = discover(sources)
    _check_steps(steps)
    _check_memory_limit(memory_limit)
    workers = min(workers or _default_workers(found), len(found))

    def gather(work: Path) -> Gathered:
        staged, failures = _stage_all(found, work, workers, progress)
        # A file that could not be read is reported as such, not as one that does not exist.
        unread = {name for one, _ in failures for name in (one.label, one.path.name)}
        declared = {name: rank for name, rank in (ranks or {}).items() if name not in unread}
        plan = assign(staged, RankOptions(rank_from_name, declared))
        return Gathered(staged, plan, [*_notes(failures, ignored), *_copies(staged)])

    return make_run(
        out,
        gather,
        force=force,
        steps=steps,
        declared_fsdp2=declared_fsdp2,
        declared_parts=declared_parts,
        workers=workers,
        memory_limit=memory_limit,
        progress=progress,
    )


def make_run(
    out: Path,
    gather: Callable[[Path], Gathered],
    *,
    force: bool,
    steps: str | None = None,
    declared_fsdp2: dict[str, Any] | None = None,
    declared_parts: dict[str, str] | None = None,
    workers: int,
    memory_limit: str | None = None,
    progress: Progress | None = None,
    add_tables: Callable[[Path], None] | None = None,
) -> IngestResult:
    """A whole run at `out`, or nothing, from rows that `gather` stages below a directory.

    `add_tables` may put tables of its own into `run.duckdb` before the run is published.
    """
    from gapscope.schema.catalog import fill

    workplace = WorkPlace(out)
    work = workplace.path
    try:
        with _readable_failures(out), _defined(work, out.absolute()) as defined:
            gathered = gather(work)
            staged = gathered.staged
            rows = place(gathered.plan, staged, work)
            shutil.rmtree(work / "staging", ignore_errors=True)
            options = {} if steps is None else {"steps": steps}
            if declared_fsdp2:
                options["fsdp2"] = json.dumps(declared_fsdp2, sort_keys=True)
            if declared_parts:
                options["parts"] = json.dumps(declared_parts)
            audits = _derive_all(sorted(rows), work, options, workers, memory_limit, progress)
            defined.result()
            cores = os.cpu_count() or 1
            fill(work, options, audits, gathered.notes, cores, memory_limit)
            if progress is not None:
                progress("model", 0, 1)
            _run_model(work, cores, memory_limit)
            _check_steps_found(work, steps)
            if add_tables is not None:
                add_tables(work / "run.duckdb")
            _write_manifest(work, staged, rows, options)
            quality = _notable_quality(work)
            shutil.rmtree(work / "spill", ignore_errors=True)
            workplace.publish(out, force=force)
    except BaseException:
        workplace.discard()
        raise
    return IngestResult(out, rows, quality)


def _run_model(work: Path, threads: int, memory_limit: str | None) -> None:
    """Fill the model's tables. A model that fails takes nothing else with it: the run says so."""
    import duckdb

    from gapscope.model.analyse import analyse
    from gapscope.model.store import store_failure
    from gapscope.schema.catalog import opened

    try:
        with opened(work, threads, memory_limit) as con:
            analyse(con)
            _audit_results(con)
    except (OSError, duckdb.IOException):
        # A disk that is full is nothing of the model's.
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the captures were read
        with opened(work, threads, memory_limit) as con:
            store_failure(con, error)


def _audit_results(con: duckdb.DuckDBPyConnection) -> None:
    """Audits of views over the model's tables: these were empty when the others were counted."""
    from gapscope.schema.catalog import count
    from gapscope.schema.results import RESULT_TABLES
    from gapscope.schema.views import all_views

    over_results = {f"v1.{name}" for name in RESULT_TABLES}
    for view in all_views():
        if over_results.isdisjoint(view.depends_on):
            continue
        over_results.add(view.name)
        for audit, sql in view.audits.items():
            con.execute(
                "UPDATE v1.audit_result SET failed_count = $1 WHERE audit_name = $2",
                [count(con, sql), audit],
            )


@contextlib.contextmanager
def _defined(work: Path, final_location: Path) -> Iterator[Future[None]]:
    """`run.duckdb` without its rows, made by a thread while the block reads captures."""
    from gapscope.schema.catalog import define

    with ThreadPoolExecutor(1, "define") as pool:
        yield pool.submit(define, work, final_location)


def _notes(failures: list[tuple[Found, GapscopeError]], ignored: list[str]) -> list[IngestNote]:
    """Quality rows of the whole ingest: they belong to no rank."""
    notes: list[IngestNote] = [
        (
            f"source_failed:{found.label}",
            "fail",
            f"{error}; {error.hint}",
            "anything about the rank in that file",
        )
        for found, error in failures
    ]
    if ignored:
        names = ", ".join(ignored[:3]) + (", ..." if len(ignored) > 3 else "")
        notes.append(
            ("ignored_files", "info", f"{len(ignored)} files are no captures: {names}", None)
        )
    return notes


def _copies(staged: list[Staged]) -> list[IngestNote]:
    """Files that are the same to the byte: two ranks never record the same capture."""
    labels: dict[str, set[str]] = {}
    for one in staged:
        labels.setdefault(one.digest, set()).add(one.found.label)
    return [
        (
            f"same_source:{min(same)}",
            "warn",
            f"{' and '.join(sorted(same))} are one file: it stands for {len(same)} ranks",
            "anything that compares these ranks",
        )
        for same in labels.values()
        if len(same) > 1
    ]


def _check_steps_found(work: Path, steps: str | None) -> None:
    if steps is None:
        return
    import duckdb

    with duckdb.connect(str(work / "run.duckdb"), read_only=True) as con:
        found = con.execute("SELECT count(*) FROM v1.step WHERE source = 'user'").fetchone()
    if not found or not found[0]:
        raise GapscopeError(
            "no-such-steps",
            f"`--steps {steps}` matches no range whole on any rank",
            "ingest without it, then list candidates: `gapscope steps --candidates`",
        )


def _default_workers(found: list[Found]) -> int:
    size = sum(one.path.stat().st_size for one in found)
    return 1 if size < SMALL_INPUT_BYTES else os.cpu_count() or 1


def _check_steps(steps: str | None) -> None:
    if steps is None:
        return
    import duckdb

    try:
        duckdb.execute("SELECT regexp_full_match('', ?)", [steps])
    except duckdb.Error as error:
        raise GapscopeError(
            "bad-pattern",
            f"`{steps}` is no regular expression: {str(error).splitlines()[0]}",
            "list candidate ranges: `gapscope steps RUN --candidates`",
        ) from error


def _check_memory_limit(limit: str | None) -> None:
    if limit is None:
        return
    import duckdb

    with duckdb.connect() as con:
        try:
            con.execute("SET memory_limit = ?", [limit])
        except duckdb.Error as error:
            raise GapscopeError(
                "bad-size", f"`{limit}` is no amount of memory", "for example `--memory-limit 4GB`"
            ) from error


@contextlib.contextmanager
def _readable_failures(out: Path) -> Iterator[None]:
    """Turn what the operating system and DuckDB say into one line that names the run."""
    import duckdb

    try:
        yield
    except OSError as error:
        raise GapscopeError(
            "cannot-write",
            f"`{out}` could not be written: {error.strerror or error}",
            "free space, or choose another place with `-o`",
        ) from error
    except BrokenProcessPool as error:
        raise GapscopeError(
            "worker-died",
            f"`{out}` could not be made: a process that read for it was killed (out of memory?)",
            "use less memory: `--workers 1`, or `--memory-limit 2GB`",
        ) from error
    except duckdb.DataError as error:
        # Only the kind is named: the text of the exception may quote the capture.
        raise GapscopeError(
            "impossible-values",
            f"times or sizes of the captures overflow ({type(error).__name__})",
            "capture again, or leave the odd file out",
        ) from error
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        raise GapscopeError(
            "cannot-write",
            f"`{out}` could not be written: {str(error).splitlines()[0]}",
            "free space or memory, or set `--memory-limit`",
        ) from error


def _stage_all(
    found: list[Found], work: Path, workers: int, progress: Progress | None
) -> tuple[list[Staged], list[tuple[Found, GapscopeError]]]:
    """Read every source; one bad source does not lose the others, but all bad is an error."""
    staged: list[Staged] = []
    failures: list[tuple[Found, GapscopeError]] = []

    def keep(source: Found, result: Callable[[], Staged]) -> None:
        try:
            staged.append(result())
        except GapscopeError as error:
            failures.append((source, error))

    targets = [work / "staging" / str(number) for number in range(len(found))]
    if workers == 1:
        for source, target in zip(found, targets, strict=True):
            report = None if progress is None else _byte_progress(progress, source.label)
            keep(source, functools.partial(stage, source, target, report))
    else:
        with worker_pool(workers) as pool:
            jobs = {
                pool.submit(stage, source, target): source
                for source, target in zip(found, targets, strict=True)
            }
            for done, job in enumerate(_completed(jobs), 1):
                keep(jobs[job], job.result)
                if progress is not None:
                    progress(jobs[job].label, done, len(jobs))
    if not staged:
        raise failures[0][1]
    staged.sort(key=lambda one: one.found.label)
    return staged, failures


def _derive_all(
    ranks: list[int],
    work: Path,
    options: dict[str, str],
    workers: int,
    memory_limit: str | None,
    progress: Progress | None,
) -> list[AuditResult]:
    from gapscope.schema.derive import derive_rank

    cores = os.cpu_count() or 1
    audits: list[AuditResult] = []
    workers = min(workers, len(ranks))
    if workers == 1:
        for done, rank in enumerate(ranks, 1):
            audits += derive_rank(work, rank, options, cores, memory_limit)
            if progress is not None:
                progress("views", done, len(ranks))
    else:
        threads = max(1, cores // workers)
        with worker_pool(workers) as pool:
            jobs = {
                pool.submit(derive_rank, work, rank, options, threads, memory_limit): rank
                for rank in ranks
            }
            for done, job in enumerate(_completed(jobs), 1):
                audits += job.result()
                if progress is not None:
                    progress("views", done, len(ranks))
    return sorted(audits)


def _completed(jobs: dict[Future[_T], Any]) -> Iterator[Future[_T]]:
    try:
        yield from as_completed(jobs)
    except BaseException:
        for job in jobs:
            job.cancel()
        raise


def _byte_progress(progress: Progress, label: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(label, done, total)


def _write_manifest(
    work: Path, staged: list[Staged], rows: dict[int, dict[str, int]], options: dict[str, str]
) -> None:
    import duckdb

    from gapscope._version import __version__
    from gapscope.schema.tables import SCHEMA_VERSION
    from gapscope.schema.views import SQL_VERSION

    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = (
        datetime.fromtimestamp(int(epoch), timezone.utc)
        if epoch is not None and epoch.isdigit()
        else datetime.now(timezone.utc)
    )
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "sql_version": SQL_VERSION,
        "gapscope_version": __version__,
        "duckdb_version": duckdb.__version__,
        "created_at": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "options": options,
        "sources": _sources(staged),
        "rows": {str(rank): counts for rank, counts in sorted(rows.items())},
    }
    text = json.dumps(manifest, indent=1)
    (work / "manifest.json").write_text(text + "\n", encoding="utf-8")


def _sources(staged: list[Staged]) -> list[dict[str, Any]]:
    """Each source once: one file may make several ranks."""
    by_path = {one.found.path: one for one in staged}
    return [
        {
            "path": one.found.label,
            "format": one.info.format,
            "bytes": one.bytes,
            "digest": one.digest,
        }
        for one in by_path.values()
    ]


def _notable_quality(work: Path) -> list[dict[str, Any]]:
    import duckdb

    with duckdb.connect(str(work / "run.duckdb"), read_only=True) as con:
        cursor = con.execute(
            "SELECT rank, check_name, status, detail, forbids FROM v1.capture_quality "
            "WHERE status IN ('warn', 'fail') "
            "UNION ALL SELECT NULL, check_name, status, detail, 'bound, classes and what-ifs' "
            "FROM v1.model_check WHERE check_name = 'model_failed' "
            "ORDER BY status, check_name, rank"
        )
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
