-- view:       v1.rank_clock
-- purpose:    What to add to a rank's times to compare ranks, and how far that can be trusted.
-- grain:      rank
-- depends-on: v1.clock_base, v1.step_clock, v1.collective_match
-- materialise: run
-- since:      1
-- columns:
--   rank            BIGINT   -   Global rank.
--   offset_ns       BIGINT   ns  Added to this rank's times, in the middle of the capture if it changes (v1.step_clock has it step by step); NULL while unknown.
--   drift_ppb       BIGINT   ppb Drift against the first rank, by matched ends against the median one; NULL: not measured.
--   residual_p5_ns  BIGINT   ns  Matched collective ends less the mean end on the other ranks, 5th percentile; NULL without a match.
--   residual_p95_ns BIGINT   ns  95th percentile.
--   residual_ns     BIGINT   ns  Below this, a difference between ranks is not resolved: the larger of the two, and what the exchange leaves open.
--   match_count     BIGINT   -   Matched collectives behind the residual.
--   method          VARCHAR  -   one rank, clock exchange (between the ranks), capture clock (each source states Unix time), matched ends (centred on them), or matched ends by step; NULL while the offset is unknown.
--   jump_ns         BIGINT   ns  Largest jump of the clock against the other ranks; NULL without one. Its steps have no offset.
--   jump_steps      VARCHAR  -   Steps that a jump touches.
CREATE OR REPLACE VIEW v1.rank_clock AS
WITH of_rank AS (
    SELECT
        rank,
        quantile_disc(offset_ns, 0.5) FILTER (WHERE step_id IS NOT NULL) AS middle_ns,
        any_value(offset_ns) FILTER (WHERE step_id IS NULL) AS constant_ns,
        bool_or(is_centred) AS is_centred,
        bool_or(is_by_step) AS is_by_step,
        max(jump_ns) AS jump_ns,
        string_agg(step_id::VARCHAR, ', ' ORDER BY step_id) FILTER (WHERE jump_ns IS NOT NULL) AS jump_steps
    FROM v1.step_clock
    GROUP BY rank
),

-- From step to step, so that a jump counts once.
slope AS (
    SELECT
        rank,
        1e9 * (offset_ns - lag(offset_ns) OVER in_order) / nullif(at_ns - lag(at_ns) OVER in_order, 0) AS ppb
    FROM v1.step_clock
    WHERE is_by_step AND offset_ns IS NOT NULL AND step_id IS NOT NULL
    WINDOW in_order AS (PARTITION BY rank ORDER BY step_id)
),

drift AS (
    SELECT
        rank,
        -- No drift where it is not told from the noise of the steps.
        CASE WHEN abs(median(ppb)) > 6 * mad(ppb) / sqrt(count(ppb)) THEN median(ppb) END AS ppb
    FROM slope
    GROUP BY rank
),

finished AS (
    SELECT
        m.rank,
        m.end_ns + coalesce(c.offset_ns, CASE WHEN c.jump_ns IS NULL AND NOT c.is_by_step THEN b.base_ns END, 0)
            AS end_ns,
        c.jump_ns IS NOT NULL OR (c.is_by_step AND c.offset_ns IS NULL) AS is_lost,
        m.group_name,
        m.group_ranks,
        m.seq
    FROM v1.collective_match AS m
    INNER JOIN v1.clock_base AS b ON m.rank = b.rank
    INNER JOIN v1.step_clock AS c ON m.rank = c.rank AND m.step_id IS NOT DISTINCT FROM c.step_id
    WHERE m.is_matched AND m.participants > 1
),

-- Means of Unix times would not be exact.
ended AS (
    SELECT
        rank,
        group_name,
        group_ranks,
        seq,
        end_ns - min(end_ns) OVER instance AS late_ns,
        bool_or(is_lost) OVER instance AS is_lost
    FROM finished
    WINDOW instance AS (PARTITION BY group_name, group_ranks, seq)
),

apart AS (
    SELECT
        rank,
        late_ns - (sum(late_ns) OVER instance - late_ns) / (count(*) OVER instance - 1) AS apart_ns
    FROM ended
    WHERE NOT is_lost
    WINDOW instance AS (PARTITION BY group_name, group_ranks, seq)
),

spread AS (
    SELECT
        rank,
        count(*) AS match_count,
        quantile_cont(apart_ns, 0.05) AS p5_ns,
        quantile_cont(apart_ns, 0.95) AS p95_ns
    FROM apart
    GROUP BY rank
),

placed AS (
    SELECT
        b.rank,
        b.method,
        b.drift_ppb,
        b.uncertainty_ns,
        r.is_centred,
        r.is_by_step,
        r.jump_ns,
        r.jump_steps,
        d.ppb,
        s.match_count,
        s.p5_ns,
        s.p95_ns,
        CASE WHEN r.is_by_step THEN r.middle_ns ELSE r.constant_ns END AS offset_ns,
        count(*) OVER () AS ranks
    FROM v1.clock_base AS b
    INNER JOIN of_rank AS r ON b.rank = r.rank
    LEFT JOIN drift AS d ON b.rank = d.rank
    LEFT JOIN spread AS s ON b.rank = s.rank
)

SELECT
    rank,
    offset_ns,
    round(CASE WHEN is_by_step THEN ppb WHEN NOT is_centred THEN drift_ppb END)::BIGINT AS drift_ppb,
    p5_ns::BIGINT AS residual_p5_ns,
    p95_ns::BIGINT AS residual_p95_ns,
    greatest(abs(p5_ns), abs(p95_ns), CASE WHEN NOT is_centred THEN uncertainty_ns END)::BIGINT AS residual_ns,
    coalesce(match_count, 0) AS match_count,
    CASE
        WHEN ranks = 1 THEN 'one rank'
        WHEN offset_ns IS NULL THEN NULL
        WHEN is_by_step THEN 'matched ends by step'
        WHEN is_centred THEN 'matched ends'
        ELSE method
    END AS method,
    jump_ns,
    jump_steps
FROM placed;
