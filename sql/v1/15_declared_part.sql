-- view:       v1.declared_part
-- purpose:    Ranks of which it is known, not seen in what they run, whom they may be compared with.
-- grain:      rank
-- depends-on: v1.rank, v1.declared, v1.part_span
-- materialise: run
-- since:      1
-- columns:
--   rank   BIGINT   -  Global rank.
--   part   VARCHAR  -  Name of its part; NULL where nothing is declared.
--   source VARCHAR  -  parts ([parts] of gapscope.toml); capture; pipeline: its stage, from pipeline_parallel and rank_order of [run]; unknown stage: there are stages, but not which it is of, so that it is compared with no other; NULL.
CREATE OR REPLACE VIEW v1.declared_part AS
WITH said AS (
    SELECT
        max(value) FILTER (WHERE item = 'world_size')::BIGINT AS world_size,
        max(value) FILTER (WHERE item = 'pipeline_parallel')::BIGINT AS stage_count,
        max(value) FILTER (WHERE item = 'tensor_parallel')::BIGINT AS tensor_parallel,
        max(value) FILTER (WHERE item = 'context_parallel')::BIGINT AS context_parallel,
        max(value) FILTER (WHERE item = 'data_parallel')::BIGINT AS data_parallel,
        max(value) FILTER (WHERE item = 'rank_order') AS rank_order,
        max(value) FILTER (WHERE item = 'framework') AS framework
    FROM v1.declared
    WHERE section = 'run'
),

-- Megatron Core, and what is built on it, numbers stages last unless told otherwise.
layout AS (
    SELECT
        s.stage_count,
        coalesce(
            s.rank_order,
            CASE WHEN regexp_matches(s.framework, '(?i)^(megatron|nemo)') THEN 'tp-cp-ep-dp-pp' END
        ) AS rank_order,
        coalesce(w.world_size, s.world_size) AS world_size,
        MAP {
            'tp': s.tensor_parallel, 'cp': s.context_parallel, 'dp': s.data_parallel, 'ep': 1
        } AS size
    FROM said AS s
    CROSS JOIN (SELECT max(world_size) AS world_size FROM v1.rank) AS w
    WHERE s.stage_count > 1
),

-- How many ranks follow each other in one stage: the product of the dimensions that vary faster.
dimension AS (
    SELECT
        size,
        unnest(list_slice(string_split(rank_order, '-'), 1, list_position(string_split(rank_order, '-'), 'pp') - 1))
            AS name
    FROM layout
),

inner_size AS (
    SELECT CASE WHEN count(size[name]) = count(*) THEN product(size[name])::BIGINT END AS rank_count
    FROM dimension
),

stage AS (
    SELECT
        l.stage_count,
        CASE
            WHEN l.rank_order LIKE '%-pp' AND l.world_size % l.stage_count = 0 THEN l.world_size // l.stage_count
            WHEN l.rank_order LIKE 'pp%' THEN 1
            WHEN l.rank_order LIKE '%pp%' THEN i.rank_count
        END AS rank_count
    FROM layout AS l
    CROSS JOIN inner_size AS i
),

named AS (
    SELECT
        r.rank,
        r.part,
        min(s.part) AS listed_part
    FROM v1.rank AS r
    LEFT JOIN v1.part_span AS s ON r.rank BETWEEN s.first_rank AND s.last_rank
    GROUP BY r.rank, r.part
)

SELECT
    n.rank,
    coalesce(
        n.listed_part,
        n.part,
        'stage ' || (n.rank // g.rank_count % g.stage_count),
        CASE WHEN g.stage_count > 1 THEN 'rank ' || n.rank || ', stage unknown' END
    ) AS part,
    CASE
        WHEN n.listed_part IS NOT NULL THEN 'parts'
        WHEN n.part IS NOT NULL THEN 'capture'
        WHEN g.rank_count IS NOT NULL THEN 'pipeline'
        WHEN g.stage_count > 1 THEN 'unknown stage'
    END AS source
FROM named AS n
LEFT JOIN stage AS g ON TRUE;
