-- view:       v1.rank_survey
-- purpose:    Every rank on one line, before any of them is looked at closely: what it is, what its step holds, what it waits and is waited for.
-- grain:      rank
-- depends-on: v1.rank, v1.rank_part, v1.rank_signature, v1.step_budget, v1.step_number, v1.rank_lateness, v1.rank_clock, v1.window_skew, v1.step_laggard
-- materialise: no
-- since:      1
-- columns:
--   rank             BIGINT  -  Global rank.
--   part             VARCHAR -  Part that it belongs to.
--   part_source      VARCHAR -  declared or detected.
--   hostname         VARCHAR -  Host.
--   device_name      VARCHAR -  Device model.
--   device_uuid      VARCHAR -  Device.
--   step_count       BIGINT  -  Steps that count; the medians are over their device windows, each for itself, lower of two.
--   step_min_ns      BIGINT  ns Shortest.
--   step_ns          BIGINT  ns Median.
--   step_max_ns      BIGINT  ns Longest.
--   noncomm_ns       BIGINT  ns Median of the union of kernels and graphs that do not communicate.
--   compute_ns       BIGINT  ns Median of the union of compute.
--   comm_ns          BIGINT  ns Median of the union of communication.
--   exposed_comm_ns  BIGINT  ns Median of communication beside no other device op.
--   copy_ns          BIGINT  ns Median of the union of copies.
--   idle_ns          BIGINT  ns Median of what no device op covers.
--   collectives      VARCHAR -  Collectives a step by type, most first; NULL without any.
--   collective_count BIGINT  -  Together.
--   op_count         BIGINT  -  Device ops a step.
--   wait_ns          BIGINT  ns Median wait of a step for the last to arrive; NULL where ranks cannot be compared.
--   late_ns          BIGINT  ns Median lateness of a step, where it is beyond three clock residuals.
--   held_ns          BIGINT  ns Median of what that held up.
--   held_max_ns      BIGINT  ns Largest.
--   laggard_steps    BIGINT  -  Steps of which it is the laggard of its part.
--   start_skew_steps BIGINT  -  Steps longer than its peers' because they begin earlier.
--   late_end_steps   BIGINT  -  Steps longer than its peers' because they end later, whenever they begin.
--   residual_ns      BIGINT  ns Clock residual.
CREATE OR REPLACE VIEW v1.rank_survey AS
WITH usual AS (
    SELECT
        b.rank,
        count(*) AS step_count,
        min(b.step_ns) AS step_min_ns,
        quantile_disc(b.step_ns, 0.5) AS step_ns,
        max(b.step_ns) AS step_max_ns,
        quantile_disc(b.noncomm_ns, 0.5) AS noncomm_ns,
        quantile_disc(b.compute_ns, 0.5) AS compute_ns,
        quantile_disc(b.comm_ns, 0.5) AS comm_ns,
        quantile_disc(b.exposed_comm_ns, 0.5) AS exposed_comm_ns,
        quantile_disc(b.copy_ns, 0.5) AS copy_ns,
        quantile_disc(b.idle_ns, 0.5) AS idle_ns,
        quantile_disc(l.wait_ns, 0.5) AS wait_ns,
        quantile_disc(l.late_ns, 0.5) AS late_ns,
        quantile_disc(l.held_ns, 0.5) AS held_ns,
        max(l.held_ns) AS held_max_ns
    FROM v1.step_budget AS b
    LEFT JOIN v1.rank_lateness AS l ON b.rank = l.rank AND b.step_id = l.step_id
    WHERE b.projection = 'device' AND NOT b.is_boundary AND b.step_ns > 0
    GROUP BY b.rank
),

program AS (
    SELECT
        rank,
        string_agg(measure || ' ' || count_per_step, ', ' ORDER BY -count_per_step, measure)
        FILTER (WHERE measure <> 'device ops') AS collectives,
        coalesce(sum(count_per_step) FILTER (WHERE measure <> 'device ops'), 0)::BIGINT AS collective_count,
        max(count_per_step) FILTER (WHERE measure = 'device ops') AS op_count
    FROM v1.rank_signature
    GROUP BY rank
),

skewed AS (
    SELECT
        rank,
        count(*) FILTER (WHERE skew = 'start skew') AS start_skew_steps,
        count(*) FILTER (WHERE skew IN ('late end', 'both')) AS late_end_steps
    FROM v1.window_skew
    WHERE skew IS NOT NULL
    GROUP BY rank
),

lagged AS (
    SELECT
        n.rank,
        count(*) FILTER (WHERE g.laggard_rank = n.rank) AS laggard_steps
    FROM v1.step_number AS n
    INNER JOIN v1.rank_part AS p ON n.rank = p.rank
    INNER JOIN v1.step_laggard AS g ON p.part = g.part AND n.step_number = g.step_number
    WHERE g.limit_ns IS NOT NULL
    GROUP BY n.rank
)

SELECT
    r.rank,
    p.part,
    p.source AS part_source,
    r.hostname,
    r.device_name,
    r.device_uuid,
    coalesce(u.step_count, 0) AS step_count,
    u.step_min_ns,
    u.step_ns,
    u.step_max_ns,
    u.noncomm_ns,
    u.compute_ns,
    u.comm_ns,
    u.exposed_comm_ns,
    u.copy_ns,
    u.idle_ns,
    m.collectives,
    m.collective_count,
    m.op_count,
    u.wait_ns,
    u.late_ns,
    u.held_ns,
    u.held_max_ns,
    g.laggard_steps,
    s.start_skew_steps,
    s.late_end_steps,
    c.residual_ns
FROM v1.rank AS r
LEFT JOIN v1.rank_part AS p ON r.rank = p.rank
LEFT JOIN usual AS u ON r.rank = u.rank
LEFT JOIN program AS m ON r.rank = m.rank
LEFT JOIN skewed AS s ON r.rank = s.rank
LEFT JOIN lagged AS g ON r.rank = g.rank
LEFT JOIN v1.rank_clock AS c ON r.rank = c.rank;
