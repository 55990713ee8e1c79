"""`gapscope what-if`: the length of the step without mechanisms, or after a change."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, Json, RunArgument
from gapscope.cli.results import require_model
from gapscope.errors import EXIT_INCONCLUSIVE, GapscopeError
from gapscope.units import fixed, plural

if TYPE_CHECKING:
    from gapscope.run import Run

_SCHEMA = "gapscope.what-if/1"

MECHANISMS = {"R1": "late launch", "R2": "queue serialization", "R3": "cross-rank skew"}

# Means over the steps that have a ladder and are no boundary: a fault in every other step counts.
_RUNGS = """
WITH executed AS (
    SELECT step_id, step_ns FROM v1.what_if_step WHERE removed = '' AND NOT is_boundary
)
SELECT
    w.removed,
    avg(w.step_ns)::BIGINT AS step_ns,
    min(w.step_ns) AS step_min_ns,
    max(w.step_ns) AS step_max_ns,
    avg(e.step_ns - w.step_ns)::BIGINT AS saved_ns,
    avg(w.stretched_ns)::BIGINT AS stretched_ns
FROM v1.what_if_step AS w
INNER JOIN executed AS e ON w.step_id = e.step_id
WHERE ? IS NULL OR w.removed IN ('', ?)
GROUP BY w.removed
ORDER BY len(w.removed), w.removed
"""

_CHANGES = """
WITH executed AS (
    SELECT step_id, step_ns FROM v1.what_if_step WHERE removed = '' AND NOT is_boundary
),
changed AS (
    SELECT step_id, change, max(step_ns) AS step_ns FROM v1.what_if_change GROUP BY step_id, change
)
SELECT
    c.change,
    avg(c.step_ns)::BIGINT AS step_ns,
    min(c.step_ns) AS step_min_ns,
    max(c.step_ns) AS step_max_ns,
    avg(e.step_ns - c.step_ns)::BIGINT AS saved_ns
FROM changed AS c
INNER JOIN executed AS e ON c.step_id = e.step_id
GROUP BY c.change
ORDER BY saved_ns DESC, c.change
"""

_STEPS = """
WITH gap AS (
    SELECT
        step_id, max(observed_ns) AS observed_ns, max(t_lb_ns) AS t_lb_ns, count(*) AS rank_count
    FROM v1.step_gap GROUP BY step_id
)
SELECT w.step_id, w.step_ns, g.observed_ns, g.t_lb_ns, g.rank_count, c.measured AS off, c.allowed
FROM v1.what_if_step AS w
INNER JOIN gap AS g ON w.step_id = g.step_id
INNER JOIN v1.model_check AS c ON w.step_id = c.step_id AND c.check_name = 'replay_error'
WHERE w.removed = '' AND NOT w.is_boundary
ORDER BY w.step_id
"""

# The worst finding of each check that withholds something, those first that withhold most.
_REFUSALS = """
SELECT
    check_name, withholds, count(step_id) AS step_count,
    arg_max(detail, coalesce(abs(measured), 0)) AS detail
FROM v1.model_check
WHERE withholds IS NOT NULL
GROUP BY check_name, withholds
ORDER BY list_position(['bound', 'verdict', 'ladder'], withholds), check_name
"""

_NEXT = {
    "rule_pack": "`gapscope rules` lists the packs; `gapscope report` needs none",
    "program": "`gapscope steps` shows the steps; capture ones that all run the same program",
    "rule_violations": "`gapscope rules fsdp2 --run {run}` shows which rules do not hold",
    "replay_error": "ranks on one GPU need a partition each (MIG, or "
    "`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`) and `CUDA_DEVICE_MAX_CONNECTIONS=8` or more",
    "blocking_sync": "capture steps without a blocking call inside, such as `.item()`",
    "clock_residual": "ingest the ranks of one job together, each with its own clock stated",
    "step_anchor": "`gapscope steps {run} --candidates`, then name the steps: "
    "`gapscope ingest --steps`",
    "configuration": "correct `gapscope.toml`, or capture the run that it describes",
    "model_failed": "report this: it is a bug in GapScope",
    "run_ahead": "call `torch.cuda.synchronize()` at the end of each captured step",
}
_NEXT["unresolved"] = _NEXT["replay_error"]


def what_if(
    run: RunArgument = DEFAULT_RUN,
    without: Annotated[
        str | None,
        typer.Option(metavar="R1,R2,R3", help="Only the step without these mechanisms."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay the steps without late launch (R1), queue serialization (R2), skew (R3).

    Says how well the replay reproduces the run, then each rung down to the bound, what each
    mechanism contributes, and what single changes would save. Exit code 3 where the model may not
    say: the reasons and what to do follow.

    Example: gapscope what-if --without R2
    """
    rung = None if without is None else _rung(without)

    from gapscope.run import open_run

    with open_run(run) as opened:
        require_model(opened)
        steps = opened.sql(_STEPS).to_dicts()
        refusals = opened.sql(_REFUSALS).to_dicts()
        if not steps:
            if as_json:
                output.document(_SCHEMA, {"run": str(run), "refused": refusals})
            raise _refused(run, refusals)
        answer = {"run": str(run), **_answer(opened, steps, rung), "refused": refusals}
    if as_json:
        output.document(_SCHEMA, answer)
    else:
        output.data(_text(answer, rung))


def _rung(text: str) -> str:
    """`r3, R1` as the ladder calls it: `R1+R3`."""
    asked = {part.strip().upper() for part in text.replace("+", ",").split(",")}
    known = [name for name in MECHANISMS if name in asked]
    if len(known) != len(asked):
        meanings = ", ".join(f"{name} {meaning}" for name, meaning in MECHANISMS.items())
        raise GapscopeError(
            "usage",
            f"invalid value for '--without': '{text}' (mechanisms: {', '.join(MECHANISMS)})",
            f"one or more of: {meanings}",
        )
    return "+".join(known)


def _answer(run: Run, steps: list[dict[str, Any]], rung: str | None) -> dict[str, Any]:
    worst = max(steps, key=lambda step: abs(step["off"]))
    answer = {
        "rank_count": max(step["rank_count"] for step in steps),
        "step_ids": [step["step_id"] for step in steps],
        "replay": {
            "worst_step_id": worst["step_id"],
            "worst_share": worst["off"],
            "allowed_share": worst["allowed"],
        },
        "observed_ns": round(fmean(step["observed_ns"] for step in steps)),
        "t_lb_ns": round(fmean(step["t_lb_ns"] for step in steps)),
        "rungs": run.sql(_RUNGS, [rung, rung]).to_dicts(),
    }
    if rung is None:
        answer["shares"] = _shares(run)
        answer["changes"] = run.sql(_CHANGES).to_dicts()
    return answer


def _shares(run: Run) -> list[dict[str, Any]]:
    from gapscope.report import shares

    return [
        {"mechanism": name, "share_ns": round(share), "least_ns": least, "most_ns": most}
        for name, (share, least, most) in shares.mean(run.sql(shares.LADDERS).to_dicts()).items()
    ]


def _refused(run: Path, refusals: list[dict[str, Any]]) -> GapscopeError:
    if not refusals:
        return GapscopeError(
            "no-ladder",
            f"no what-if for `{run}`: it has only boundary steps",
            f"`gapscope steps {run}` says why; capture a few steps more",
            EXIT_INCONCLUSIVE,
        )
    advice = dict.fromkeys(
        _NEXT.get(one["check_name"], "`gapscope sql {run} -c 'FROM model_check'`")
        for one in refusals
    )
    return GapscopeError(
        "no-ladder",
        f"no what-if for `{run}`: " + "; ".join(map(_reason, refusals)),
        "; ".join(advice).format(run=run),
        EXIT_INCONCLUSIVE,
    )


def _reason(refusal: dict[str, Any]) -> str:
    count = refusal["step_count"]
    more = f" ({plural(count, 'step')}, this is the worst)" if count > 1 else ""
    return f"{refusal['detail']}{more}"


def _text(answer: dict[str, Any], rung: str | None) -> str:
    from gapscope.report import changes

    replay = answer["replay"]
    counted = f"{plural(len(answer['step_ids']), 'step')}, {plural(answer['rank_count'], 'rank')}"
    executed = answer["rungs"][0]
    is_stretched = any(row["stretched_ns"] is not None for row in answer["rungs"])
    parts = [
        output.wrapped(
            "replay  ",
            f"of the run as executed: {_ms(executed['step_ns'])} ms, observed "
            f"{_ms(answer['observed_ns'])} ms; worst step {replay['worst_step_id']}, off by "
            f"{replay['worst_share']:+.1%} (limit {replay['allowed_share']:.0%})",
        ),
        output.wrapped(
            "ladder  ",
            f"mean and range over {counted}; a step is as long as on its slowest rank"
            + (
                "; stretched: compute that newly overlaps communication is slowed as much as "
                "what overlaps in the capture"
                if is_stretched
                else ""
            ),
        ),
        output.wrapped(
            "bound   ",
            f"T_lb {_ms(answer['t_lb_ns'])} ms: the shortest step that the rules allow for the "
            "measured work, at equal memory and in program order",
        ),
        *(
            output.wrapped("left out  ", f"{one['check_name']}: {_reason(one)}")
            for one in answer["refused"]
        ),
        "",
        _rungs(answer["rungs"], is_stretched=is_stretched),
    ]
    if rung is None:
        parts += ["", _share_table(answer["shares"]), "", _change_table(answer["changes"])]
        said = changes.meanings(row["change"] for row in answer["changes"])
        parts += ["", *(output.wrapped("- ", text) for text in said)]
        parts += [
            "",
            output.wrapped("note    ", f"{changes.LADDER_KEEPS} -: below {changes.NOISE:.1%}."),
        ]
    return "\n".join(parts)


def _rungs(rows: list[dict[str, Any]], *, is_stretched: bool) -> str:
    header = ("without", *_STEP_HEADER, *(["stretched ms"] if is_stretched else []))
    return output.table(
        header,
        [
            (
                row["removed"] or "nothing",
                *_step_cells(row),
                *([_ms(row["stretched_ns"])] if is_stretched else []),
            )
            for row in rows
        ],
        limit=output.width(),
    )


def _share_table(rows: list[dict[str, Any]]) -> str:
    return output.table(
        ("mechanism", "meaning", "share ms", "over all orders"),
        [
            (
                row["mechanism"],
                MECHANISMS[row["mechanism"]],
                _ms(row["share_ns"]),
                _range(row["least_ns"], row["most_ns"]),
            )
            for row in rows
        ],
        limit=output.width(),
    )


def _change_table(rows: list[dict[str, Any]]) -> str:
    return output.table(
        ("single change", *_STEP_HEADER),
        [(row["change"], *_step_cells(row)) for row in rows],
        limit=output.width(),
    )


_STEP_HEADER = ("step ms", "range", "saved ms")


def _step_cells(row: dict[str, Any]) -> tuple[str, str, str]:
    from gapscope.report import changes

    step_range = _range(row["step_min_ns"], row["step_max_ns"])
    is_noise = abs(row["saved_ns"]) < changes.NOISE * (row["step_ns"] + row["saved_ns"])
    return _ms(row["step_ns"]), step_range, "-" if is_noise else _ms(row["saved_ns"])


def _ms(value: int | None) -> str:
    return "" if value is None else fixed(value / 1e6)


def _range(low: int, high: int) -> str:
    return f"{_ms(low)}..{_ms(high)}"
