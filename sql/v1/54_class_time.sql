-- view:       v1.class_time
-- purpose:    What the device did in each step by class and finer class: ops, work volume, union, and their shares.
-- grain:      rank, projection, step_id, time_class, op_class
-- depends-on: v1.device_op, v1.op_window
-- materialise: no
-- since:      1
-- columns:
--   rank         BIGINT   -  Global rank.
--   projection   VARCHAR  -  device or capture.
--   step_id      BIGINT   -  Step.
--   time_class   VARCHAR  -  Class.
--   op_class     VARCHAR  -  Finer class.
--   op_count     BIGINT   -  Ops, each window that they run in.
--   unmatched_count BIGINT - Of these, those whose name no rule knew.
--   volume_ns    BIGINT   ns Work volume: sum of durations inside the window.
--   busy_ns      BIGINT   ns Union of its ops.
--   volume_share DOUBLE   1  Share of the window's work volume.
--   busy_share   DOUBLE   1  Union over the length of the window. Shares of classes overlap: they do not add to 1.
CREATE OR REPLACE VIEW v1.class_time AS
WITH part AS (
    SELECT
        w.rank,
        w.projection,
        w.step_id,
        w.window_ns,
        w.op_id,
        w.time_class,
        o.op_class,
        o.rule_id = 'unmatched' AS is_unmatched,
        w.start_ns,
        w.end_ns
    FROM v1.op_window AS w
    INNER JOIN v1.device_op AS o ON w.rank = o.rank AND w.op_id = o.op_id
),

added AS (
    SELECT
        *,
        greatest(0, end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
            PARTITION BY rank, projection, step_id, time_class, op_class
            ORDER BY start_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns))) AS added_ns
    FROM part
)

SELECT
    rank,
    projection,
    step_id,
    time_class,
    op_class,
    count(*) AS op_count,
    count(*) FILTER (WHERE is_unmatched) AS unmatched_count,
    sum(end_ns - start_ns)::BIGINT AS volume_ns,
    sum(added_ns)::BIGINT AS busy_ns,
    sum(end_ns - start_ns)
    / sum(sum(end_ns - start_ns)) OVER (PARTITION BY rank, projection, step_id) AS volume_share,
    sum(added_ns) / any_value(window_ns) AS busy_share
FROM added
GROUP BY rank, projection, step_id, time_class, op_class;
