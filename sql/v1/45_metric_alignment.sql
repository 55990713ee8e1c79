-- view:       v1.metric_alignment
-- purpose:    Whether a sample of a hardware metric is of the time after its stamp or before it: told by which of them fits the device's own activity.
-- grain:      rank
-- depends-on: v1.sample_interval, v1.metric_sample, v1.name, v1.rank
-- materialise: no
-- since:      1
-- columns:
--   rank             BIGINT  -  Global rank with samples.
--   interval_count   BIGINT  -  Intervals between neighbouring samples.
--   period_ns        BIGINT  ns Usual distance of two samples.
--   metric           VARCHAR -  Metric of the device's activity that was compared; NULL without one.
--   after_error      DOUBLE  %  Mean distance of a sample's value from the busy share of the interval that it begins.
--   before_error     DOUBLE  %  The same for the interval that it ends.
--   is_begin_stamped BOOLEAN -  A sample is of the interval that it begins: true unless the other one fits better.
CREATE OR REPLACE VIEW v1.metric_alignment AS
WITH sampled AS (
    SELECT
        rank,
        count(*) AS interval_count,
        median(end_ns - start_ns)::BIGINT AS period_ns
    FROM v1.sample_interval
    GROUP BY rank
),

active_name AS (
    SELECT
        n.rank,
        n.name_id,
        n.name
    FROM v1.name AS n
    WHERE regexp_matches(n.name, '^(GR|SMs?) Active\b')
),

active AS (
    SELECT
        m.rank,
        m.ts_ns,
        m.value,
        a.name
    FROM v1.metric_sample AS m
    INNER JOIN v1.rank AS r ON m.rank = r.rank AND m.device = r.device
    INNER JOIN active_name AS a ON m.rank = a.rank AND m.name_id = a.name_id
    QUALIFY a.name = min(a.name) OVER (PARTITION BY m.rank)
),

fit AS (
    SELECT
        i.rank,
        min(a.name) AS metric,
        avg(abs(100.0 * i.busy_ns / (i.end_ns - i.start_ns) - a.value)) AS after_error,
        avg(abs(100.0 * i.busy_ns / (i.end_ns - i.start_ns) - b.value)) AS before_error
    FROM v1.sample_interval AS i
    INNER JOIN active AS a ON i.rank = a.rank AND i.start_ns = a.ts_ns
    INNER JOIN active AS b ON i.rank = b.rank AND i.end_ns = b.ts_ns
    GROUP BY i.rank
)

SELECT
    s.rank,
    s.interval_count,
    s.period_ns,
    f.metric,
    f.after_error,
    f.before_error,
    coalesce(f.after_error <= f.before_error, TRUE) AS is_begin_stamped
FROM sampled AS s
LEFT JOIN fit AS f ON s.rank = f.rank;
