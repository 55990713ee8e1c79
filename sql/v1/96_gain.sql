-- view:       v1.gain
-- purpose:    Time of a step that could be got back at most, by cost, on each basis of evidence there is for it.
-- grain:      rank, step_id, basis, cost
-- depends-on: v1.step_budget, v1.step_gap, v1.what_if_step, v1.perturbation
-- materialise: no
-- since:      1
-- columns:
--   rank           BIGINT  -  Global rank; NULL where the step is that of the run: of its slowest rank.
--   step_id        BIGINT  -  Step; boundary steps are left out.
--   basis          VARCHAR -  recorded: launches and waits as recorded. rules: classes above the bound. replay: the step without the cost. reference: declared steps without a profiler, above the bound, or above compute where there is none.
--   cost           VARCHAR -  Class of compute-absent time or of the gap, mechanisms that the replay removes, or all.
--   observed_ns    BIGINT  ns T: the step on that basis; of the replay the step as it replays.
--   recoverable_ns BIGINT  ns R: what could be got back of it at most.
--   step_share     DOUBLE  1  R/T: ceiling of the time saved.
--   ceiling        DOUBLE  1  T/(T-R) - 1: ceiling of the throughput gained, and of MFU where the numerator stays; NULL where nothing would be left.
--   status         VARCHAR -  How R is known: measured, inferred or unverified.
--   label          VARCHAR -  perturbed: the profiler slowed these steps materially, and R is not corrected for it; NULL otherwise, or unknown.
--   is_disjoint    BOOLEAN -  R of this basis add up to what all its costs hold; ceilings never add.
CREATE OR REPLACE VIEW v1.gain AS
WITH budget AS (
    SELECT *
    FROM v1.step_budget
    WHERE projection = 'device' AND NOT is_boundary AND step_ns > 0
),

bound AS (
    SELECT *
    FROM v1.step_gap
    WHERE NOT is_boundary
),

-- A reference that the profiled steps undercut, or that is in another unit, is no step of this run.
reference AS (
    SELECT
        rank,
        reference_median_ns AS step_ns
    FROM v1.perturbation
    WHERE verdict IN ('perturbed', 'not material')
),

label AS (
    SELECT
        rank,
        verdict AS label
    FROM v1.perturbation
    WHERE verdict = 'perturbed'
),

held AS (
    SELECT
        b.rank,
        b.step_id,
        'recorded' AS basis,
        c.cost,
        b.step_ns AS observed_ns,
        c.recoverable_ns,
        'measured' AS status,
        TRUE AS is_disjoint
    FROM budget AS b
    CROSS JOIN
        LATERAL (
            VALUES
            ('launch_starved', b.launch_starved_ns),
            ('blocking', b.blocking_ns),
            ('stalled', b.stalled_ns),
            ('tail', b.tail_ns)
        ) AS c (cost, recoverable_ns)
    UNION ALL
    SELECT
        g.rank,
        g.step_id,
        'rules' AS basis,
        c.cost,
        g.observed_ns,
        c.recoverable_ns,
        'inferred' AS status,
        TRUE AS is_disjoint
    FROM bound AS g
    CROSS JOIN
        LATERAL (
            VALUES ('R1', g.r1_ns), ('R2', g.r2_ns), ('R3', g.r3_ns)
        ) AS c (cost, recoverable_ns)
    WHERE NOT g.is_provisional AND c.recoverable_ns IS NOT NULL
    UNION ALL
    SELECT
        NULL AS rank,
        w.step_id,
        'replay' AS basis,
        w.removed AS cost,
        r.step_ns AS observed_ns,
        r.step_ns - w.step_ns AS recoverable_ns,
        'inferred' AS status,
        FALSE AS is_disjoint
    FROM v1.what_if_step AS w
    INNER JOIN v1.what_if_step AS r ON w.step_id = r.step_id AND r.removed = ''
    WHERE w.removed <> '' AND NOT w.is_boundary
    UNION ALL
    -- Work hardly feels the profiler, launches do: only what does not depend on launches is compared.
    SELECT
        b.rank,
        b.step_id,
        'reference' AS basis,
        'all' AS cost,
        f.step_ns AS observed_ns,
        f.step_ns - coalesce(g.t_lb_ns, b.compute_ns) AS recoverable_ns,
        'unverified' AS status,
        FALSE AS is_disjoint
    FROM budget AS b
    INNER JOIN reference AS f ON b.rank = f.rank
    LEFT JOIN bound AS g ON b.rank = g.rank AND b.step_id = g.step_id
    WHERE f.step_ns > coalesce(g.t_lb_ns, b.compute_ns)
)

SELECT
    h.rank,
    h.step_id,
    h.basis,
    h.cost,
    h.observed_ns,
    h.recoverable_ns,
    h.recoverable_ns / h.observed_ns AS step_share,
    h.observed_ns / nullif(h.observed_ns - h.recoverable_ns, 0) - 1 AS ceiling,
    h.status,
    CASE WHEN h.rank IS NULL THEN (SELECT any_value(a.label) FROM label AS a) ELSE l.label END AS label,
    h.is_disjoint
FROM held AS h
LEFT JOIN label AS l ON h.rank = l.rank;
