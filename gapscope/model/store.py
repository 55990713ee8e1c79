"""Write result rows into the run, and let SQL add what SQL knows better."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from gapscope.schema.results import MODEL_TABLES

if TYPE_CHECKING:
    import duckdb

# What the launching thread did while nothing was issued: the kind of call that took most of it.
_LAUNCH_CAUSE = """
CREATE TEMP TABLE launch_cause AS
WITH late AS MATERIALIZED (
    SELECT p.cause_rank AS rank, p.cause_start_ns, p.cause_end_ns, w.step_id, w.node_id
    FROM v1.gap_piece AS p
    INNER JOIN v1.op_unit AS w ON p.rank = w.rank AND p.op_id = w.op_id
    WHERE p.gap_class = 'R1'
),
-- Of a thousand ranks a few hold the causes.
node_thread AS (
    SELECT DISTINCT u.rank, u.step_id, u.node_id, o.launch_tid AS tid
    FROM (SELECT DISTINCT rank, step_id, node_id FROM late) AS l
    INNER JOIN v1.op_unit AS u
        ON l.rank = u.rank AND l.step_id = u.step_id AND l.node_id = u.node_id
    INNER JOIN v1.device_op AS o ON u.rank = o.rank AND u.op_id = o.op_id
),
piece AS (
    SELECT DISTINCT l.rank, l.cause_start_ns, l.cause_end_ns, t.tid
    FROM late AS l
    -- The same node on the rank where the cause lies was launched late there.
    INNER JOIN node_thread AS t
        ON l.rank = t.rank AND l.step_id = t.step_id AND l.node_id = t.node_id
),
named AS (
    SELECT
        n.rank, n.name_id,
        CASE
            WHEN regexp_matches(n.name, 'Synchronize|EventQuery|StreamQuery') THEN 'sync call'
            WHEN regexp_matches(n.name, 'Malloc|MemAlloc|Free|MemPool|MemMap|MemCreate')
                THEN 'allocation'
            WHEN regexp_matches(n.name, '(Module|Library)(Load|Get)') THEN 'module load'
            ELSE 'other API'
        END AS activity
    FROM v1.name AS n
),
-- Time inside calls up to t is the sum of (t - start) of those begun less that of (t - end) of
-- those ended: running counts and sums tell it at any moment, however calls nest. Pairs of calls
-- and pieces would be too many.
event AS (
    SELECT
        a.rank, a.tid, n.activity, e.at_ns, e.sign,
        e.at_ns - min(e.at_ns) OVER (PARTITION BY a.rank) AS since_ns
    FROM v1.api_call AS a
    INNER JOIN named AS n ON a.rank = n.rank AND a.name_id = n.name_id
    INNER JOIN (SELECT DISTINCT rank, tid FROM piece) AS t ON a.rank = t.rank AND a.tid = t.tid
    CROSS JOIN unnest([
        {'at_ns': a.start_ns, 'sign': 1}, {'at_ns': a.end_ns, 'sign': -1}
    ]) AS u (e)
    WHERE a.end_ns > a.start_ns
),
running AS (
    SELECT
        rank, tid, activity, at_ns, at_ns - since_ns AS base_ns,
        sum(sign) OVER so_far AS open_count,
        sum(sign * since_ns) OVER so_far AS open_sum_ns
    FROM event
    WINDOW so_far AS (
        PARTITION BY rank, tid, activity ORDER BY at_ns
        RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
boundary AS (
    SELECT p.rank, p.tid, k.activity, p.cause_start_ns, p.cause_end_ns, m.at_ns, m.sign
    FROM piece AS p
    CROSS JOIN (SELECT DISTINCT activity FROM named) AS k
    CROSS JOIN unnest([
        {'at_ns': p.cause_end_ns, 'sign': 1}, {'at_ns': p.cause_start_ns, 'sign': -1}
    ]) AS u (m)
),
inside AS (
    SELECT
        b.rank, b.cause_start_ns, b.cause_end_ns, b.activity,
        sum(b.sign * (r.open_count * (b.at_ns - r.base_ns) - r.open_sum_ns)) AS busy_ns
    FROM boundary AS b
    ASOF INNER JOIN running AS r
        ON b.rank = r.rank AND b.tid = r.tid AND b.activity = r.activity AND b.at_ns >= r.at_ns
    GROUP BY b.rank, b.cause_start_ns, b.cause_end_ns, b.activity
    HAVING busy_ns > 0
)
SELECT
    p.rank, p.cause_start_ns, p.cause_end_ns,
    CASE
        WHEN coalesce(max(i.busy_ns), 0) * 2 >= p.cause_end_ns - p.cause_start_ns
            THEN arg_max(i.activity, i.busy_ns)
        ELSE 'no CUDA call'
    END AS activity
FROM piece AS p
LEFT JOIN inside AS i
    ON p.rank = i.rank AND p.cause_start_ns = i.cause_start_ns AND p.cause_end_ns = i.cause_end_ns
GROUP BY p.rank, p.cause_start_ns, p.cause_end_ns
"""

_SET_LAUNCH_CAUSE = """
UPDATE v1.gap_piece SET sub_cause = c.activity
FROM launch_cause AS c
WHERE gap_class = 'R1' AND cause_rank = c.rank
    AND gap_piece.cause_start_ns = c.cause_start_ns AND gap_piece.cause_end_ns = c.cause_end_ns
"""


def store(
    con: duckdb.DuckDBPyConnection,
    rows: dict[str, list[tuple[Any, ...]]],
    columns: dict[str, list[dict[str, Any]]],
) -> None:
    """Replace the result tables by these rows and columns, in one transaction."""
    import pyarrow as pa

    con.execute("BEGIN")
    for name, table in MODEL_TABLES.items():
        con.execute(f'DELETE FROM v1."{name}"')
        schema = table.arrow_schema()
        parts = list(columns.get(name, []))
        if rows.get(name):
            parts.append(dict(zip(schema.names, zip(*rows[name], strict=True), strict=True)))
        for part in parts:
            arrays = [pa.array(part[field.name], field.type) for field in schema]
            con.register("arrow_rows", pa.table(arrays, schema=schema))
            con.execute(f'INSERT INTO v1."{name}" SELECT * FROM arrow_rows')
            con.unregister("arrow_rows")
    con.execute(_LAUNCH_CAUSE)
    con.execute(_SET_LAUNCH_CAUSE)
    con.execute("DROP TABLE launch_cause")
    con.execute("COMMIT")


def store_failure(con: duckdb.DuckDBPyConnection, error: BaseException) -> None:
    """Say in `model_check` that the model stopped, and where; the other tables stay empty."""
    import duckdb

    # The text of the exception may quote the capture: only its kind and place are named.
    kind = type(error).__name__
    if isinstance(error, (MemoryError, duckdb.OutOfMemoryException)):
        detail = (
            f"the dependency model ran out of memory ({kind}): ingest again with a larger "
            "`--memory-limit`, or fewer steps"
        )
    else:
        frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
        for at in traceback.walk_tb(error.__traceback__):
            if str(at[0].f_globals.get("__name__", "")).startswith("gapscope."):
                frame, line = at
        where = f"{frame.f_globals.get('__name__')}, line {line}"
        detail = (
            f"the dependency model stopped with {kind} in {where}: a bug of GapScope; please "
            "report it with this line. What is not the model's stands"
        )
    for name in MODEL_TABLES:
        con.execute(f'DELETE FROM v1."{name}"')
    con.execute(
        "INSERT INTO v1.model_check VALUES ('model_failed', NULL, 'fail', NULL, NULL, $1, 'bound')",
        [detail],
    )
