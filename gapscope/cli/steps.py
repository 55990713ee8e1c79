"""`gapscope steps`: the steps of a run, and the ranges that could be steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gapscope.cli import output
from gapscope.cli.options import DEFAULT_RUN, Json, RunArgument
from gapscope.errors import EXIT_INCONCLUSIVE, GapscopeError
from gapscope.report.survey import spans

_STEPS = """
SELECT
    s.rank, s.step_id, s.label, s.source,
    (s.host_start_ns - min(s.host_start_ns) OVER ())::BIGINT AS host_start_ns,
    (s.host_end_ns - s.host_start_ns)::BIGINT AS host_ns,
    (s.device_end_ns - s.device_start_ns)::BIGINT AS device_ns,
    s.is_boundary, s.boundary_reason
FROM v1.step AS s
WHERE ? IS NULL OR s.rank = ?
ORDER BY s.rank, s.step_id
"""

# What steps could be taken from, and whether it is the same steps as those of the anchor in use.
_ANCHORS = """
SELECT
    a.rank, a.source, a.step_count, a.median_ns, a.min_ns, a.max_ns, a.op_count_min,
    a.op_count_max, a.pair_count, a.apart_count, a.verdict
FROM v1.anchor_check AS a
WHERE ? IS NULL OR a.rank = ?
ORDER BY a.rank, a.priority
"""

# A step is a range of the host that returns a few times and together covers much of the capture:
# of the time from the first range or device op to the last. Names that differ in numbers only are
# one, written as `step \d+`. Where ranges of one name overlap, it counts once.
_CANDIDATES = r"""
WITH named AS (
    SELECT
        r.rank, r.range_id, r.kind, r.domain, n.name, r.start_ns, r.end_ns,
        regexp_replace(n.name, '\d+', '\\d+', 'g') AS pattern
    FROM v1.range AS r
    LEFT JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
    WHERE r.kind IN ('push_pop', 'start_end', 'user_annotation')
        AND (? IS NULL OR r.rank = ?)
        AND r.end_ns >= r.start_ns
),

added AS (
    SELECT
        *,
        greatest(0, end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
            PARTITION BY rank, kind, domain, pattern ORDER BY start_ns, range_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns))) AS added_ns
    FROM named
),

whole AS (
    SELECT rank, max(end_ns)::DOUBLE - min(start_ns) AS whole_ns
    FROM (
        SELECT rank, start_ns, end_ns FROM named
        UNION ALL
        SELECT rank, start_ns, end_ns FROM v1.step_window WHERE projection = 'capture'
    )
    GROUP BY rank
)

SELECT
    a.rank, a.kind,
    CASE
        WHEN a.pattern IS NULL THEN '[unknown range]'
        WHEN count(DISTINCT a.name) > 1 THEN a.pattern
        ELSE any_value(a.name)
    END AS name,
    count(*) AS range_count,
    median(a.end_ns - a.start_ns)::BIGINT AS median_ns,
    sum(a.added_ns) / any_value(w.whole_ns) AS capture_share
FROM added AS a
INNER JOIN whole AS w ON a.rank = w.rank
GROUP BY a.rank, a.kind, a.domain, a.pattern
HAVING sum(a.added_ns) >= 0.05 * any_value(w.whole_ns) AND any_value(w.whole_ns) > 0
ORDER BY a.rank, capture_share DESC, name
"""


def steps(
    run: RunArgument = DEFAULT_RUN,
    rank: Annotated[int | None, typer.Option(help="Only this rank.")] = None,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="What could be steps instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the steps of each rank: windows, anchor, and which are kept out of medians.

    With `--candidates`, the anchors that the capture offers, and ranges that cover much of it. Exit
    code 3 when the run has none.

    Example: gapscope steps --candidates
    """
    from gapscope.run import open_run

    with open_run(run) as opened:
        if rank is not None:
            _check_rank(rank, opened.sql("FROM v1.rank")["rank"].to_list(), run)
        frame = opened.sql(_CANDIDATES if candidates else _STEPS, [rank, rank])
        anchors = opened.sql(_ANCHORS, [rank, rank]) if candidates else None
    if as_json:
        found = {"candidates" if candidates else "steps": frame.to_dicts()}
        if anchors is not None:
            found["anchors"] = anchors.to_dicts()
        output.document("gapscope.steps/1", {"run": str(run), **found})
    elif anchors is not None:
        tables = [
            *([] if anchors.is_empty() else [_anchor_table(anchors.to_dicts())]),
            *([] if frame.is_empty() else [_candidate_table(frame.rows())]),
        ]
        if tables:
            output.data("\n\n".join(tables))
    else:
        output.data(_step_table(frame.rows()))
    if frame.is_empty() and (anchors is None or anchors.is_empty()):
        raise _nothing(str(run), candidates=candidates)


def _check_rank(rank: int, ranks: list[int], run: Path) -> None:
    if rank not in ranks:
        raise GapscopeError("no-rank", f"`{run}` has no rank {rank}", f"its ranks: {spans(ranks)}")


def _step_table(rows: list[tuple[object, ...]]) -> str:
    header = ("rank", "step", "label", "anchor", "start ms", "host ms", "dev ms", "boundary")
    return output.table(
        header,
        [
            (rank, step, label, source, _ms(start), _ms(host), _ms(device), reason or flag or "")
            for rank, step, label, source, start, host, device, flag, reason in rows
        ],
        limit=output.screen_width(),
    )


def _anchor_table(rows: list[dict[str, Any]]) -> str:
    header = ("rank", "anchor", "steps", "median ms", "min ms", "max ms", "ops a step", "verdict")
    return output.table(
        header,
        [
            (
                row["rank"],
                row["source"],
                row["step_count"],
                *(_ms(row[name]) for name in ("median_ns", "min_ns", "max_ns")),
                _ops(row["op_count_min"], row["op_count_max"]),
                row["verdict"],
            )
            for row in rows
        ],
        limit=output.screen_width(),
    )


def _ops(low: int | None, high: int | None) -> str:
    if low is None:
        return ""
    return f"{low}" if low == high else f"{low}-{high}"


def _candidate_table(rows: list[tuple[object, ...]]) -> str:
    header = ("rank", "kind", "range", "count", "median ms", "of capture")
    return output.table(
        header,
        [
            (rank, kind, name, count, _ms(median), f"{share:.0%}")
            for rank, kind, name, count, median, share in rows
        ],
        limit=output.screen_width(),
    )


def _ms(value: object) -> str:
    return "" if value is None else f"{int(str(value)) / 1e6:.3f}"


def _nothing(run: str, *, candidates: bool) -> GapscopeError:
    if candidates:
        return GapscopeError(
            "no-candidates",
            f"no range of `{run}` covers a twentieth of the capture",
            "annotate the training step, e.g. with `torch.profiler` steps or an NVTX range",
            EXIT_INCONCLUSIVE,
        )
    return GapscopeError(
        "no-steps",
        f"no steps found in `{run}`",
        f"list ranges with `gapscope steps {run} --candidates`, then `gapscope ingest --steps`",
        EXIT_INCONCLUSIVE,
    )
