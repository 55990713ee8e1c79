"""`gapscope export`: a run in a form that other tools open."""

from __future__ import annotations

import json
import shutil
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapscope.cli import files, output
from gapscope.cli.options import DEFAULT_RUN, Force, Json, Quiet, RunArgument
from gapscope.errors import GapscopeError

if TYPE_CHECKING:
    from gapscope.run import Run

# Marks a directory as an export of ours, which `-f` may replace.
_MARKER = "gapscope-export.json"


class Target(str, Enum):
    """What `--to` takes."""

    PERFETTO = "perfetto"
    PARQUET = "parquet"
    CSV = "csv"
    DUCKDB = "duckdb"


def export(
    run: RunArgument = DEFAULT_RUN,
    to: Annotated[Target | None, typer.Option("--to", help="Form of the export.")] = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PATH", help="A file or directory.")
    ] = None,
    redact: Annotated[
        str | None, typer.Option(metavar="KINDS", help="Remove any of paths,hosts,cmdline.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a run as a Perfetto trace, as Parquet or CSV files, or as one DuckDB file.

    Names and columns of parquet, csv and duckdb are the contract of sql v1; perfetto is for
    the eye and may change with any version.

    Example: gapscope export --to perfetto -o run.json.gz
    """
    from gapscope.render.redact import parse

    if to is None or out is None:
        raise GapscopeError(
            "usage", "`--to` and `-o` are needed", "`gapscope export --to perfetto -o run.json.gz`"
        )
    kinds = parse(redact)
    is_directory = to in (Target.PARQUET, Target.CSV)
    if is_directory:
        _check_directory(out, force=force)
    else:
        files.check_free(out, force=force)

    from gapscope.run import open_run

    with open_run(run) as opened, files.atomic(out) as temporary:
        if to is Target.PERFETTO:
            counts = _perfetto(opened, temporary, kinds)
        else:
            from gapscope.cli import export_tables

            counts = export_tables.export(opened, temporary, to.value, kinds)
        if is_directory:
            marker = {"format": to.value, "redacted": sorted(kinds), "rows": counts}
            (temporary / _MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
            if out.exists():
                shutil.rmtree(out)
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    if to is Target.PERFETTO:
        output.say(f"{summary}; open it at https://ui.perfetto.dev", quiet=quiet)
    else:
        output.say(f"{len(counts)} relations, {sum(counts.values())} rows", quiet=quiet)
    if as_json:
        output.document("gapscope.export/1", {"path": str(out), "format": to.value, "rows": counts})
    else:
        output.data(str(out))


def _perfetto(run: Run, path: Path, kinds: frozenset[str]) -> dict[str, int]:
    from gapscope.render import perfetto

    return perfetto.export(run, path, kinds)


def _check_directory(out: Path, *, force: bool) -> None:
    if not out.exists():
        files.check_free(out, force=force)
        return
    if not out.is_dir() or not (out / _MARKER).is_file():
        raise GapscopeError(
            "exists", f"`{out}` exists and is no export of gapscope", "choose another with `-o`"
        )
    if not force:
        raise GapscopeError(
            "exists", f"`{out}` exists", "replace it with `-f`, or choose another with `-o`"
        )
