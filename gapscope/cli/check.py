"""`gapscope check`: a gate for CI, from a policy file."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, Json, RunArgument
from gapscope.errors import EXIT_GATE_FAILED, EXIT_INCONCLUSIVE, EXIT_OK, GapscopeError

if TYPE_CHECKING:
    from gapscope.compare.gate import Finding

_SCHEMA = "gapscope.check/1"


class Format(str, Enum):
    """Of the answer on stdout."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


def check(
    run: RunArgument = DEFAULT_RUN,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rules and limits, as TOML; required.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="RUN", help="What max_regression_percent compares with.")
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print a policy with every rule, and check nothing.")
    ] = False,
    format_: Annotated[
        Format, typer.Option("--format", help="junit and github: for what CI systems read.")
    ] = Format.TABLE,
    as_json: Json = False,
) -> None:
    """Judge a run by a policy: each rule with what was measured, its limit and the verdict.

    Exit code 0 where every rule passes, 1 where one fails, 3 where none fails but the value of one
    is not known: that is no pass.

    Example: gapscope check gapscope.run --policy policy.toml --baseline before.run
    """
    from gapscope.compare import gate
    from gapscope.compare import policy as policies

    if example:
        output.data(policies.EXAMPLE)
        return
    if policy is None:
        raise GapscopeError(
            "usage", "no policy given", "`--policy FILE`; `gapscope check --example` prints one"
        )
    if as_json and format_ not in (Format.TABLE, Format.JSON):
        raise GapscopeError("usage", "`--json` and `--format` exclude each other", "drop one")
    rules = policies.read(policy)

    from gapscope.compare.build import build
    from gapscope.pair import open_pair, run_names
    from gapscope.run import open_run

    comparison = None
    if baseline is not None and "max_regression_percent" in rules:
        with open_pair(baseline, run) as pair:
            comparison = build(pair, *run_names(baseline, run))
    elif baseline is not None:
        # No rule needs it: it must be a run all the same.
        open_run(baseline).close()
    with open_run(run) as opened:
        findings = gate.judge(rules, opened, comparison)
    _print(findings, Format.JSON if as_json else format_, run)
    codes = {
        gate.Verdict.PASS: EXIT_OK,
        gate.Verdict.FAIL: EXIT_GATE_FAILED,
        gate.Verdict.UNKNOWN: EXIT_INCONCLUSIVE,
    }
    raise typer.Exit(codes[gate.overall(findings)])


def _print(findings: list[Finding], chosen: Format, run: Path) -> None:
    from gapscope.render import gate

    if chosen is Format.JSON:
        output.document(_SCHEMA, {"run": str(run), **gate.content(findings)})
    elif chosen is Format.JUNIT:
        output.data(gate.junit(findings))
    elif chosen is Format.GITHUB:
        text = gate.github(findings)
        if text:
            output.data(text)
    else:
        for finding in findings:
            lead = f"{finding.verdict.value:<8} {finding.rule}: "
            output.data(output.wrapped(lead, gate.sentence(finding)))
