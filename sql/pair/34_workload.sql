-- view:       pair.workload
-- purpose:    Whether both runs do the same work: collectives, kernels, their sizes, and the program of nodes.
-- grain:      area, item
-- depends-on: pair.statement, pair.traffic, pair.overlap, pair.program
-- materialise: no
-- since:      1
-- columns:
--   area           VARCHAR -  workload.
--   item           VARCHAR -  What is compared.
--   a_value        VARCHAR -  What A has; NULL where it is not known.
--   b_value        VARCHAR -  What B has.
--   verdict        VARCHAR -  same; unknown; differs: said; limits: detail cannot be said; forbids: no comparison.
--   is_confounding BOOLEAN -  The difference may itself make the step longer or shorter, whatever the program does.
--   detail         VARCHAR -  What follows from it; NULL where nothing does.
CREATE OR REPLACE VIEW pair.workload AS
-- Model, batch and sequence declared alike: the work is the same, however it is laid out.
WITH vouched AS (
    SELECT count(*) = 3 AS is_vouched
    FROM pair.statement
    WHERE
        area = 'declared'
        AND item IN ('run.model', 'run.global_batch', 'run.sequence_length')
        AND a_value = b_value
),

traffic_text AS (
    SELECT
        rank,
        string_agg(
            CASE WHEN a_ops > 0 THEN type || ' ' || printf('%g', round(a_ops, 2)) END
            || coalesce(' of ' || printf('%g', round(a_bytes / 1e6, 1)) || ' MB', ''),
            ', ' ORDER BY type
        ) AS a_value,
        string_agg(
            CASE WHEN b_ops > 0 THEN type || ' ' || printf('%g', round(b_ops, 2)) END
            || coalesce(' of ' || printf('%g', round(b_bytes / 1e6, 1)) || ' MB', ''),
            ', ' ORDER BY type
        ) AS b_value,
        bool_and(is_same) AS is_same
    FROM pair.traffic
    GROUP BY rank
),

traffic AS (
    SELECT
        'workload' AS area,
        'collectives a unit of work' AS item,
        coalesce(arg_min(t.a_value, (t.is_same, t.rank)), 'none') AS a_value,
        coalesce(arg_min(t.b_value, (t.is_same, t.rank)), 'none') AS b_value,
        CASE
            WHEN coalesce(bool_and(t.is_same), TRUE) THEN 'same'
            WHEN bool_and(v.is_vouched) THEN 'limits'
            ELSE 'forbids'
        END AS verdict,
        FALSE AS is_confounding,
        CASE
            WHEN coalesce(bool_and(t.is_same), TRUE) THEN NULL
            WHEN bool_and(v.is_vouched) THEN 'parts that depend on how the work is laid out'
            ELSE 'other communication is other work, unless `[run]` of both says the same model, batch and sequence'
        END AS detail
    FROM vouched AS v
    LEFT JOIN traffic_text AS t ON TRUE
),

-- Names in a sentence: the whole ones stand in pair.overlap.
shown AS (
    SELECT
        * REPLACE (
            CASE WHEN length(example) > 60 THEN left(example, 57) || '...' ELSE example END AS example,
            CASE WHEN length(sized_example) > 60 THEN left(sized_example, 57) || '...' ELSE sized_example END
                AS sized_example
        )
    FROM pair.overlap
),

kernels AS (
    SELECT
        'workload' AS area,
        CASE WHEN bool_and(o.is_by_name) THEN 'kernels' ELSE 'kernel classes' END AS item,
        CASE
            WHEN min(o.same_share) >= 0.99 THEN 'launched alike'
            ELSE coalesce(
                printf('%g x %s', arg_min(round(o.a_launches, 2), o.same_share), arg_min(o.example, o.same_share)),
                'others'
            )
        END AS a_value,
        CASE
            WHEN min(o.same_share) >= 0.99 THEN 'launched alike'
            ELSE coalesce(
                printf('%g x %s', arg_min(round(o.b_launches, 2), o.same_share), arg_min(o.example, o.same_share)),
                'others'
            )
        END AS b_value,
        CASE
            WHEN min(o.same_share) >= 0.99 THEN 'same'
            WHEN min(o.same_share) >= 0.5 THEN 'differs'
            WHEN bool_and(v.is_vouched) THEN 'limits'
            ELSE 'forbids'
        END AS verdict,
        FALSE AS is_confounding,
        CASE
            WHEN min(o.same_share) < 0.99
                THEN printf(
                    'only %g %% of the work volume is in kernels that both launch equally often',
                    round(100 * min(o.same_share), 1)
                )
        END AS detail
    FROM shown AS o
    CROSS JOIN vouched AS v
    HAVING count(*) > 0
),

sizes AS (
    SELECT
        'workload' AS area,
        'sizes of kernels' AS item,
        CASE
            WHEN min(o.sized_share) >= 0.99 THEN 'alike'
            ELSE format(
                '{:,} blocks of {}',
                arg_min(round(o.a_blocks)::BIGINT, o.sized_share),
                arg_min(o.sized_example, o.sized_share)
            )
        END AS a_value,
        CASE
            WHEN min(o.sized_share) >= 0.99 THEN 'alike'
            ELSE format(
                '{:,} blocks of {}',
                arg_min(round(o.b_blocks)::BIGINT, o.sized_share),
                arg_min(o.sized_example, o.sized_share)
            )
        END AS b_value,
        CASE
            WHEN min(o.sized_share) IS NULL THEN 'unknown'
            WHEN min(o.sized_share) >= 0.99 THEN 'same'
            WHEN min(o.sized_share) >= 0.8 THEN 'differs'
            WHEN bool_and(v.is_vouched) THEN 'limits'
            ELSE 'forbids'
        END AS verdict,
        FALSE AS is_confounding,
        CASE
            WHEN min(o.sized_share) < 0.99
                THEN printf(
                    '%g %% of the work volume of equal kernels is on other sizes: another batch, sequence or model',
                    round(100 * (1 - min(o.sized_share)), 1)
                )
        END AS detail
    FROM shown AS o
    CROSS JOIN vouched AS v
    HAVING count(*) > 0
),

program_count AS (
    SELECT
        count(*) AS ranks,
        count(*) FILTER (WHERE a.program = b.program) AS same,
        any_value(a.node_count ORDER BY a.rank) AS a_nodes,
        any_value(b.node_count ORDER BY a.rank) AS b_nodes
    FROM pair.program AS a
    INNER JOIN pair.program AS b ON a.rank = b.rank AND b.side = 'B'
    WHERE a.side = 'A'
),

programs AS (
    SELECT
        'workload' AS area,
        'program of nodes' AS item,
        CASE WHEN ranks > 0 THEN a_nodes || ' nodes' END AS a_value,
        CASE WHEN ranks > 0 THEN b_nodes || ' nodes' END AS b_value,
        CASE WHEN ranks = 0 THEN 'unknown' WHEN ranks = same THEN 'same' ELSE 'limits' END AS verdict,
        FALSE AS is_confounding,
        CASE WHEN same < ranks THEN 'order and names of nodes differ: those of one run only stand alone' END AS detail
    FROM program_count
)

SELECT * FROM traffic
UNION ALL
SELECT * FROM kernels
UNION ALL
SELECT * FROM sizes
UNION ALL
SELECT * FROM programs;
