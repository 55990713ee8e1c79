-- view:       v1.gap_summary
-- purpose:    The step that stands for each rank, down to the bound, class by class, with mean and range over the steps.
-- grain:      rank, measure
-- depends-on: v1.step_gap, v1.long_step
-- materialise: no
-- since:      1
-- columns:
--   rank           BIGINT  -  Global rank.
--   measure        VARCHAR -  observed, t_lb, gap, compute, work, R1, R2, R3, H1, H2, floor, unresolved or carried.
--   place          BIGINT  -  Order of the measures: from the observed step down.
--   step_count     BIGINT  -  Steps that count; boundary steps do not.
--   median_step_id BIGINT  -  The step of lower-median length: a real one, so its parts sum to it.
--   value_ns       BIGINT  ns In that step.
--   step_share     DOUBLE  -  The same as a share of that step.
--   shown_step_id  BIGINT  -  The step to show: the run's median one, or a long one where steps are uneven; one for all ranks that have it.
--   shown_ns       BIGINT  ns In the step to show.
--   mean_ns        BIGINT  ns Mean over the steps.
--   long_count     BIGINT  -  Steps of v1.long_step; 0 where none stands out.
--   long_mean_ns   BIGINT  ns Mean over these steps; NULL without any.
--   other_mean_ns  BIGINT  ns Mean over the others.
--   min_ns         BIGINT  ns Smallest over the steps.
--   max_ns         BIGINT  ns Largest over the steps.
--   is_run         BOOLEAN -  The rank whose median step is longest: it stands for the run.
--   is_provisional BOOLEAN -  The verdict on one of the steps is refused: its classes are not to be relied on.
-- audit gap_summary_closes:
--   SELECT s.rank FROM v1.gap_summary AS s
--   GROUP BY s.rank
--   HAVING sum(CASE WHEN s.measure = 'observed' THEN s.value_ns WHEN s.measure IN ('t_lb', 'gap') THEN 0 ELSE -s.value_ns END) <> 0
CREATE OR REPLACE VIEW v1.gap_summary AS
WITH ordered AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY rank ORDER BY observed_ns, step_id)
        = (count(*) OVER (PARTITION BY rank) + 1) // 2 AS is_median
    FROM v1.step_gap
    WHERE NOT is_boundary
),

-- The rank that stands for the run.
run AS (
    SELECT step_id
    FROM ordered
    WHERE is_median
    ORDER BY observed_ns DESC, rank ASC
    LIMIT 1
),

shown AS (
    SELECT coalesce(l.step_id, r.step_id) AS step_id
    FROM run AS r
    LEFT JOIN v1.long_step AS l ON l.is_shown
),

measured AS (
    SELECT
        o.rank,
        o.step_id,
        o.observed_ns,
        o.is_median,
        o.step_id = s.step_id AS is_shown,
        l.step_id IS NOT NULL AS is_long,
        o.is_provisional,
        m.measure,
        m.place,
        m.amount_ns
    FROM ordered AS o
    CROSS JOIN shown AS s
    LEFT JOIN v1.long_step AS l ON o.step_id = l.step_id
    CROSS JOIN LATERAL (
        VALUES
        (0, 'observed', o.observed_ns),
        (1, 'R3', o.r3_ns),
        (2, 'R1', o.r1_ns),
        (3, 'R2', o.r2_ns),
        (4, 'floor', o.floor_ns),
        (5, 'unresolved', o.unresolved_ns),
        (6, 'carried', o.carried_ns),
        (7, 'gap', o.gap_ns),
        (8, 't_lb', o.t_lb_ns),
        (9, 'H2', o.h2_ns),
        (10, 'H1', o.h1_ns),
        (11, 'work', o.work_ns),
        (12, 'compute', o.compute_ns)
    ) AS m (place, measure, amount_ns)
),

summed AS (
    SELECT
        rank,
        measure,
        any_value(place)::BIGINT AS place,
        count(*) AS step_count,
        max(CASE WHEN is_median THEN step_id END) AS median_step_id,
        max(CASE WHEN is_median THEN observed_ns END) AS observed_ns,
        max(CASE WHEN is_median THEN amount_ns END) AS value_ns,
        max(CASE WHEN is_shown THEN step_id END) AS shown_step_id,
        max(CASE WHEN is_shown THEN amount_ns END) AS shown_ns,
        avg(amount_ns)::BIGINT AS mean_ns,
        count_if(is_long)::BIGINT AS long_count,
        avg(CASE WHEN is_long THEN amount_ns END)::BIGINT AS long_mean_ns,
        avg(CASE WHEN NOT is_long THEN amount_ns END)::BIGINT AS other_mean_ns,
        min(amount_ns) AS min_ns,
        max(amount_ns) AS max_ns,
        bool_or(is_provisional) AS is_provisional
    FROM measured
    GROUP BY rank, measure
)

SELECT
    rank,
    measure,
    place,
    step_count,
    median_step_id,
    value_ns,
    value_ns / nullif(observed_ns, 0) AS step_share,
    coalesce(shown_step_id, median_step_id) AS shown_step_id,
    coalesce(shown_ns, value_ns) AS shown_ns,
    mean_ns,
    long_count,
    long_mean_ns,
    other_mean_ns,
    min_ns,
    max_ns,
    rank = first_value(rank) OVER (ORDER BY observed_ns DESC, rank ASC) AS is_run,
    is_provisional
FROM summed;
