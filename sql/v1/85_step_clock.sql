-- view:       v1.step_clock
-- purpose:    What to add to a rank's times of one step to compare ranks: one clock for the capture, or where that drifts or jumps one for each step.
-- grain:      rank, step_id
-- depends-on: v1.clock_base, v1.end_level, v1.step_window
-- materialise: run
-- since:      1
-- columns:
--   rank       BIGINT   -  Global rank.
--   step_id    BIGINT   -  Step; NULL: what is launched outside of steps.
--   offset_ns  BIGINT   ns Added to this rank's times of the step, so that its own lengths stay; NULL while unknown, and where the clock jumps.
--   at_ns      BIGINT   ns Time of the rank for which offset_ns was taken; NULL where it is one for the whole capture.
--   jump_ns    BIGINT   ns How far the clock jumps in this step or beside it, so that lengths of the step are wrong by it; NULL without a jump.
--   is_centred BOOLEAN  -  The ends of matched collectives decide, not what the captures say.
--   is_by_step BOOLEAN  -  They do so for every step alone: over the capture they move by more than twice what they spread in a step.
CREATE OR REPLACE VIEW v1.step_clock AS
WITH whole AS (
    SELECT *
    FROM v1.end_level
    WHERE step_id IS NULL
),

stepwise AS (
    SELECT *
    FROM v1.end_level
    WHERE step_id IS NOT NULL
),

-- Few ends make no level.
moved AS (
    SELECT
        rank,
        max(level_ns) - min(level_ns) AS range_ns
    FROM stepwise
    WHERE match_count >= 5
    GROUP BY rank
),

judged AS (
    SELECT
        b.*,
        w.level_ns,
        w.match_count >= 5 AND b.is_of_several_hosts AS is_apart,
        w.match_count >= 5 AND (
            b.method IS NULL
            -- One host has one clock: there the captures' own times stand unless they cannot be right.
            OR (abs(w.apart_ns) > 5e5 AND abs(w.apart_ns) > 5 * w.spread_ns)
        ) AS is_wrong,
        w.match_count >= 5
        AND m.range_ns > 2 * w.spread_ns
        AND m.range_ns > CASE WHEN b.is_of_several_hosts OR b.method IS NULL THEN 1e4 ELSE 5e5 END AS is_moving
    FROM v1.clock_base AS b
    LEFT JOIN whole AS w ON b.rank = w.rank
    LEFT JOIN moved AS m ON b.rank = m.rank
),

-- If one rank has to be centred all are, or they would no longer share a centre.
decided AS (
    SELECT
        *,
        coalesce(bool_or(is_apart OR is_wrong OR is_moving) OVER (), FALSE) AS is_centred,
        coalesce(bool_or(is_moving) OVER (), FALSE) AS is_by_step,
        count(*) OVER () AS ranks
    FROM judged
),

place AS (
    SELECT
        rank,
        step_id,
        start_ns + (end_ns - start_ns) // 2 AS middle_ns
    FROM v1.step_window
    WHERE projection = 'host'
    UNION ALL
    SELECT
        rank,
        NULL AS step_id,
        NULL AS middle_ns
    FROM v1.clock_base
),

-- A clock that drifts is read where the step's collectives end, or in the middle of the step.
placed AS (
    SELECT
        d.*,
        p.step_id,
        s.level_ns AS step_level_ns,
        s.jump_ns,
        coalesce(s.at_ns, p.middle_ns) AS place_ns
    FROM decided AS d
    INNER JOIN place AS p ON d.rank = p.rank
    LEFT JOIN stepwise AS s ON p.rank = s.rank AND p.step_id = s.step_id
),

based AS (
    SELECT
        *,
        base_ns + coalesce(round((place_ns - origin_ns) * drift_ppb / 1e9)::BIGINT, 0) AS stated_ns
    FROM placed
)

SELECT
    rank,
    step_id,
    CASE
        WHEN ranks = 1 THEN 0
        WHEN jump_ns IS NOT NULL THEN NULL
        WHEN is_by_step THEN coalesce(stated_ns, 0) - step_level_ns
        WHEN is_centred THEN coalesce(stated_ns, 0) - level_ns
        WHEN method IS NOT NULL THEN stated_ns
    END AS offset_ns,
    CASE WHEN ranks > 1 AND (is_by_step OR drift_ppb IS NOT NULL) THEN place_ns END AS at_ns,
    jump_ns,
    is_centred,
    is_by_step
FROM based;
