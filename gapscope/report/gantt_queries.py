"""The query behind a timeline: what each stream and thread ran, and what the bound would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapscope.report.queries import Window

# Compute-absent time by launches and recorded waits.
_ABSENT = """\
    SELECT
        0 AS lane, 0 AS lane_id, start_ns, end_ns,
        absent_class AS time_class, absent_class AS name, NULL AS node
    FROM v1.absent_piece
    WHERE {where}"""

# The same time by the dependency model.
_CLASSED = """\
    SELECT
        0 AS lane, 0 AS lane_id, start_ns, end_ns, gap_class AS time_class,
        concat_ws(
            ', ', sub_cause, 'waits for ' || awaited_node, 'rank ' || culprit_rank || ' came last'
        ) AS name,
        node
    FROM v1.gap_piece
    WHERE rank = {rank} AND step_id = {step_id}"""

_OPS = """\
    SELECT 1 AS lane, stream AS lane_id, start_ns, end_ns, time_class, name, NULL AS node
    FROM v1.op
    WHERE rank = {rank}"""

_NODES = """\
    SELECT
        1 AS lane, o.stream AS lane_id, o.start_ns, o.end_ns, o.time_class, o.name, u.node
    FROM v1.op AS o
    LEFT JOIN v1.op_unit AS u ON o.rank = u.rank AND o.op_id = u.op_id
    WHERE o.rank = {rank}"""

# The schedule of the bound, from the start of the observed window on.
_BOUND = """\
    UNION ALL
    SELECT
        2 AS lane,
        CASE
            WHEN regexp_matches(b.node, '^(FWD|BWD|OPT|AGOUT|RSIN)') THEN 0
            WHEN regexp_matches(b.node, '^(AG|RS|AR|COMM)[^A-Z]') THEN 1
            ELSE 2
        END AS lane_id,
        f.start_ns + b.start_ns AS start_ns, f.start_ns + b.end_ns AS end_ns,
        CASE
            WHEN regexp_matches(b.node, '^(FWD|BWD|OPT)') THEN 'compute'
            WHEN regexp_matches(b.node, '^(AG|RS|AR|COMM)[^A-Z]') THEN 'communication'
            ELSE 'packing'
        END AS time_class,
        b.node AS name,
        CASE WHEN b.chain_position IS NOT NULL THEN 'on the binding chain' END AS node
    FROM v1.bound_node AS b
    CROSS JOIN frame AS f
    WHERE b.rank = {rank} AND b.step_id = {step_id}
"""


def gantt(
    window: Window, grain_ns: int, *, has_bound: bool = False, has_classes: bool = False
) -> str:
    """Boxes of a Gantt: compute-absent pieces, streams, the bound, and the threads that launch.

    What is shorter than `grain_ns` shares a box with its class in one slot of that length. Such a
    box is as long as its items are together, so no box covers time that is not its own; boxes of
    one slot follow each other. Of calls inside calls the outermost one is drawn.
    """
    at = {"where": window.where, "rank": window.rank, "step_id": window.step_id}
    absent = (_CLASSED if has_classes else _ABSENT).format(**at)
    ops = (_NODES if has_bound else _OPS).format(**at)
    bound = _BOUND.format(**at) if has_bound else ""
    return f"""\
WITH frame AS (
    SELECT start_ns, end_ns FROM v1.step_window
    WHERE {window.where}
),
item AS (
{absent}
    UNION ALL
{ops}
{bound}    UNION ALL
    SELECT
        3 AS lane, a.tid AS lane_id, a.start_ns, a.end_ns,
        CASE
            WHEN n.name ILIKE '%synchronize%' THEN 'host_sync'
            WHEN n.name ILIKE '%launch%' OR n.name ILIKE '%memcpy%' OR n.name ILIKE '%memset%'
                THEN 'host_launch'
            ELSE 'host_other'
        END AS time_class,
        n.name, NULL AS node
    FROM v1.api_call AS a
    LEFT JOIN v1.name AS n ON a.rank = n.rank AND a.name_id = n.name_id
    WHERE a.rank = {window.rank}
        AND a.tid IN (SELECT launch_tid FROM v1.launch_pacing WHERE rank = {window.rank})
    QUALIFY coalesce(a.end_ns > max(a.end_ns) OVER (
        PARTITION BY a.tid ORDER BY a.start_ns, a.end_ns DESC, a.call_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true)
),
clipped AS (
    SELECT
        i.lane, i.lane_id, i.time_class, i.name, i.node,
        greatest(i.start_ns, f.start_ns) - f.start_ns AS start_ns,
        least(i.end_ns, f.end_ns) - f.start_ns AS end_ns
    FROM item AS i
    INNER JOIN frame AS f ON i.start_ns < f.end_ns AND i.end_ns > f.start_ns
    WHERE i.end_ns > i.start_ns
),
slotted AS (
    SELECT
        *,
        CASE
            WHEN end_ns - start_ns < {grain_ns} THEN start_ns // {max(grain_ns, 1)}
            ELSE -1 - row_number() OVER (ORDER BY lane, lane_id, start_ns, end_ns, name)
        END AS slot
    FROM clipped
),
box AS (
    SELECT
        lane, lane_id, slot, time_class,
        min(start_ns) AS start_ns, max(end_ns) AS end_ns,
        arg_max(name, (end_ns - start_ns, name)) AS name,
        arg_max(node, (end_ns - start_ns, name)) AS node,
        count(*)::BIGINT AS op_count,
        sum(end_ns - start_ns)::BIGINT AS busy_ns
    FROM slotted
    GROUP BY lane, lane_id, slot, time_class
),
placed AS (
    SELECT
        *,
        min(start_ns) OVER whole + sum(busy_ns) OVER following - busy_ns AS from_ns,
        max(end_ns) OVER whole AS last_ns
    FROM box
    WINDOW
        whole AS (PARTITION BY lane, lane_id, slot),
        following AS (PARTITION BY lane, lane_id, slot ORDER BY start_ns, time_class)
)
SELECT
    lane, lane_id,
    from_ns::BIGINT AS start_ns, least(from_ns + busy_ns, last_ns)::BIGINT AS end_ns,
    time_class, name, node, op_count, busy_ns
FROM placed
WHERE from_ns < last_ns
ORDER BY lane, lane_id, start_ns, end_ns, name"""
