-- view:       v1.operator_metric
-- purpose:    Hardware metrics of operators beside the time that they take: samples of another capture, joined by operator name and never by launch, or of the ranks' own, joined by time.
-- grain:      source_path, device, rank, level, time_class, op_class, name, metric
-- depends-on: v1.captured_metric, v1.class_metric, v1.metric_alignment, v1.sample_source, v1.rank, v1.kernel_inventory
-- materialise: no
-- since:      1
-- columns:
--   source_path  VARCHAR -  Capture that holds the samples.
--   device       BIGINT  -  Device ordinal in it.
--   rank         BIGINT  -  Global rank whose ops met the samples, where these are in a capture of the run's ranks; NULL for a capture of metrics.
--   period_ns    BIGINT  ns Usual distance of two samples.
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
--   status       VARCHAR -  As in v1.class_metric, and of a class: uncovered: covered_share is 0, so nothing is known; partial: ok, but covered_share is below 0.5.
--   timing_volume_ns BIGINT ns Work volume of the operator in the run's timing captures, all ranks; NULL where they do not have it.
--   timing_share DOUBLE  1  Its share of their work volume.
--   covered_share DOUBLE 1  Share of timing_volume_ns that is of names sampled in this capture; 1 of one name, and of samples that met the rank's ops. NULL where timing_volume_ns is.
CREATE OR REPLACE VIEW v1.operator_metric AS
WITH sampled AS (
    SELECT
        source_path,
        device,
        NULL::BIGINT AS rank,
        period_ns,
        level,
        time_class,
        op_class,
        name,
        metric,
        sample_count,
        clear_count,
        full_count,
        exclusivity,
        mean_value,
        min_value,
        max_value,
        status
    FROM v1.captured_metric
    UNION ALL
    SELECT
        r.source_path,
        o.device::BIGINT AS device,
        c.rank,
        a.period_ns,
        c.level,
        c.time_class,
        c.op_class,
        c.name,
        c.metric,
        c.sample_count,
        c.clear_count,
        c.full_count,
        c.exclusivity,
        c.mean_value,
        c.min_value,
        c.max_value,
        c.status
    FROM v1.class_metric AS c
    INNER JOIN v1.metric_alignment AS a ON c.rank = a.rank
    INNER JOIN v1.sample_source AS o ON c.rank = o.rank
    INNER JOIN v1.rank AS r ON o.source_rank = r.rank
),

-- Tools write template arguments and parameters differently: where the run's names are not those of Nsight Systems,
-- as those of captures of metrics are, the function and a first argument that is a mere name are compared.
known AS (
    SELECT DISTINCT
        source_path,
        device,
        time_class,
        op_class,
        unnest([
            name,
            regexp_extract(
                regexp_replace(name, '<unnamed>|\(anonymous namespace\)', '', 'g'), '^[^<(]*(<[\w:]+>)?'
            )
        ]) AS name
    FROM v1.captured_metric
    WHERE level = 'op' AND sample_count > 0
),

run_name AS (
    SELECT
        k.time_class,
        k.op_class,
        k.volume_ns,
        CASE
            WHEN r.source_format = 'nsys' THEN k.name
            ELSE
                regexp_extract(
                    regexp_replace(k.name, '<unnamed>|\(anonymous namespace\)', '', 'g'), '^[^<(]*(<[\w:]+>)?'
                )
        END AS name
    FROM v1.kernel_inventory AS k
    INNER JOIN v1.rank AS r ON k.rank = r.rank
),

covered AS (
    SELECT
        k.source_path,
        k.device,
        k.time_class,
        k.op_class,
        sum(n.volume_ns) AS volume_ns
    FROM known AS k
    INNER JOIN run_name AS n ON k.time_class = n.time_class AND k.op_class = n.op_class AND k.name = n.name
    GROUP BY k.source_path, k.device, k.time_class, k.op_class
),

timed AS (
    SELECT
        time_class,
        op_class,
        name,
        CASE WHEN grouping(name) = 0 THEN 'op' ELSE 'class' END AS level,
        sum(volume_ns)::BIGINT AS volume_ns
    FROM v1.kernel_inventory
    GROUP BY GROUPING SETS ((time_class, op_class), (time_class, op_class, name))
),

whole AS (
    SELECT sum(volume_ns) AS volume_ns
    FROM v1.kernel_inventory
),

joined AS (
    SELECT
        s.*,
        t.volume_ns AS timing_volume_ns,
        t.volume_ns / w.volume_ns AS timing_share,
        CASE
            WHEN t.volume_ns IS NULL THEN NULL
            WHEN s.level = 'op' OR s.rank IS NOT NULL THEN 1.0
            ELSE coalesce(c.volume_ns, 0) / t.volume_ns
        END AS covered_share
    FROM sampled AS s
    LEFT JOIN timed AS t
        ON
            s.level = t.level
            AND s.time_class = t.time_class
            AND s.op_class = t.op_class
            AND s.name IS NOT DISTINCT FROM t.name
    LEFT JOIN covered AS c
        ON
            s.source_path = c.source_path
            AND s.device = c.device
            AND s.time_class = c.time_class
            AND s.op_class = c.op_class
    CROSS JOIN whole AS w
)

SELECT
    source_path,
    device,
    rank,
    period_ns,
    level,
    time_class,
    op_class,
    name,
    metric,
    sample_count,
    clear_count,
    full_count,
    exclusivity,
    CASE WHEN covered_share = 0 THEN NULL ELSE mean_value END AS mean_value,
    CASE WHEN covered_share = 0 THEN NULL ELSE min_value END AS min_value,
    CASE WHEN covered_share = 0 THEN NULL ELSE max_value END AS max_value,
    CASE
        WHEN covered_share = 0 THEN 'uncovered'
        WHEN status = 'ok' AND covered_share < 0.5 THEN 'partial'
        ELSE status
    END AS status,
    timing_volume_ns,
    timing_share,
    covered_share
FROM joined;
