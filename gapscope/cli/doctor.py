"""`gapscope doctor`: is this machine fit to analyse, and is this capture fit to be judged."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from gapscope.cli import output
from gapscope.cli.options import Json
from gapscope.cli.quality import findings
from gapscope.errors import EXIT_GATE_FAILED, GapscopeError

_LOW_SPACE = 1 << 30
_NO_SPACE = 100 << 20


@dataclass(frozen=True)
class Check:
    """One line: status is ok, info, warn or fail."""

    status: str
    name: str
    detail: str
    hint: str = ""


def doctor(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="A run; without it: this machine.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine, or with RUN the quality of its capture and its audits.

    Exit code 1 when a check fails.

    Example: gapscope doctor gapscope.run
    """
    checks = _environment() if run is None else _run(run)
    if as_json:
        output.document("gapscope.doctor/1", {"checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            hint = f" (hint: {check.hint})" if check.hint else ""
            output.data(
                output.wrapped(f"{check.status:<4}  ", f"{check.name}: {check.detail}{hint}")
            )
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(EXIT_GATE_FAILED)


def _environment() -> list[Check]:
    from gapscope._version import __version__

    version = ".".join(str(part) for part in sys.version_info[:3])
    return [
        Check("ok", "gapscope", __version__),
        Check("ok", "python", version),
        *(_package(name) for name in ("duckdb", "pyarrow", "polars", "plotly")),
        _shipped_files(),
        _tool("duckdb", "opens run.duckdb in a shell; `gapscope sql` has a small prompt instead"),
        _tool("nsys", "only needed to read .nsys-rep; .sqlite and parquetdir need no tool"),
        _space(Path.cwd()),
    ]


def _package(name: str) -> Check:
    import importlib
    from importlib.metadata import PackageNotFoundError, version

    hint = "`pip install --force-reinstall gapscope`"
    try:
        installed = version(name)
        importlib.import_module(name)
    except (ImportError, PackageNotFoundError, OSError) as error:
        return Check("fail", name, f"cannot be imported: {error}", hint)
    major, minor = (int(part) for part in installed.split(".")[:2])
    if name == "duckdb" and (major, minor) < (1, 4):
        return Check("fail", name, f"{installed} is older than 1.4", hint)
    return Check("ok", name, installed)


def _shipped_files() -> Check:
    from gapscope.schema.views import all_views

    try:
        count = len(all_views())
    except (GapscopeError, ValueError) as error:
        return Check("fail", "sql views", str(error), "`pip install --force-reinstall gapscope`")
    return Check("ok", "sql views", f"{count} found")


def _tool(name: str, use: str) -> Check:
    found = shutil.which(name)
    return Check("ok" if found else "info", f"{name} on PATH", found or f"not found; {use}")


def _space(directory: Path) -> Check:
    if not os.access(directory, os.W_OK):
        return Check("fail", "this directory", "cannot be written", "`cd` to one that can")
    free = shutil.disk_usage(directory).free
    detail = f"{free / (1 << 30):.1f} GiB here"
    if free < _NO_SPACE:
        return Check("fail", "free space", detail, "free some before `gapscope ingest`")
    status = "warn" if free < _LOW_SPACE else "ok"
    return Check(status, "free space", detail)


def _run(path: Path) -> list[Check]:
    from gapscope.run import open_run

    with open_run(path) as run:
        quality = run.quality().to_dicts()
        audits = run.sql(
            "SELECT a.view_name, a.audit_name, sum(a.failed_count)::BIGINT AS failed_count "
            "FROM v1.audit_result AS a WHERE a.failed_count > 0 GROUP BY ALL ORDER BY ALL"
        ).to_dicts()
    checks = [Check(finding.status, finding.name, finding.finding) for finding in findings(quality)]
    for row in audits:
        detail = f"{row['failed_count']} rows of {row['view_name']} break it"
        hint = f"`gapscope sql {path} --show {row['view_name']}`"
        checks.insert(0, Check("fail", f"audit {row['audit_name']}", detail, hint))
    return checks
