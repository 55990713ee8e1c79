"""`gapscope ingest`: captures in, a run directory out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, Force, Json, MemoryLimit, NoProgress, Quiet, Workers
from gapscope.errors import GapscopeError

if TYPE_CHECKING:
    from gapscope.ingest.pipeline import IngestResult

# Rows worth a column in the short table; the manifest has all of them.
_SHOWN = ("gpu_op", "api_call", "range", "collective", "stream_wait")


def ingest(
    sources: Annotated[
        list[Path] | None,
        # Whether they can be read is said by what reads them: also inside directories.
        typer.Argument(
            metavar="SOURCE...", help="Captures, or directories that hold them.", readable=False
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="RUN", help="Where the run goes.")
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
    workers: Workers = None,
    memory_limit: MemoryLimit = None,
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
    if not sources:
        raise GapscopeError("usage", "no SOURCE given", "`gapscope ingest DIRECTORY`")
    result = run_ingest(
        sources,
        out,
        force=force,
        steps=steps,
        rank_from_name=rank_from_name,
        ranks=_declared(rank or []),
        config=config,
        workers=workers,
        memory_limit=memory_limit,
        no_progress=no_progress,
        quiet=quiet,
    )
    if as_json:
        output.document(
            "gapscope.ingest/1",
            {
                "run": str(result.out),
                "rows": {str(number): rows for number, rows in sorted(result.rows.items())},
                "quality": result.quality,
            },
        )
    else:
        output.data(str(result.out))


def run_ingest(
    sources: list[Path],
    out: Path,
    *,
    force: bool,
    steps: str | None = None,
    rank_from_name: bool = False,
    ranks: dict[str, int] | None = None,
    config: Path | None = None,
    workers: int | None = None,
    memory_limit: str | None = None,
    no_progress: bool = False,
    quiet: bool = False,
) -> IngestResult:
    """Ingest with a progress bar, then say what came in and what is wrong with it."""
    from gapscope import config as configuration_file
    from gapscope.cli import progress, quality
    from gapscope.ingest import pipeline
    from gapscope.model.configuration import check_declaration

    declared = configuration_file.read(config)
    named = str(config or configuration_file.DEFAULT)
    check_declaration(declared.get("fsdp2", {}), named)
    configuration_file.check_parts(declared.get("parts", {}), named)
    with progress.bar(quiet=quiet, no_progress=no_progress) as update:
        result = pipeline.ingest(
            sources,
            out,
            force=force,
            steps=steps,
            rank_from_name=rank_from_name,
            ranks=ranks,
            declared_fsdp2=declared.get("fsdp2"),
            declared_parts=declared.get("parts"),
            workers=workers,
            memory_limit=memory_limit,
            progress=update,
        )
    header = ("rank", *_SHOWN)
    rows = [
        (number, *(counts.get(name, 0) for name in _SHOWN))
        for number, counts in sorted(result.rows.items())
    ]
    output.say(output.table(header, rows), quiet=quiet)
    for finding in quality.findings(result.quality):
        # Warnings survive `--quiet`.
        output.say(output.wrapped(f"{finding.status:<4}  ", f"{finding.name}: {finding.finding}"))
    return result


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
    from gapscope.run import open_run
    from gapscope.schema import catalog

    with open_run(run) as opened:
        path = opened.path
    catalog.relink(path)
    output.say(f"`{path}` now reads its own files at {path.resolve()}", quiet=quiet)
    if as_json:
        output.document("gapscope.ingest/1", {"run": str(path), "relinked": True})
    else:
        output.data(str(path))
