-- view:       pair.scope
-- purpose:    What of the two runs is compared: ranks, steps, and without steps the unit of work.
-- grain:      area, item
-- depends-on: pair.span, pair.shown, pair.counted, pair.anchor
-- materialise: no
-- since:      1
-- columns:
--   area           VARCHAR -  topology, steps or workload.
--   item           VARCHAR -  What is compared.
--   a_value        VARCHAR -  What A has; NULL where it is not known.
--   b_value        VARCHAR -  What B has.
--   verdict        VARCHAR -  same; unknown; differs: said; limits: detail cannot be said; forbids: no comparison.
--   is_confounding BOOLEAN -  The difference may itself make the step longer or shorter, whatever the program does.
--   detail         VARCHAR -  What follows from it; NULL where nothing does.
CREATE OR REPLACE VIEW pair.scope AS
WITH captured AS (
    SELECT
        side,
        list_sort(list(DISTINCT rank)) AS ranks
    FROM pair.span
    GROUP BY side
),

compared AS (
    SELECT
        count(DISTINCT rank) AS ranks,
        count(*) FILTER (WHERE side = 'A') AS a_windows,
        count(*) FILTER (WHERE side = 'B') AS b_windows
    FROM pair.counted
),

-- As many ranks as fit into a line.
rank_text AS (
    SELECT
        side,
        ranks,
        CASE
            WHEN len(ranks) <= 16 THEN array_to_string(ranks, ', ')
            ELSE len(ranks) || ' ranks, ' || ranks[1] || ' to ' || ranks[-1]
        END AS said
    FROM captured
),

ranks AS (
    SELECT
        'topology' AS area,
        'ranks captured' AS item,
        a.said AS a_value,
        b.said AS b_value,
        CASE
            WHEN coalesce(c.ranks, 0) = 0 THEN 'forbids'
            WHEN a.ranks = b.ranks THEN 'same'
            ELSE 'limits'
        END AS verdict,
        FALSE AS is_confounding,
        CASE
            WHEN coalesce(c.ranks, 0) = 0 THEN 'no rank has steps, or work that can be counted, in both'
            WHEN a.ranks <> b.ranks
                THEN
                    concat(
                        'only the ', c.ranks, ' that both have are compared; the run''s step is the longest of these'
                    )
        END AS detail
    FROM compared AS c
    LEFT JOIN rank_text AS a ON a.side = 'A'
    LEFT JOIN rank_text AS b ON b.side = 'B'
),

step_count AS (
    SELECT
        side,
        count(DISTINCT step_id) FILTER (WHERE NOT is_boundary) AS counted,
        count(DISTINCT step_id) AS total
    FROM pair.span
    WHERE projection = 'device'
    GROUP BY side
),

steps AS (
    SELECT
        'steps' AS area,
        'steps that count' AS item,
        coalesce(a.counted, 0) || ' of ' || coalesce(a.total, 0) AS a_value,
        coalesce(b.counted, 0) || ' of ' || coalesce(b.total, 0) AS b_value,
        CASE
            WHEN s.projection = 'capture' THEN 'limits'
            WHEN a.counted = b.counted AND a.total = b.total THEN 'same'
            ELSE 'differs'
        END AS verdict,
        FALSE AS is_confounding,
        CASE
            WHEN
                s.projection = 'capture'
                THEN 'steps: one side has none that count, so captures are compared by launches of a kernel'
        END AS detail
    FROM pair.shown AS s
    LEFT JOIN step_count AS a ON a.side = 'A'
    LEFT JOIN step_count AS b ON b.side = 'B'
),

unit AS (
    SELECT
        'workload' AS area,
        'unit of work' AS item,
        any_value(a.a_count ORDER BY a.rank) || ' launches of ' || any_value(a.name ORDER BY a.rank) AS a_value,
        any_value(a.b_count ORDER BY a.rank) || ' launches of ' || any_value(a.name ORDER BY a.rank) AS b_value,
        CASE WHEN coalesce(min(a.agreement), 0) < 0.5 THEN 'forbids' ELSE 'same' END AS verdict,
        coalesce(min(a.agreement), 0) < 0.5 AS is_confounding,
        CASE
            WHEN count(a.name) = 0 THEN 'no kernel recurs in both: nothing counts the work'
            WHEN min(a.agreement) < 0.5 THEN 'counts of kernels did not change alike: no count stands for the work'
        END AS detail
    FROM pair.shown AS s
    LEFT JOIN pair.anchor AS a ON TRUE
    WHERE s.projection = 'capture'
    HAVING count(*) > 0
)

SELECT * FROM ranks
UNION ALL
SELECT * FROM steps
UNION ALL
SELECT * FROM unit;
