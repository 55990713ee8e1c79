"""`gapscope ranks`: every rank beside the others, before any of them is looked at closely."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, Json, RunArgument
from gapscope.errors import EXIT_INCONCLUSIVE, GapscopeError

if TYPE_CHECKING:
    import polars as pl

_SCHEMA = "gapscope.ranks/1"

# So many ranks are listed without being asked for.
_FEW = 16


_MEDIANS = (
    "times of a rank are medians over its steps, each for itself and the lower of two: those of a "
    "line need not be of one step, nor sum to it."
)


class Format(str, Enum):
    """Of the answer on stdout."""

    TABLE = "table"
    CSV = "csv"


def ranks(
    run: RunArgument = DEFAULT_RUN,
    everyone: Annotated[
        bool, typer.Option("--all", help=f"List every rank, also of more than {_FEW}.")
    ] = False,
    format_: Annotated[
        Format, typer.Option("--format", help="csv: one line a rank.")
    ] = Format.TABLE,
    as_json: Json = False,
) -> None:
    """Survey all ranks: parts, fastest and slowest, stragglers, and whom to look at closely.

    Times of a rank are medians over its steps, each for itself: those of a line need not be of one
    step. Exit code 3 when no rank has a step that counts.

    Example: gapscope ranks --all
    """
    if as_json and format_ is Format.CSV:
        raise GapscopeError("usage", "`--json` and `--format csv` exclude each other", "drop one")

    from gapscope.report import survey
    from gapscope.run import open_run

    with open_run(run) as opened:
        listed = opened.sql(survey.RANKS)
        if format_ is Format.CSV:
            output.data(listed.write_csv())
            return
        scope = opened.sql(survey.SCOPE).to_dicts()[0]
        shared = opened.sql(survey.SHARED).to_dicts()
        answer = {
            "run": str(run),
            "scope": scope,
            "limits": survey.limits(scope, shared),
            "parts": [
                {**row, "says": f"{survey.straggler(row)} {survey.skewed(row)}".rstrip()}
                for row in opened.sql(survey.PARTS).to_dicts()
            ],
            "representatives": opened.sql(survey.REPRESENTATIVES).to_dicts(),
            "bandwidth": opened.sql(survey.BANDWIDTH).to_dicts(),
            "ranks": listed.to_dicts(),
        }
    if as_json:
        output.document(_SCHEMA, answer)
    else:
        output.data(_text(answer, listed, everyone=everyone))
    if not answer["representatives"]:
        raise GapscopeError(
            "no-steps",
            f"no rank of `{run}` has a step that counts",
            f"`gapscope steps {run}` says why",
            EXIT_INCONCLUSIVE,
        )


def _text(answer: dict[str, Any], listed: pl.DataFrame, *, everyone: bool) -> str:
    from gapscope.report import survey
    from gapscope.units import plural

    scope = answer["scope"]
    world = f" of {scope['world_size']:,}" if scope["world_size"] else ""
    where = [plural(scope[key], key[:-1]) for key in ("hosts", "devices") if scope[key]]
    detected = any(part["source"] == "detected" for part in answer["parts"])
    lines = [
        output.wrapped(
            "ranks   ",
            f"{scope['captured']:,}{world} captured"
            + (f" on {' and '.join(where)}" if where else "")
            + (f" ({scope['device_name']})" if scope["device_name"] else ""),
        ),
        output.wrapped("clocks  ", survey.clocks(scope)),
        *(output.wrapped("limit   ", text) for text in answer["limits"]),
        "",
        _part_table(answer["parts"]),
        "",
        *map(_part_words, answer["parts"]),
    ]
    if detected:
        lines.append(
            output.wrapped(
                "note    ",
                "parts were detected, by types and counts of collectives and of device ops a "
                "step; `[parts]` in gapscope.toml declares them.",
            )
        )
    if answer["representatives"]:
        lines += ["", "Look at these ranks:", _representative_table(answer["representatives"])]
    if answer["bandwidth"]:
        lines += ["", _bandwidth_table(answer["bandwidth"])]
    if everyone or listed.height <= _FEW:
        lines += ["", _rank_table(answer["ranks"])]
    if answer["ranks"]:
        lines += ["", output.wrapped("note    ", _MEDIANS)]
    if not everyone and listed.height > _FEW:
        lines += ["", f"`gapscope ranks {answer['run']} --all` lists {listed.height:,} ranks."]
    return "\n".join(lines)


def _part_words(part: dict[str, Any]) -> str:
    program = f" A step is {part['program']}." if part["program"] else ""
    return output.wrapped(f"{part['part']}: ", part["says"] + program)


def _part_table(rows: list[dict[str, Any]]) -> str:
    from gapscope.report import survey

    header = ("part", "ranks", "", "steps", "fastest ms", "rank", "slowest ms", "rank", "spread")
    return output.paged(
        header,
        [
            (
                row["part"],
                row["rank_count"],
                survey.spans(row["ranks"], most=3),
                row["step_count"],
                _ms(row["fastest_ns"]),
                row["fastest_rank"],
                _ms(row["slowest_ns"]),
                row["slowest_rank"],
                _ms(row["spread_ns"]),
            )
            for row in rows
        ],
        limit=output.width(),
    )


# Heading, measure: what every table of ranks shows, as far as its width allows.
_USUAL = (
    ("min ms", "step_min_ns"),
    ("median", "step_ns"),
    ("max", "step_max_ns"),
    ("non-comm", "noncomm_ns"),
    ("exposed", "exposed_comm_ns"),
    ("idle", "idle_ns"),
    ("waits", "wait_ns"),
    ("holds up", "held_ns"),
    ("compute", "compute_ns"),
    ("comm", "comm_ns"),
    ("copies", "copy_ns"),
)


def _representative_table(rows: list[dict[str, Any]]) -> str:
    reasons: dict[int, list[str]] = {}
    for row in rows:
        usual = f"usual of {row['part']}" if row["role"] == "usual" else row["role"]
        reasons.setdefault(row["rank"], []).append(usual)
    first = {row["rank"]: row for row in reversed(rows)}
    header = ("rank", "as", *(heading for heading, _ in _USUAL[:7]))
    return output.paged(
        header,
        [
            (rank, ", ".join(roles), *(_ms(first[rank][key]) for _, key in _USUAL[:7]))
            for rank, roles in reasons.items()
        ],
        limit=output.screen_width(),
    )


def _rank_table(rows: list[dict[str, Any]]) -> str:
    parts = len({row["part"] for row in rows})
    header = (
        "rank",
        *(["part"] if parts > 1 else []),
        *(heading for heading, _ in _USUAL),
        *("laggard", "early start", "late end", "host", "collectives"),
    )
    return output.paged(
        header,
        [
            (
                row["rank"],
                *([row["part"]] if parts > 1 else []),
                *(_ms(row[key]) for _, key in _USUAL),
                row["laggard_steps"],
                row["start_skew_steps"],
                row["late_end_steps"],
                row["hostname"],
                row["collectives"],
            )
            for row in rows
        ],
        limit=output.screen_width(),
    )


def _bandwidth_table(rows: list[dict[str, Any]]) -> str:
    from gapscope.units import value

    header = ("collective", "message", "ranks", "resolved", "transfer ms", "alg. GB/s", "bus GB/s")
    return output.paged(
        header,
        [
            (
                row["type"],
                value(row["bytes"], "B"),
                row["group_size"],
                f"{row['resolved_count']} of {row['instance_count']}",
                _ms(row["transfer_ns"]),
                _rate(row["algorithm_gb_s"]),
                _rate(row["bus_gb_s"]),
            )
            for row in rows
        ],
        limit=output.width(),
    )


def _ms(value: int | None) -> str:
    return "" if value is None else f"{value / 1e6:.2f}"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
