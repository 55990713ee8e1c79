"""`gapscope simulate`: a training that never ran, with its truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, Force, Json, MemoryLimit, NoProgress, Quiet, Workers
from gapscope.errors import GapscopeError


def simulate(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC", help="What to simulate, as TOML.", readable=False),
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="RUN", help="Where the run goes.")
    ] = DEFAULT_RUN,
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
    from gapscope.simulate import run

    with progress.bar(quiet=quiet, no_progress=no_progress) as update:
        result = run.write_run(
            spec,
            out,
            force=force,
            workers=workers,
            memory_limit=memory_limit,
            progress=update,
        )
    ops = sum(rows.get("gpu_op", 0) for rows in result.rows.values())
    output.say(f"{len(result.rows)} ranks, {ops:,} device ops", quiet=quiet)
    if as_json:
        output.document("gapscope.simulate/1", {"run": str(result.out), "ranks": len(result.rows)})
    else:
        output.data(str(result.out))
