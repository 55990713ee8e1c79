-- view:       v1.rank_signature
-- purpose:    What a rank runs in a step, in counts that do not depend on speed: collectives of each type, and device ops.
-- grain:      rank, measure
-- depends-on: v1.step, v1.collective_match, v1.launch_pacing
-- materialise: no
-- since:      1
-- columns:
--   rank           BIGINT  -  Global rank.
--   measure        VARCHAR -  Type of collective, or device ops.
--   count_per_step BIGINT  -  Median over the steps that count; measures of which most steps have none have no row.
CREATE OR REPLACE VIEW v1.rank_signature AS
WITH counted_step AS (
    SELECT
        rank,
        step_id
    FROM v1.step
    WHERE NOT is_boundary
),

in_step AS (
    SELECT
        rank,
        step_id,
        type AS measure,
        count(*) AS ops
    FROM v1.collective_match
    GROUP BY rank, step_id, type
    UNION ALL
    SELECT
        rank,
        step_id,
        'device ops' AS measure,
        sum(op_count)::BIGINT AS ops
    FROM v1.launch_pacing
    WHERE unit IS NULL
    GROUP BY rank, step_id
),

kind AS (
    SELECT DISTINCT
        rank,
        measure
    FROM in_step
)

SELECT
    k.rank,
    k.measure,
    quantile_disc(coalesce(i.ops, 0), 0.5) AS count_per_step
FROM kind AS k
INNER JOIN counted_step AS s ON k.rank = s.rank
LEFT JOIN in_step AS i ON k.rank = i.rank AND s.step_id = i.step_id AND k.measure = i.measure
GROUP BY k.rank, k.measure
HAVING quantile_disc(coalesce(i.ops, 0), 0.5) > 0;
