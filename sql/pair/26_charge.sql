-- view:       pair.charge
-- purpose:    The steps of the shown rank by what is charged: node, annotated range, kernel class, kernel. Each level sums to the step.
-- grain:      side, step_id, level, label, op_class
-- depends-on: pair.wall
-- materialise: no
-- since:      1
-- columns:
--   side       VARCHAR -  A or B.
--   step_id    BIGINT  -  Step.
--   level   VARCHAR -  node, range, class or kernel.
--   label      VARCHAR -  The node, ...; NULL for time that belongs to none.
--   op_class   VARCHAR -  Class of the kernel; NULL in other groupings.
--   compute_ns BIGINT  ns It computes.
--   wait_ns    BIGINT  ns Nothing computes until it does.
CREATE OR REPLACE VIEW pair.charge AS
WITH labelled AS (
    SELECT
        side,
        step_id,
        'node' AS level,
        node AS label,
        NULL AS op_class,
        piece,
        wall_ns
    FROM pair.wall
    UNION ALL
    SELECT
        side,
        step_id,
        'range' AS level,
        range_text AS label,
        NULL AS op_class,
        piece,
        wall_ns
    FROM pair.wall
    UNION ALL
    SELECT
        side,
        step_id,
        'class' AS level,
        op_class AS label,
        NULL AS op_class,
        piece,
        wall_ns
    FROM pair.wall
    UNION ALL
    SELECT
        side,
        step_id,
        'kernel' AS level,
        name AS label,
        op_class,
        piece,
        wall_ns
    FROM pair.wall
)

SELECT
    side,
    step_id,
    level,
    label,
    op_class,
    coalesce(sum(wall_ns) FILTER (WHERE piece = 'compute'), 0)::BIGINT AS compute_ns,
    coalesce(sum(wall_ns) FILTER (WHERE piece <> 'compute'), 0)::BIGINT AS wait_ns
FROM labelled
GROUP BY side, step_id, level, label, op_class;
