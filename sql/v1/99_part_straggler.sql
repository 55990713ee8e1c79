-- view:       v1.part_straggler
-- purpose:    Whether one rank of a part holds it up again and again, or chance spreads it: a test, with what it rests on.
-- grain:      part
-- depends-on: v1.rank_part, v1.step_laggard, v1.step_budget
-- materialise: no
-- since:      1
-- columns:
--   part             VARCHAR -  Part.
--   source           VARCHAR -  declared or detected.
--   rank_count       BIGINT  -  Captured ranks.
--   step_count       BIGINT  -  Steps that count.
--   resolved_count   BIGINT  -  Of these, those in which a laggard can be named or ruled out.
--   laggard_steps    BIGINT  -  Steps with a laggard.
--   needed_steps     BIGINT  -  Steps with a laggard from which on one rank alone could be told from chance; NULL for a part of one rank.
--   top_rank         BIGINT  -  Rank that was it most often, the lowest of several; NULL without one.
--   top_count        BIGINT  -  In so many steps.
--   top_held_ns      BIGINT  ns By so much, median over these steps.
--   p_value          DOUBLE  -  Chance that some rank is the laggard of top_count of laggard_steps or more if each rank is equally likely: binomial, times the ranks.
--   verdict          VARCHAR -  repeated (p_value below 0.05), rotating, none, or not resolved.
--   detail           VARCHAR -  Why it is not resolved; NULL otherwise.
--   fastest_rank     BIGINT  -  Rank of the shortest median step.
--   fastest_ns       BIGINT  ns That step.
--   slowest_rank     BIGINT  -  Rank of the longest median step.
--   slowest_ns       BIGINT  ns That step.
--   spread_ns        BIGINT  ns slowest_ns - fastest_ns.
CREATE OR REPLACE VIEW v1.part_straggler AS
WITH ranks AS (
    SELECT
        part,
        min(source) AS source,
        count(*) AS rank_count
    FROM v1.rank_part
    GROUP BY part
),

steps AS (
    SELECT
        part,
        count(*) AS step_count,
        count(*) FILTER (WHERE verdict <> 'not resolved') AS resolved_count,
        count(laggard_rank) AS laggard_steps,
        bool_or(limit_ns IS NOT NULL) AS is_comparable
    FROM v1.step_laggard
    GROUP BY part
),

named AS (
    SELECT
        part,
        laggard_rank,
        count(*) AS times,
        quantile_disc(held_ns, 0.5) AS held_ns
    FROM v1.step_laggard
    WHERE laggard_rank IS NOT NULL
    GROUP BY part, laggard_rank
    QUALIFY row_number() OVER (PARTITION BY part ORDER BY -count(*), laggard_rank) = 1
),

median_step AS (
    SELECT
        p.part,
        b.rank,
        quantile_disc(b.step_ns, 0.5) AS step_ns
    FROM v1.step_budget AS b
    INNER JOIN v1.rank_part AS p ON b.rank = p.rank
    WHERE b.projection = 'device' AND NOT b.is_boundary AND b.step_ns > 0
    GROUP BY p.part, b.rank
),

extreme AS (
    SELECT
        part,
        first(rank ORDER BY step_ns, rank) AS fastest_rank,
        min(step_ns) AS fastest_ns,
        first(rank ORDER BY -step_ns, rank) AS slowest_rank,
        max(step_ns) AS slowest_ns
    FROM median_step
    GROUP BY part
),

gathered AS (
    SELECT
        r.part,
        r.source,
        r.rank_count,
        coalesce(s.step_count, 0) AS step_count,
        coalesce(s.resolved_count, 0) AS resolved_count,
        coalesce(s.laggard_steps, 0) AS laggard_steps,
        coalesce(s.is_comparable, FALSE) AS is_comparable,
        -- From here on rank_count * rank_count ^ -steps is below 0.05.
        CASE WHEN r.rank_count > 1 THEN floor(1 + ln(20) / ln(r.rank_count))::BIGINT + 1 END AS needed_steps,
        n.laggard_rank AS top_rank,
        n.times AS top_count,
        n.held_ns AS top_held_ns
    FROM ranks AS r
    LEFT JOIN steps AS s ON r.part = s.part
    LEFT JOIN named AS n ON r.part = n.part
),

outcome AS (
    SELECT
        part,
        rank_count,
        laggard_steps,
        unnest(range(top_count, laggard_steps + 1)) AS hits
    FROM gathered
    WHERE rank_count > 1 AND top_count > 0
),

tail AS (
    SELECT
        part,
        least(1, any_value(rank_count) * sum(exp(
            lgamma(laggard_steps + 1) - lgamma(hits + 1) - lgamma(laggard_steps - hits + 1)
            - hits * ln(rank_count) + (laggard_steps - hits) * ln(1 - 1 / rank_count)
        ))) AS p_value
    FROM outcome
    GROUP BY part
),

judged AS (
    SELECT
        g.*,
        t.p_value,
        CASE
            WHEN g.rank_count < 2 THEN 'one rank: nothing to compare it with'
            WHEN g.step_count = 0 THEN 'no step that counts'
            WHEN NOT g.is_comparable THEN 'no matched collective of ranks whose clocks can be compared'
            WHEN g.laggard_steps = 0 AND g.resolved_count = 0 THEN 'what is seen lies within the clock residual'
            WHEN g.laggard_steps > 0 AND g.laggard_steps < g.needed_steps THEN 'too few steps with a laggard'
        END AS detail
    FROM gathered AS g
    LEFT JOIN tail AS t ON g.part = t.part
)

SELECT
    j.part,
    j.source,
    j.rank_count,
    j.step_count,
    j.resolved_count,
    j.laggard_steps,
    j.needed_steps,
    j.top_rank,
    j.top_count,
    j.top_held_ns,
    j.p_value,
    CASE
        WHEN j.detail IS NOT NULL THEN 'not resolved'
        WHEN j.laggard_steps = 0 THEN 'none'
        WHEN j.p_value < 0.05 THEN 'repeated'
        ELSE 'rotating'
    END AS verdict,
    j.detail,
    e.fastest_rank,
    e.fastest_ns,
    e.slowest_rank,
    e.slowest_ns,
    e.slowest_ns - e.fastest_ns AS spread_ns
FROM judged AS j
LEFT JOIN extreme AS e ON j.part = e.part;
