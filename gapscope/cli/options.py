"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[
    Path, typer.Argument(metavar="[RUN]", help="A run directory or its run.duckdb.")
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace what is already there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only results, warnings and errors.")]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON document on stdout.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes to ingest with; default: one a CPU core.")
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Limit for DuckDB, e.g. 4GB.")
]
NoProgress = Annotated[
    bool,
    typer.Option(
        "--no-progress", envvar="GAPSCOPE_NO_PROGRESS", help="No progress bar on a terminal."
    ),
]

DEFAULT_RUN = Path("gapscope.run")
DEFAULT_TRACE = Path("gapscope.trace")
DEFAULT_REPORT = Path("gapscope-report.html")
