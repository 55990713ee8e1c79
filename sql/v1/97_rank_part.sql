-- view:       v1.rank_part
-- purpose:    Ranks that run the same program, and may be compared: as declared, else by what they run.
-- grain:      rank
-- depends-on: v1.declared_part, v1.rank_signature
-- materialise: run
-- since:      1
-- columns:
--   rank   BIGINT  -  Global rank.
--   part   VARCHAR -  Name of its part: the declared one, else part 1, part 2, ... by their lowest ranks, after declared ones of such names.
--   source VARCHAR -  declared ([parts] or the pipeline of [run] in gapscope.toml, or the capture); unknown stage: a part of its own, for it is not known of which stage it is; or detected: same types of collectives, and counts a step of these and of device ops within 5 % of the next rank's.
-- audit every_rank_has_one_part:
--   SELECT r.rank FROM v1.declared_part AS r LEFT JOIN v1.rank_part AS p ON r.rank = p.rank
--   GROUP BY r.rank HAVING count(p.part) <> 1
CREATE OR REPLACE VIEW v1.rank_part AS
WITH
-- In order of their counts, a rank that has over 5 % more than the one before begins a new level.
rising AS (
    SELECT
        s.rank,
        s.measure,
        s.count_per_step,
        s.count_per_step > 1.05 * lag(s.count_per_step) OVER (
            PARTITION BY s.measure ORDER BY s.count_per_step, s.rank
        ) AS is_new
    FROM v1.rank_signature AS s
    INNER JOIN v1.declared_part AS d ON s.rank = d.rank
    WHERE d.part IS NULL
),

levelled AS (
    SELECT
        rank,
        measure,
        count(*) FILTER (WHERE is_new) OVER (
            PARTITION BY measure ORDER BY count_per_step, rank
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS level
    FROM rising
),

signed AS (
    SELECT
        d.rank,
        coalesce(string_agg(l.measure || ' ' || l.level, ', ' ORDER BY l.measure), '') AS signature
    FROM v1.declared_part AS d
    LEFT JOIN levelled AS l ON d.rank = l.rank
    WHERE d.part IS NULL
    GROUP BY d.rank
),

founded AS (
    SELECT
        rank,
        min(rank) OVER (PARTITION BY signature) AS lowest_rank
    FROM signed
),

-- A detected part must not join a declared one whose name it would get.
taken AS (
    SELECT coalesce(max(try_cast(regexp_extract(part, '^part (\d+)$', 1) AS BIGINT)), 0) AS number
    FROM v1.declared_part
),

detected AS (
    SELECT
        f.rank,
        t.number + dense_rank() OVER (ORDER BY f.lowest_rank) AS number
    FROM founded AS f
    CROSS JOIN taken AS t
)

SELECT
    r.rank,
    coalesce(r.part, 'part ' || d.number) AS part,
    CASE
        WHEN r.source = 'unknown stage' THEN r.source
        WHEN r.part IS NOT NULL THEN 'declared'
        ELSE 'detected'
    END AS source
FROM v1.declared_part AS r
LEFT JOIN detected AS d ON r.rank = d.rank;
