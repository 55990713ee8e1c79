-- view:       v1.perturbation
-- purpose:    Profiled steady steps beside steps of the same run that no profiler watched, as declared: whether profiling slowed the run down. Nothing is corrected by it.
-- grain:      rank
-- depends-on: v1.step_budget, v1.declared
-- materialise: run
-- since:      1
-- columns:
--   rank                BIGINT  -  Global rank.
--   profiled_count      BIGINT  -  Profiled steps that count: device windows outside the boundary.
--   profiled_median_ns  BIGINT  ns Their median.
--   profiled_min_ns     BIGINT  ns Shortest.
--   profiled_max_ns     BIGINT  ns Longest.
--   reference_count     BIGINT  -  Unprofiled steps: reference_step_ms of [run] in gapscope.toml.
--   reference_median_ns BIGINT  ns Their median.
--   reference_min_ns    BIGINT  ns Shortest.
--   reference_max_ns    BIGINT  ns Longest.
--   slowdown            DOUBLE  -  profiled_median_ns / reference_median_ns - 1; NULL where the reference is implausible.
--   spread_ns           BIGINT  ns Natural spread: the wider of both middle 90 %; NULL where neither has two steps.
--   verdict             VARCHAR -  perturbed: slower by more than 2 % and more than the spread; faster: by as much, so that these are no steps of one run; not material; implausible: more than ten times as long, as in another unit.
CREATE OR REPLACE VIEW v1.perturbation AS
WITH profiled AS (
    SELECT
        rank,
        count(*) AS step_count,
        median(step_ns)::BIGINT AS median_ns,
        min(step_ns) AS min_ns,
        max(step_ns) AS max_ns,
        CASE WHEN count(*) > 1 THEN quantile_cont(step_ns, 0.95) - quantile_cont(step_ns, 0.05) END AS spread_ns
    FROM v1.step_budget
    WHERE projection = 'device' AND NOT is_boundary AND step_ns > 0
    GROUP BY rank
),

listed AS (
    SELECT round(1e6 * unnest(from_json(value, '["DOUBLE"]')))::BIGINT AS step_ns
    FROM v1.declared
    WHERE section = 'run' AND item = 'reference_step_ms'
),

reference AS (
    SELECT
        count(*) AS step_count,
        median(step_ns)::BIGINT AS median_ns,
        min(step_ns) AS min_ns,
        max(step_ns) AS max_ns,
        CASE WHEN count(*) > 1 THEN quantile_cont(step_ns, 0.95) - quantile_cont(step_ns, 0.05) END AS spread_ns
    FROM listed
    HAVING count(*) > 0
),

compared AS (
    SELECT
        p.rank,
        p.step_count AS profiled_count,
        p.median_ns AS profiled_median_ns,
        p.min_ns AS profiled_min_ns,
        p.max_ns AS profiled_max_ns,
        r.step_count AS reference_count,
        r.median_ns AS reference_median_ns,
        r.min_ns AS reference_min_ns,
        r.max_ns AS reference_max_ns,
        CASE WHEN p.median_ns <= 10 * r.median_ns THEN p.median_ns / r.median_ns - 1 END AS slowdown,
        greatest(p.spread_ns, r.spread_ns)::BIGINT AS spread_ns
    FROM profiled AS p
    CROSS JOIN reference AS r
)

SELECT
    c.*,
    CASE
        WHEN c.slowdown IS NULL THEN 'implausible'
        WHEN abs(c.slowdown) <= 0.02 OR abs(c.profiled_median_ns - c.reference_median_ns) <= c.spread_ns
            THEN 'not material'
        WHEN c.slowdown > 0 THEN 'perturbed'
        ELSE 'faster'
    END AS verdict
FROM compared AS c;
