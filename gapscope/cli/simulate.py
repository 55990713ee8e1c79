"""`gapscope simulate`: a training that never ran, with its truth."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from gapscope.cli import output
from gapscope.cli.options import (
    DEFAULT_RUN,
    DEFAULT_TRACE,
    Force,
    Json,
    MemoryLimit,
    NoProgress,
    Quiet,
    Workers,
)
from gapscope.errors import GapscopeError


class Shape(str, enum.Enum):
    """What a simulated training is written as."""

    RUN = "run"
    TRACE = "trace"


def simulate(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC", help="What to simulate, as TOML.", readable=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="RUN", help="Where the run, or the trace, goes."),
    ] = None,
    shape: Annotated[
        Shape,
        typer.Option(
            "--as", help="A run, or what `gapscope trace` would have written, to be ingested."
        ),
    ] = Shape.RUN,
    example: Annotated[
        bool, typer.Option("--example", help="Print a SPEC with every key, and simulate nothing.")
    ] = False,
    force: Force = False,
    workers: Workers = None,
    memory_limit: MemoryLimit = None,
    no_progress: NoProgress = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Simulate FSDP2 training on many ranks, with faults of known size put in.

    Writes a run like any other, and what each fault really cost as `simulated_truth` in it.
    With `--as trace` the streams of the tracer instead, and the truth as Parquet beside them.

    Example: gapscope simulate --example > spec.toml && gapscope simulate spec.toml -o sim.run
    """
    from gapscope.simulate import spec as specs

    if example:
        if spec is not None:
            raise GapscopeError(
                "usage", "`--example` takes no SPEC", "`gapscope simulate --example`"
            )
        output.data(specs.example().rstrip("\n"))
        return
    if spec is None:
        raise GapscopeError(
            "usage", "no SPEC given", "`gapscope simulate SPEC`, or `--example` to print one"
        )
    from gapscope.cli import progress
    from gapscope.simulate import run, trace

    out = out or (DEFAULT_RUN if shape is Shape.RUN else DEFAULT_TRACE)
    with progress.bar(quiet=quiet, no_progress=no_progress) as update:
        if shape is Shape.TRACE:
            ranks = trace.write_trace(spec, out, force=force, workers=workers, progress=update)
            said = f"{ranks} ranks"
        else:
            result = run.write_run(
                spec,
                out,
                force=force,
                workers=workers,
                memory_limit=memory_limit,
                progress=update,
            )
            ranks = len(result.rows)
            ops = sum(rows.get("gpu_op", 0) for rows in result.rows.values())
            said = f"{ranks} ranks, {ops:,} device ops"
    output.say(said, quiet=quiet)
    if as_json:
        output.document("gapscope.simulate/1", {shape.value: str(out), "ranks": ranks})
    else:
        output.data(str(out))
