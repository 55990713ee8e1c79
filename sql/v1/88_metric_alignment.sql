-- view:       v1.metric_alignment
-- purpose:    Whether a sample of a hardware metric is of the time after its stamp or before it: told by which of them fits the device's own activity; and whether samples of another capture fit at all.
-- grain:      rank
-- depends-on: v1.sample_interval, v1.sample_source, v1.device_sample, v1.name
-- materialise: run
-- since:      1
-- columns:
--   rank             BIGINT  -  Global rank with samples.
--   interval_count   BIGINT  -  Intervals between neighbouring samples.
--   period_ns        BIGINT  ns Usual distance of two samples.
--   metric           VARCHAR -  Metric of the device's activity that was compared; NULL without one.
--   after_error      DOUBLE  %  Mean distance of a sample's value from the busy share of the interval that it begins.
--   before_error     DOUBLE  %  The same for the interval that it ends.
--   is_begin_stamped BOOLEAN -  A sample is of the interval that it begins: true unless the other one fits better.
--   source_rank      BIGINT  -  Rank in whose capture the samples are.
--   status           VARCHAR -  ok. Of another capture else: unknown clock: how the two clocks stand is not known to within a sample; no overlap: no sample while the rank's ops ran; misfit: the better error is above 10. Only ok ones are used.
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
    FROM v1.device_sample AS m
    INNER JOIN active_name AS a ON m.source_rank = a.rank AND m.name_id = a.name_id
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
    o.rank,
    coalesce(s.interval_count, 0) AS interval_count,
    s.period_ns,
    f.metric,
    f.after_error,
    f.before_error,
    coalesce(f.after_error <= f.before_error, TRUE) AS is_begin_stamped,
    o.source_rank,
    CASE
        WHEN o.rank = o.source_rank THEN 'ok'
        WHEN o.offset_ns IS NULL OR o.residual_ns IS NULL THEN 'unknown clock'
        WHEN s.rank IS NULL THEN 'no overlap'
        WHEN o.residual_ns > s.period_ns THEN 'unknown clock'
        -- In percentage points; up to 1.7 was seen of samples in their own capture, 0.4 of another one's.
        WHEN least(f.after_error, f.before_error) > 10 THEN 'misfit'
        ELSE 'ok'
    END AS status
FROM v1.sample_source AS o
LEFT JOIN sampled AS s ON o.rank = s.rank
LEFT JOIN fit AS f ON o.rank = f.rank
WHERE s.rank IS NOT NULL OR o.rank <> o.source_rank;
