-- view:       v1.class_time
-- purpose:    What the device did in each step by class and finer class: ops, work volume, union, and their shares.
-- grain:      rank, projection, step_id, time_class, op_class
-- depends-on: v1.step_window, v1.device_op
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
WITH numbered AS (
    SELECT
        rank,
        projection,
        step_id,
        start_ns,
        end_ns,
        row_number() OVER (PARTITION BY rank, projection ORDER BY start_ns, end_ns) AS pos
    FROM v1.step_window
    WHERE projection <> 'host' AND end_ns > start_ns
),

projection AS (
    SELECT DISTINCT
        rank,
        projection
    FROM numbered
),

op AS (
    SELECT
        o.rank,
        p.projection,
        o.op_id,
        o.time_class,
        o.op_class,
        o.rule_id = 'unmatched' AS is_unmatched,
        o.start_ns,
        o.end_ns
    FROM v1.device_op AS o
    INNER JOIN projection AS p ON o.rank = p.rank
),

-- An op meets the windows of a projection from the one that it starts in to the one that it ends in.
first_met AS (
    SELECT
        o.*,
        w.pos AS first_pos
    FROM op AS o
    ASOF INNER JOIN numbered AS w ON o.rank = w.rank AND o.projection = w.projection AND o.start_ns < w.end_ns
),

last_met AS (
    SELECT
        o.*,
        w.pos AS last_pos
    FROM first_met AS o
    ASOF INNER JOIN numbered AS w ON o.rank = w.rank AND o.projection = w.projection AND o.end_ns > w.start_ns
),

met AS MATERIALIZED (
    SELECT
        * EXCLUDE (first_pos, last_pos),
        unnest(range(first_pos, last_pos + 1)) AS pos
    FROM last_met
),

part AS (
    SELECT
        m.rank,
        m.projection,
        w.step_id,
        w.end_ns - w.start_ns AS step_ns,
        m.op_id,
        m.time_class,
        m.op_class,
        m.is_unmatched,
        greatest(m.start_ns, w.start_ns) AS start_ns,
        least(m.end_ns, w.end_ns) AS end_ns
    FROM met AS m
    INNER JOIN numbered AS w ON m.rank = w.rank AND m.projection = w.projection AND m.pos = w.pos
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
    sum(added_ns) / any_value(step_ns) AS busy_share
FROM added
GROUP BY rank, projection, step_id, time_class, op_class;
