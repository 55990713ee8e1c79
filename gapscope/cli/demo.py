"""`gapscope demo`: the shipped two-rank capture, ingested and reported where you stand."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from gapscope.cli import files, invocation, output
from gapscope.cli.ingest import run_ingest
from gapscope.cli.options import Force, Json, NoProgress, Quiet
from gapscope.cli.report import Format, is_our_report, render, summary_lines

SAMPLE = Path(__file__).resolve().parent.parent / "sample"

# Names of its own: `gapscope ingest` and `gapscope report` never meet the demo by default.
DEMO_RUN = Path("gapscope-demo.run")
DEMO_REPORT = Path("gapscope-demo-report.html")


def demo(
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for both results.")
    ] = Path(),
    force: Force = False,
    no_progress: NoProgress = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Ingest and report a real capture that comes with GapScope: two ranks of FSDP2 on an H200.

    Writes gapscope-demo.run and gapscope-demo-report.html and prints both paths. An earlier demo
    is replaced; anything else needs -f.

    Example: gapscope demo -o demo
    """
    run, page = out / DEMO_RUN, out / DEMO_REPORT
    is_again = _is_demo_run(run)
    out.mkdir(parents=True, exist_ok=True)
    files.check_free(page, force=force, is_ours=is_again and is_our_report(page))
    if run.exists() and (is_again or force):
        output.say(f"replacing `{run}`", quiet=quiet)
    sources = sorted(SAMPLE.glob("*.json.gz"))
    result = run_ingest(
        sources,
        run,
        force=force or is_again,
        # Two small files: starting processes would take longer than reading them.
        workers=1,
        no_progress=no_progress,
        quiet=quiet,
    )

    from gapscope.run import open_run

    with open_run(result.out) as opened:
        document = opened.report()
    files.write_text(page, render(document, Format.HTML))
    for line in summary_lines(document):
        output.say(output.wrapped("", line), quiet=quiet)
    if as_json:
        output.document("gapscope.demo/1", {"run": str(run), "report": str(page)})
        return
    output.data(f"{run}\n{page}")
    command = invocation.typable()
    output.say(
        f"next: open {page} in a browser\n"
        f"      {command} steps {shlex.quote(str(run))}\n"
        f"      {command} ingest TRACES/\n"
        f"      {command} report",
        quiet=quiet,
    )


def _is_demo_run(run: Path) -> bool:
    """Whether a run was made from the shipped sample and nothing else."""
    try:
        manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
        digests = {str(source["digest"]) for source in manifest["sources"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    shipped = {
        hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        for path in SAMPLE.glob("*.json.gz")
    }
    return digests == shipped
