"""`gapscope validate`: what the model found against what is known to have happened."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, Json
from gapscope.cli.results import require_model
from gapscope.errors import EXIT_GATE_FAILED, EXIT_INCONCLUSIVE, GapscopeError

if TYPE_CHECKING:
    from gapscope.model.validate import Expected, Finding, Judged

_PIECES = (
    "idle of every piece, ms over ranks and steps; `transfer` may be hard or hide lateness, the "
    "truth leaves out gaps below 100 us"
)


def validate(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Run directories; default: gapscope.run."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Truth as TOML or CSV, an entry a run; default: the run's own."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the classes that the model found with a known truth.

    Simulated runs carry theirs. For captures write one: CSV with run, expected_class and, if
    known, expected_ns, tolerance_ns (per step) and rank. Exit code 1 when a run disagrees, 3 when
    the model may not judge any.

    Example: gapscope validate --truth truth.csv
    """
    from gapscope.model.validate import confusion

    paths = runs or [DEFAULT_RUN]
    declared = _declared(paths, truth)
    judged = {path: _judge(path, declared.get(path)) for path in paths}
    totals = confusion(judged.values())
    if as_json:
        content = {
            "truth": None if truth is None else str(truth),
            "runs": [
                {"run": str(path), "agrees": one.agrees, **asdict(one)}
                for path, one in judged.items()
            ],
            "confusion": totals,
        }
        output.document("gapscope.validate/1", content)
    else:
        output.data(_text(judged, totals))
    if any(one.agrees is False for one in judged.values()):
        raise typer.Exit(EXIT_GATE_FAILED)
    if all(one.is_withheld for one in judged.values()):
        raise GapscopeError(
            "no-verdict",
            "the model withholds its verdict on every step of every run",
            f"`gapscope what-if {paths[0]}` says why",
            EXIT_INCONCLUSIVE,
        )


def _declared(paths: list[Path], truth: Path | None) -> dict[Path, Expected]:
    if truth is None:
        return {}
    from gapscope.cli.truth_file import read_truth, truth_of

    entries = read_truth(truth)
    return {path: truth_of(entries, path, truth) for path in paths}


def _judge(path: Path, expected: Expected | None) -> Judged:
    from gapscope.model.validate import has_truth, judge_declared, judge_simulated
    from gapscope.run import open_run

    with open_run(path) as run:
        require_model(run)
        if expected is not None:
            return judge_declared(run, expected)
        if not has_truth(run):
            raise GapscopeError(
                "no-truth",
                f"`{path}` carries no truth: it is a capture, not simulated",
                "say what it contains: `gapscope validate --truth FILE`, see `--help`",
            )
        return judge_simulated(run)


def _text(judged: dict[Path, Judged], totals: dict[str, list[dict[str, Any]]]) -> str:
    header = ("run", "injected", "found", "verdict", "truth ms", "found ms", "error ms")
    rows = [
        (_name(path), *_finding(finding))
        for path, one in judged.items()
        for finding in one.findings
    ]
    parts = [
        output.table(header, rows, limit=output.width()),
        output.wrapped(
            "",
            "ms per step, on the ranks where it should show; found: what dominates there, and how "
            "much of the class, the run's own included",
        ),
    ]
    bounds = [one for one in judged.values() if one.bound_median_share is not None]
    if bounds:
        worst = max((one.bound_worst_share or 0.0 for one in bounds), key=abs)
        text = f"T_lb is off the shortest simulated step by at most {worst:+.2%}"
        parts += ["", output.wrapped("bound  ", text)]
    matrices = (("runs", "runs"), ("cells", "ranks and steps"), ("pieces", _PIECES))
    for name, title in matrices:
        if totals[name] and not (name == "runs" and len(judged) == 1):
            parts += ["", output.wrapped("", title), _matrix(totals[name])]
    return "\n".join(parts)


def _name(path: Path) -> str:
    directory = path.parent if path.name == "run.duckdb" else path
    return directory.resolve().name


def _finding(one: Finding) -> tuple[object, ...]:
    is_itself = one.injected.split()[0] == one.expected_class
    return (
        one.injected if is_itself else f"{one.injected}, as {one.expected_class}",
        one.found_class,
        _verdict(one),
        _ms(one.expected_ns),
        _ms(one.found_ns),
        _ms(one.error_ns),
    )


def _verdict(one: Finding) -> str:
    if one.agrees is not None:
        return "agrees" if one.agrees else "differs"
    if one.found_class == "withheld":
        return "withheld"
    return "too small" if one.is_below else "beside another"


def _matrix(rows: list[dict[str, Any]]) -> str:
    """A row what was found, a column the truth; `-` stands for nothing there."""
    amounts = {(row["found"] or "-", row["expected"] or "-"): row for row in rows}
    order = (
        *("R1", "R2", "R3", "H1", "H2", "transfer", "work", "floor", "before", "unresolved"),
        *("carried", "none", "withheld", "-"),
    )
    found = [name for name in order if any(key[0] == name for key in amounts)]
    truth = [name for name in order if any(key[1] == name for key in amounts)]
    cells = [(name, *(_amount(amounts.get((name, column))) for column in truth)) for name in found]
    return output.table(("found", *(f"is {name}" for name in truth)), cells, limit=output.width())


def _amount(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return str(row["count"]) if "count" in row else f"{row['ns'] / 1e6:.2f}"


def _ms(value: int | None) -> str:
    return "" if value is None else f"{value / 1e6:.2f}"
