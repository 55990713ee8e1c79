"""From files to a run directory: discover, read in parallel, number the ranks, derive, rename."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import astuple, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gapscope.errors import GapscopeError, Stopped
from gapscope.ingest.discover import Found, Ignored, discover, no_captures
from gapscope.ingest.metrics_capture import MetricsCaptures
from gapscope.ingest.notes import notes_of
from gapscope.ingest.ranks import Placement, RankOptions, assign, place
from gapscope.ingest.remote_sources import (
    IDLE_PROCESS,
    NO_CAPTURE,
    discover_remote,
    stage_remote,
)
from gapscope.ingest.resume import (
    derive_once,
    drop_pieces,
    finished,
    link,
    stage_once,
    staging_home,
    strip,
)
from gapscope.ingest.stacks import check_file, place_stacks
from gapscope.ingest.stage import Staged
from gapscope.ingest.workers import Crew, crew_of
from gapscope.ingest.workplace import GOES_ON, WorkPlace, check_target
from gapscope.remote import url_of

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
    taken_over: int = 0  # sources that an ingest that did not end had read
    place: str = ""  # where the run is in the end, as the user would type it

    def __post_init__(self) -> None:
        self.place = self.place or str(self.out)


@dataclass(frozen=True)
class Gathered:
    """What a run is made of: staged sources, the rank of each, and notes on the whole."""

    staged: list[Staged]
    plan: list[Placement]
    notes: list[IngestNote]

    def inputs(self) -> dict[int, list[Any]]:
        """What the rows of each rank are made from: content of sources, and how it is split."""
        made_from: dict[int, list[Any]] = {}
        for part in self.plan:
            one = self.staged[part.source]
            split = [astuple(partition) for partition in one.partitions]
            own = [one.digest, one.found.label, split, astuple(part.partition), part.rank_source]
            made_from.setdefault(part.rank, []).append(own)
        return made_from


def ingest(
    sources: Sequence[Path],
    out: Path,
    *,
    force: bool = False,
    steps: str | None = None,
    rank_from_name: bool = False,
    ranks: dict[str, int] | None = None,
    declared: dict[str, dict[str, Any]] | None = None,
    workers: int | None = None,
    stacks: Path | None = None,
    cluster: str | None = None,
    fresh: bool = False,
    metrics: Sequence[Path] = (),
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Ingest files and directories into one run directory at `out`.

    Nothing appears at `out` until everything is written: the work is done in a temporary
    directory beside it and renamed once. Inputs are only read. `steps` is a regular expression
    that a step range must match whole; `declared` holds the tables of `gapscope.toml`, checked;
    `stacks` is a table of call stacks from a capture of their own.
    `metrics` are captures of hardware metrics: no ranks, whatever directory they lie in.
    `cluster` is the address of a Dask scheduler whose workers read and derive. What an ingest of
    the same `out` had finished when it was killed or terminated is taken over, unless `fresh`.
    Raises GapscopeError; leaves nothing behind when it does.
    """
    check_target(out, force=force)
    if stacks is not None:
        check_file(stacks)
    found, ignored = _discover_all(sources, metrics)
    _check_steps(steps)
    _check_memory_limit(memory_limit)

    def gather(work: Path, crew: Crew) -> Gathered:
        staged, failures = _stage_all(found, work, crew, progress)
        ignored.extend(
            Ignored(one.label, error.message if error.slug == IDLE_PROCESS else None)
            for one, error in failures
            if error.slug in (NO_CAPTURE, IDLE_PROCESS)
        )
        failures = [
            (one, error) for one, error in failures if error.slug not in (NO_CAPTURE, IDLE_PROCESS)
        ]
        # A file that could not be read is reported as such, not as one that does not exist.
        unread = {name for one, _ in failures for name in (one.label, one.path.name)}
        numbered = {name: rank for name, rank in (ranks or {}).items() if name not in unread}
        plan = assign(staged, RankOptions(rank_from_name, numbered))
        sampled.read(metrics, work, memory_limit)
        notes = notes_of(failures, ignored, staged)
        return Gathered(staged, plan, [*notes, *sampled.notes])

    sampled = MetricsCaptures()

    with crew_of(min(workers or _default_workers(found), len(found)), cluster) as crew:
        return make_run(
            out,
            gather,
            force=force,
            steps=steps,
            declared=declared,
            stacks=stacks,
            crew=crew,
            memory_limit=memory_limit,
            progress=progress,
            worth=None if fresh else lambda work: len(finished(work)),
            add_tables=sampled.install,
        )


def make_run(
    out: Path,
    gather: Callable[[Path, Crew], Gathered],
    *,
    force: bool,
    steps: str | None = None,
    declared: dict[str, dict[str, Any]] | None = None,
    stacks: Path | None = None,
    crew: Crew,
    memory_limit: str | None = None,
    progress: Progress | None = None,
    worth: Callable[[Path], int] | None = None,
    add_tables: Callable[[Path], None] | None = None,
) -> IngestResult:
    """A whole run at `out`, or nothing, from rows that `gather` stages below a directory.

    `worth` says how many sources of a killed ingest's directory are read; without it, none counts.
    `add_tables` may put rows and tables into `run.duckdb` before its other tables are filled.
    """
    from gapscope.schema.catalog import fill

    workplace = WorkPlace(out, worth)
    work = workplace.path
    try:
        earlier = finished(work)
        strip(work)
        with _readable_failures(out), _defined(work, out.absolute()) as defined:
            gathered = gather(work, crew)
            staged = gathered.staged
            rows = place(gathered.plan, staged, work)
            if stacks is not None:
                place_stacks(stacks, work, rows)
            options = {} if steps is None else {"steps": steps}
            options |= {name: json.dumps(table) for name, table in (declared or {}).items()}
            audits = _derive_all(gathered, work, options, crew, memory_limit, progress)
            defined.result()
            if add_tables is not None:
                add_tables(work / "run.duckdb")
            cores = os.cpu_count() or 1
            fill(work, options, audits, gathered.notes, cores, memory_limit)
            if progress is not None:
                progress("model", 0, 1)
            _run_model(work, cores, memory_limit)
            _check_steps_found(work, steps)
            _write_manifest(work, staged, rows, options)
            quality = _notable_quality(work)
            shutil.rmtree(work / "spill", ignore_errors=True)
            drop_pieces(work)
            workplace.publish(out, force=force)
    except BaseException as error:
        if worth is not None and _goes_on_later(error) and worth(work):
            workplace.leave()
        else:
            workplace.discard()
        raise
    taken_over = len(earlier.intersection(one.directory for one in staged))
    return IngestResult(out, rows, quality, taken_over)


def _goes_on_later(error: BaseException) -> bool:
    """Whether the same command is expected again: a batch system's end, or a worker out of memory.

    Ctrl-C is a change of mind, and an error would only come again.
    """
    by_batch_system = Stopped.number is not None and Stopped.number != signal.SIGINT
    return by_batch_system or (isinstance(error, GapscopeError) and error.slug in GOES_ON)


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


def _discover_all(
    sources: Sequence[Path], beside: Sequence[Path] = ()
) -> tuple[list[Found], list[Ignored]]:
    """Captures on this machine and behind URLs, without those that are no ranks' timing."""
    urls = {source: url_of(source) for source in sources}
    local = [source for source in sources if urls[source] is None]
    found, ignored = discover(local) if local else ([], [])
    others = {path.resolve() for path in beside}
    found = [one for one in found if one.path.resolve() not in others]
    remote, unread = discover_remote([url for url in urls.values() if url is not None])
    if not found and not remote:
        raise no_captures(sources, len(unread))
    return [*found, *remote], [*ignored, *unread]


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
    if any(one.url for one in found):
        return os.cpu_count() or 1
    size = sum(_size(one.path) for one in found)
    return 1 if size < SMALL_INPUT_BYTES else os.cpu_count() or 1


def _size(path: Path) -> int:
    """Bytes of a capture; a directory's own size says nothing."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _check_steps(steps: str | None) -> None:
    if steps is None:
        return
    import duckdb

    try:
        # A connection of its own: the module's default one belongs to whoever imports this.
        with duckdb.connect() as con:
            con.execute("SELECT regexp_full_match('', ?)", [steps])
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
    found: list[Found], work: Path, crew: Crew, progress: Progress | None
) -> tuple[list[Staged], list[tuple[Found, GapscopeError]]]:
    """Read every source; one bad source does not lose the others, but all bad is an error."""
    staged: list[Staged] = []
    failures: list[tuple[Found, GapscopeError]] = []

    def keep(source: Found, result: Callable[[], Staged]) -> None:
        try:
            staged.append(result())
        except GapscopeError as error:
            if error.slug.startswith("cluster-"):
                # Nothing is wrong with the source.
                raise
            failures.append((source, error))

    if crew.is_alone(len(found)):
        for source in found:
            report = None if progress is None else _byte_progress(progress, source.label)
            home = staging_home(work, source)
            keep(source, functools.partial(_stage(source), source, home, report))
    else:
        with crew.pool(len(found)) as pool:
            jobs = {
                pool.submit(_stage(source), source, staging_home(work, source)): source
                for source in found
            }
            for done, job in enumerate(_completed(jobs), 1):
                keep(jobs[job], job.result)
                if progress is not None:
                    progress(jobs[job].label, done, len(jobs))
    if not staged:
        raise failures[0][1]
    staged.sort(key=lambda one: one.found.label)
    return staged, failures


def _stage(source: Found) -> Callable[..., Staged]:
    return stage_once if source.url is None else stage_remote


def _derive_all(
    gathered: Gathered,
    work: Path,
    options: dict[str, str],
    crew: Crew,
    memory_limit: str | None,
    progress: Progress | None,
) -> list[AuditResult]:
    inputs = gathered.inputs()
    ranks = sorted(inputs)
    audits: list[AuditResult] = []
    done = 0

    def keep(made: list[tuple[int, Path, list[AuditResult]]]) -> None:
        nonlocal done
        for rank, directory, its_audits in made:
            for file in directory.glob("*.parquet"):
                target = work / "derived" / file.stem / f"rank={rank}"
                target.mkdir(parents=True)
                link(file, target / "data.parquet")
            audits.extend(its_audits)
        done += len(made)
        if progress is not None:
            progress("views", done, len(ranks))

    parts = [
        {rank: inputs[rank] for rank in together}
        for together in _together(work, ranks, crew.most(len(ranks)))
    ]
    threads = crew.threads(len(parts))
    if crew.is_alone(len(parts)):
        for part in parts:
            keep(derive_once(work, part, options, threads, memory_limit))
    else:
        with crew.pool(len(parts)) as pool:
            jobs = {
                pool.submit(derive_once, work, part, options, threads, memory_limit): part
                for part in parts
            }
            for job in _completed(jobs):
                keep(job.result())
    return sorted(audits)


def _together(work: Path, ranks: list[int], most: int) -> Iterator[list[int]]:
    """Ranks to derive at once: large ones alone, small ones together, `most` at most."""
    from gapscope.schema.derive import MOST_TOGETHER, SMALL_RANK_BYTES, TOGETHER_BYTES, rank_bytes

    most = min(most, MOST_TOGETHER)
    part: list[int] = []
    part_bytes = 0
    for rank in ranks:
        size = rank_bytes(work, rank)
        if size >= SMALL_RANK_BYTES:
            yield [rank]
            continue
        if part and (len(part) >= most or part_bytes + size > TOGETHER_BYTES):
            yield part
            part, part_bytes = [], 0
        part.append(rank)
        part_bytes += size
    if part:
        yield part


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
