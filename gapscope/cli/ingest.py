"""`gapscope ingest`: captures in, a run directory out."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, Force, Json, MemoryLimit, NoProgress, Quiet, Workers
from gapscope.errors import GapscopeError, Stopped

if TYPE_CHECKING:
    from gapscope.ingest.pipeline import IngestResult

# Rows worth a column in the short table; the manifest has all of them.
_SHOWN = ("gpu_op", "api_call", "range", "collective", "stream_wait")
_MOST_LISTED = 32  # ranks; more would push what is wrong with them off the screen


def ingest(
    sources: Annotated[
        list[Path] | None,
        # Whether they can be read is said by what reads them: also inside directories.
        typer.Argument(
            metavar="SOURCE...",
            help="Captures, or directories that hold them; URLs too.",
            readable=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="RUN", help="Where the run goes; a URL too.")
    ] = DEFAULT_RUN,
    force: Force = False,
    steps: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Ranges that are steps; must match the whole text."),
    ] = None,
    rank_from_name: Annotated[
        bool,
        typer.Option("--rank-from-name", help="Take a rank that no metadata states from `rankN`."),
    ] = False,
    rank: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE=N", help="Declare the rank of a capture; repeat it."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Declared configuration; default: gapscope.toml, if it is there."
        ),
    ] = None,
    stacks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Call stacks of launches from a capture of their own: CSV, Parquet.",
        ),
    ] = None,
    metrics: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A capture of GPU metrics, of its own run: joined by operator name; repeat it.",
            readable=False,
        ),
    ] = None,
    workers: Workers = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Dask scheduler whose workers do it: tcp://HOST:PORT."
        ),
    ] = None,
    memory_limit: MemoryLimit = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Take over nothing from an ingest that was killed."),
    ] = False,
    relink: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Point a moved run at its new place; ingests nothing."),
    ] = None,
    no_progress: NoProgress = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Read Kineto or Nsight Systems captures into a run directory.

    Prints the path of the run; what was read and what is wrong with it goes to stderr.

    Example: gapscope ingest traces/ -o gapscope.run
    """
    if relink is not None:
        if sources:
            raise GapscopeError(
                "usage", "`--relink` takes no SOURCE", "`gapscope ingest --relink RUN`"
            )
        _relink(relink, quiet=quiet, as_json=as_json)
        return
    if cluster is not None and workers is not None:
        raise GapscopeError(
            "usage", "`--workers` is for this machine, `--cluster` for others", "leave one out"
        )
    if not sources:
        raise GapscopeError("usage", "no SOURCE given", "`gapscope ingest DIRECTORY`")
    from gapscope import config as configuration_file

    declared = configuration_file.read(config)
    if declared and config is None:
        output.say(f"declared configuration taken from `{configuration_file.DEFAULT}`", quiet=quiet)
    result = run_ingest(
        sources,
        out,
        force=force,
        steps=steps,
        rank_from_name=rank_from_name,
        ranks=_declared(rank or []),
        declared=declared,
        stacks=stacks,
        metrics=metrics or [],
        workers=workers,
        cluster=cluster,
        memory_limit=memory_limit,
        fresh=fresh,
        no_progress=no_progress,
        quiet=quiet,
    )
    if as_json:
        output.document(
            "gapscope.ingest/1",
            {
                "run": result.place,
                "rows": {str(number): rows for number, rows in sorted(result.rows.items())},
                "quality": result.quality,
            },
        )
    else:
        output.data(result.place)


def run_ingest(
    sources: list[Path],
    out: Path,
    *,
    force: bool,
    steps: str | None = None,
    rank_from_name: bool = False,
    ranks: dict[str, int] | None = None,
    declared: dict[str, dict[str, Any]] | None = None,
    stacks: Path | None = None,
    metrics: Sequence[Path] = (),
    workers: int | None = None,
    cluster: str | None = None,
    memory_limit: str | None = None,
    fresh: bool = False,
    no_progress: bool = False,
    quiet: bool = False,
) -> IngestResult:
    """Ingest with a progress bar, then say what came in and what is wrong with it."""
    from gapscope.cli import progress, quality
    from gapscope.ingest import pipeline
    from gapscope.ingest.landing import landing
    from gapscope.remote import check_target, upload, url_of

    if steps is None and declared:
        steps = declared.get("run", {}).get("step")

    def make(at: Path, *, force: bool) -> IngestResult:
        with _saying_what_is_kept(at), progress.bar(quiet=quiet, no_progress=no_progress) as update:
            return pipeline.ingest(
                sources,
                at,
                force=force,
                steps=steps,
                rank_from_name=rank_from_name,
                ranks=ranks,
                declared=declared,
                stacks=stacks,
                metrics=metrics,
                workers=workers,
                cluster=cluster,
                memory_limit=memory_limit,
                fresh=fresh,
                progress=update,
            )

    url = url_of(out)
    if url is None:
        result = make(out, force=force)
    else:
        check_target(url, force=force)
        with landing(url) as place:
            result = make(place, force=True)
            with _kept_where_it_was_made(place):
                upload(place, url, force=force)
            shutil.rmtree(place)
            result.place = url
    if result.taken_over:
        output.say(f"captures taken over, not read again: {result.taken_over}", quiet=quiet)
    header = ("rank", *_SHOWN)
    rows = [
        (number, *(counts.get(name, 0) for name in _SHOWN))
        for number, counts in sorted(result.rows.items())
    ]
    output.say(output.table(header, rows[:_MOST_LISTED]), quiet=quiet)
    if len(rows) > _MOST_LISTED:
        more = f"and {len(rows) - _MOST_LISTED:,} ranks more; the run's manifest.json has all"
        output.say(more, quiet=quiet)
    for finding in quality.findings(result.quality):
        # Warnings survive `--quiet`.
        output.say(output.wrapped(f"{finding.status:<4}  ", f"{finding.name}: {finding.finding}"))
    return result


@contextlib.contextmanager
def _saying_what_is_kept(out: Path) -> Iterator[None]:
    from gapscope.ingest.workplace import GOES_ON, has_unfinished

    try:
        yield
    except BaseException as error:
        # Other errors say for themselves what to do.
        goes_on = isinstance(error, GapscopeError) and error.slug in GOES_ON
        if (goes_on or Stopped.number is not None) and has_unfinished(out):
            output.say("what was finished is kept: the same command goes on from it")
        raise


@contextlib.contextmanager
def _kept_where_it_was_made(place: Path) -> Iterator[None]:
    try:
        yield
    except GapscopeError as error:
        hint = f"{error.hint}; the run itself is whole, at `{place}`"
        raise GapscopeError(error.slug, error.message, hint, error.exit_code) from error
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _declared(pairs: list[str]) -> dict[str, int]:
    ranks: dict[str, int] = {}
    for pair in pairs:
        file, _, number = pair.rpartition("=")
        if not file or not re.fullmatch(r"[0-9]{1,10}", number) or file in ranks:
            raise GapscopeError(
                "usage",
                f"`--rank {pair}` is not FILE=N, or names FILE twice",
                "for example `--rank rank0.json.gz=0`",
            )
        ranks[file] = int(number)
    return ranks


def _relink(run: Path, *, quiet: bool, as_json: bool) -> None:
    from gapscope.remote import url_of
    from gapscope.run import open_run
    from gapscope.schema import catalog

    if url_of(run) is not None:
        raise GapscopeError(
            "usage", "`--relink` is for runs of this machine", "fetch the run, then relink the copy"
        )

    with open_run(run) as opened:
        path = opened.path
    catalog.relink(path)
    output.say(f"`{path}` now reads its own files at {path.resolve()}", quiet=quiet)
    if as_json:
        output.document("gapscope.ingest/1", {"run": str(path), "relinked": True})
    else:
        output.data(str(path))
