-- view:       v1.class_metric
-- purpose:    Sampled hardware metrics per operator class and per op name: the mean of samples in which exactly that one ran, how many, and how exclusive.
-- grain:      rank, level, time_class, op_class, name, metric
-- depends-on: v1.sample_interval, v1.metric_alignment, v1.device_sample, v1.device_op, v1.name
-- materialise: run
-- since:      1
-- columns:
--   rank         BIGINT  -  Global rank.
--   level        VARCHAR -  class, or op for one name.
--   time_class   VARCHAR -  Class.
--   op_class     VARCHAR -  Finer class.
--   name         VARCHAR -  Kernel or copy name; NULL in rows of a class.
--   metric       VARCHAR -  Metric with its unit, as the tool names it.
--   sample_count BIGINT  -  Samples in whose time it ran at all.
--   clear_count  BIGINT  -  Of these, those in which no other class (or name) ran.
--   full_count   BIGINT  -  Of these, those of whose time it ran 90 % or more: the values are of these.
--   exclusivity  DOUBLE  1  clear_count / sample_count; NULL where it was never sampled.
--   mean_value   DOUBLE  -  Mean in the unit of the metric; NULL without a full sample.
--   min_value    DOUBLE  -  Smallest.
--   max_value    DOUBLE  -  Largest.
--   status       VARCHAR -  ok; contaminated: exclusivity below 0.5; unsampled: no full sample, so nothing is known.
-- audit metric_counts_nest:
--   SELECT c.rank, c.metric FROM v1.class_metric AS c WHERE c.full_count > c.clear_count OR c.clear_count > c.sample_count
CREATE OR REPLACE VIEW v1.class_metric AS
WITH sampled AS (
    SELECT
        i.rank,
        i.interval_id,
        i.start_ns,
        i.end_ns,
        CASE WHEN a.is_begin_stamped THEN i.start_ns ELSE i.end_ns END AS ts_ns
    FROM v1.sample_interval AS i
    INNER JOIN v1.metric_alignment AS a ON i.rank = a.rank
    WHERE a.status = 'ok'
),

op AS (
    SELECT
        o.rank,
        o.op_id,
        o.time_class,
        o.op_class,
        o.name_id,
        o.start_ns,
        o.end_ns
    FROM v1.device_op AS o
    WHERE o.rank IN (SELECT s.rank FROM sampled AS s)
),

-- The intervals that an op meets go from the first that ends behind its start to the last that begins before its end.
first_met AS (
    SELECT
        o.*,
        s.interval_id AS first_id
    FROM op AS o
    ASOF INNER JOIN sampled AS s ON o.rank = s.rank AND o.start_ns < s.end_ns
),

last_met AS (
    SELECT
        o.*,
        s.interval_id AS last_id
    FROM first_met AS o
    ASOF INNER JOIN sampled AS s ON o.rank = s.rank AND o.end_ns > s.start_ns
),

met AS MATERIALIZED (
    SELECT
        * EXCLUDE (first_id, last_id),
        unnest(range(first_id, last_id + 1)) AS interval_id
    FROM last_met
),

part AS (
    SELECT
        m.rank,
        m.interval_id,
        m.op_id,
        m.time_class,
        m.op_class,
        m.name_id,
        s.end_ns - s.start_ns AS length_ns,
        greatest(m.start_ns, s.start_ns) AS start_ns,
        least(m.end_ns, s.end_ns) AS end_ns
    FROM met AS m
    INNER JOIN sampled AS s ON m.rank = s.rank AND m.interval_id = s.interval_id
),

keyed AS (
    SELECT
        * EXCLUDE (name_id),
        'class' AS level,
        NULL::BIGINT AS name_id
    FROM part
    UNION ALL
    SELECT
        * EXCLUDE (name_id),
        'op' AS level,
        name_id
    FROM part
),

added AS (
    SELECT
        *,
        greatest(0, end_ns - greatest(start_ns, coalesce(
            max(end_ns) OVER (
                PARTITION BY rank, interval_id, level, time_class, op_class, name_id
                ORDER BY start_ns, op_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            start_ns
        ))) AS added_ns
    FROM keyed
),

-- What ran in one interval, and whether nothing else did.
ran AS (
    SELECT
        rank,
        interval_id,
        level,
        time_class,
        op_class,
        name_id,
        sum(added_ns) >= 0.9 * any_value(length_ns) AS is_full,
        count(*) OVER (PARTITION BY rank, interval_id, level) = 1 AS is_clear
    FROM added
    GROUP BY rank, interval_id, level, time_class, op_class, name_id
),

measured AS (
    SELECT
        rank,
        source_rank,
        ts_ns,
        name_id,
        value
    FROM v1.device_sample
),

summed AS (
    SELECT
        r.rank,
        r.level,
        r.time_class,
        r.op_class,
        r.name_id,
        m.name_id AS metric_id,
        count(*) AS sample_count,
        count(*) FILTER (WHERE r.is_clear) AS clear_count,
        count(*) FILTER (WHERE r.is_clear AND r.is_full) AS full_count,
        avg(m.value) FILTER (WHERE r.is_clear AND r.is_full) AS mean_value,
        min(m.value) FILTER (WHERE r.is_clear AND r.is_full) AS min_value,
        max(m.value) FILTER (WHERE r.is_clear AND r.is_full) AS max_value
    FROM ran AS r
    INNER JOIN sampled AS s ON r.rank = s.rank AND r.interval_id = s.interval_id
    INNER JOIN measured AS m ON s.rank = m.rank AND s.ts_ns = m.ts_ns
    GROUP BY r.rank, r.level, r.time_class, r.op_class, r.name_id, m.name_id
),

-- What no sample met is listed too: unknown, not absent.
known AS (
    SELECT
        o.rank,
        v.level,
        o.time_class,
        o.op_class,
        CASE WHEN v.level = 'op' THEN o.name_id END AS name_id
    FROM op AS o
    CROSS JOIN (VALUES ('class'), ('op')) AS v (level)
    GROUP BY ALL
),

metric AS (
    SELECT DISTINCT
        rank,
        source_rank,
        name_id
    FROM measured
    WHERE rank IN (SELECT s.rank FROM sampled AS s)
)

SELECT
    k.rank,
    k.level,
    k.time_class,
    k.op_class,
    CASE WHEN k.level = 'op' THEN coalesce(n.name, '[unknown op]') END AS name,
    coalesce(t.name, '[unknown metric]') AS metric,
    coalesce(s.sample_count, 0) AS sample_count,
    coalesce(s.clear_count, 0) AS clear_count,
    coalesce(s.full_count, 0) AS full_count,
    s.clear_count / s.sample_count AS exclusivity,
    s.mean_value,
    s.min_value,
    s.max_value,
    CASE
        WHEN coalesce(s.full_count, 0) = 0 THEN 'unsampled'
        WHEN s.clear_count < 0.5 * s.sample_count THEN 'contaminated'
        ELSE 'ok'
    END AS status
FROM known AS k
INNER JOIN metric AS m ON k.rank = m.rank
LEFT JOIN summed AS s
    ON
        k.rank = s.rank
        AND k.level = s.level
        AND k.time_class = s.time_class
        AND k.op_class = s.op_class
        AND k.name_id IS NOT DISTINCT FROM s.name_id
        AND m.name_id = s.metric_id
LEFT JOIN v1.name AS n ON k.rank = n.rank AND k.name_id = n.name_id
LEFT JOIN v1.name AS t ON m.source_rank = t.rank AND m.name_id = t.name_id;
