-- view:       v1.step_laggard
-- purpose:    The rank that held up its part in a step, if one did.
-- grain:      part, step_number
-- depends-on: v1.step_budget, v1.step_number, v1.rank_part, v1.rank_lateness
-- materialise: no
-- since:      1
-- columns:
--   part         VARCHAR -  Part.
--   step_number  BIGINT  -  Step that counts, as v1.step_number has it.
--   rank_count   BIGINT  -  Captured ranks of the part that have it.
--   step_ns      BIGINT  ns Longest device window of these.
--   held_ns      BIGINT  ns Largest v1.rank_lateness.held_ns of them; NULL while clocks are unknown or nothing is matched.
--   limit_ns     BIGINT  ns What it must exceed: three clock residuals, and 2 % of step_ns.
--   laggard_rank BIGINT  -  The rank of held_ns where it exceeds the limit; NULL where none does.
--   verdict      VARCHAR -  laggard, none (whatever anyone held up is below 2 % of the step), or not resolved (it is above, but within what the clocks resolve; or ranks cannot be compared).
CREATE OR REPLACE VIEW v1.step_laggard AS
WITH member AS (
    SELECT
        p.part,
        n.step_number,
        b.rank,
        b.step_ns,
        l.held_ns,
        l.held_ns + l.unclear_ns AS seen_ns,
        l.residual_ns
    FROM v1.step_budget AS b
    INNER JOIN v1.step_number AS n ON b.rank = n.rank AND b.step_id = n.step_id
    INNER JOIN v1.rank_part AS p ON b.rank = p.rank
    LEFT JOIN v1.rank_lateness AS l ON b.rank = l.rank AND b.step_id = l.step_id AND l.is_resolved
    WHERE b.projection = 'device' AND NOT b.is_boundary AND b.step_ns > 0
),

-- Of two that are equally late, the lower rank.
placed AS (
    SELECT
        *,
        count(*) OVER in_step AS rank_count,
        count(held_ns) OVER in_step = count(*) OVER in_step AND count(*) OVER in_step > 1 AS is_resolved,
        max(step_ns) OVER in_step AS longest_ns,
        max(seen_ns) OVER in_step AS most_seen_ns,
        row_number() OVER (
            PARTITION BY part, step_number ORDER BY -held_ns NULLS LAST, rank
        ) AS place
    FROM member
    WINDOW in_step AS (PARTITION BY part, step_number)
),

judged AS (
    SELECT
        *,
        CASE WHEN is_resolved THEN greatest(3 * residual_ns, longest_ns // 50) END AS limit_ns
    FROM placed
    WHERE place = 1
)

SELECT
    part,
    step_number,
    rank_count,
    longest_ns AS step_ns,
    CASE WHEN is_resolved THEN held_ns END AS held_ns,
    limit_ns,
    CASE WHEN held_ns > limit_ns THEN rank END AS laggard_rank,
    CASE
        WHEN NOT is_resolved THEN 'not resolved'
        WHEN held_ns > limit_ns THEN 'laggard'
        WHEN most_seen_ns <= longest_ns // 50 THEN 'none'
        ELSE 'not resolved'
    END AS verdict
FROM judged;
