-- view:       pair.wall
-- purpose:    Each instant of the steps of one rank, charged to the compute op that runs or that is waited for: the parts sum to each step.
-- grain:      step_id, name, op_class, node, unit, phase, range_text, piece
-- depends-on: v1.step_window, v1.step_budget, v1.step, v1.device_op, v1.absent_piece, v1.op, v1.op_unit
-- materialise: side
-- since:      1
-- columns:
--   step_id    BIGINT  -  Step; 0 for the whole capture.
--   name       VARCHAR -  Kernel that runs or is waited for; NULL after the last one of the window.
--   op_class   VARCHAR -  Its class.
--   node       VARCHAR -  Node of the program that it belongs to; NULL without one.
--   unit       VARCHAR -  Unit of that node.
--   phase      VARCHAR -  Phase of that node.
--   range_text VARCHAR -  Innermost annotation around its launch; NULL without one besides that of the step.
--   piece      VARCHAR -  compute, launch_starved, blocking, stalled or tail.
--   wall_ns    BIGINT  ns Length of these instants. Of two compute ops that overlap the earlier one is charged.
CREATE OR REPLACE VIEW pair.wall AS
WITH counted AS (
    SELECT
        w.rank,
        w.step_id,
        w.projection,
        w.start_ns,
        w.end_ns
    FROM v1.step_window AS w
    INNER JOIN v1.step_budget AS b
        ON w.rank = b.rank AND w.projection = b.projection AND w.step_id = b.step_id
    WHERE
        w.rank = getvariable('gapscope_rank')
        AND w.projection = getvariable('gapscope_projection')
        AND coalesce(NOT b.is_boundary, TRUE)
),

-- The step's own range names another step in each: it is no range inside of it.
step_label AS (
    SELECT DISTINCT label
    FROM v1.step
    WHERE rank = getvariable('gapscope_rank')
),

compute AS (
    SELECT
        op_id,
        start_ns,
        end_ns,
        max(end_ns) OVER (
            ORDER BY start_ns, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until_ns
    FROM v1.device_op
    WHERE rank = getvariable('gapscope_rank') AND time_class IN ('compute', 'graph')
),

added AS (
    SELECT
        op_id,
        greatest(start_ns, coalesce(busy_until_ns, start_ns)) AS start_ns,
        end_ns
    FROM compute
),

charged AS (
    SELECT
        w.rank,
        w.step_id,
        a.op_id,
        'compute' AS piece,
        least(a.end_ns, w.end_ns) - greatest(a.start_ns, w.start_ns) AS wall_ns
    FROM added AS a
    INNER JOIN counted AS w ON a.start_ns < w.end_ns AND a.end_ns > w.start_ns
    WHERE a.end_ns > a.start_ns
    UNION ALL
    SELECT
        p.rank,
        p.step_id,
        CASE WHEN p.absent_class <> 'tail' THEN p.op_id END AS op_id,
        p.absent_class AS piece,
        p.dur_ns AS wall_ns
    FROM v1.absent_piece AS p
    INNER JOIN counted AS w
        ON p.rank = w.rank AND p.projection = w.projection AND p.step_id = w.step_id
)

SELECT
    c.step_id,
    o.name,
    o.op_class,
    u.node,
    u.unit,
    u.phase,
    CASE WHEN s.label IS NULL THEN o.annotation END AS range_text,
    c.piece,
    sum(c.wall_ns)::BIGINT AS wall_ns
FROM charged AS c
LEFT JOIN v1.op AS o ON c.rank = o.rank AND c.op_id = o.op_id
LEFT JOIN v1.op_unit AS u ON c.rank = u.rank AND c.op_id = u.op_id
LEFT JOIN step_label AS s ON o.annotation = s.label
GROUP BY c.step_id, o.name, o.op_class, u.node, u.unit, u.phase, range_text, c.piece;
