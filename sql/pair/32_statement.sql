-- view:       pair.statement
-- purpose:    What the runs state about themselves, side by side.
-- grain:      area, item
-- depends-on: pair.fact, pair.restriction
-- materialise: no
-- since:      1
-- columns:
--   area           VARCHAR -  topology, capture, environment, declared or quality.
--   item           VARCHAR -  What is compared.
--   a_value        VARCHAR -  What A has; NULL where it is not known.
--   b_value        VARCHAR -  What B has.
--   verdict        VARCHAR -  same; unknown; differs: said; limits: detail cannot be said; forbids: no comparison.
--   is_confounding BOOLEAN -  The difference may itself make the step longer or shorter, whatever the program does.
--   detail         VARCHAR -  What follows from it; NULL where nothing does.
CREATE OR REPLACE VIEW pair.statement AS
-- The first pattern that fits decides what a difference means.
WITH rule (priority, area, pattern, verdict, is_confounding, detail) AS (
    VALUES
    (1, 'topology', 'world size', 'forbids', TRUE, 'with another number of ranks a step is other work'),
    (2, 'topology', 'GPU', 'limits', TRUE, 'whether the program or the GPU makes the difference'),
    (3, 'topology', 'ranks that share a GPU', 'limits', TRUE, 'ranks that share a GPU slow each other down'),
    (4, 'topology', 'parts', 'limits', FALSE, 'ranks are compared by number, not by part'),
    (5, 'capture', 'source', 'limits', TRUE, 'whether the program or the tool makes the difference'),
    (6, 'capture', 'steps from', 'limits', TRUE, 'whether both steps are the same stretch of the program'),
    (7, 'capture', 'event edges', 'limits', FALSE, 'how blocking and stalled divide'),
    (8, 'capture', 'metric sampling', 'limits', TRUE, 'sampling costs time on one side only'),
    (9, 'capture', 'CUDA graphs', 'limits', FALSE, 'classes and kernels of what runs in graphs'),
    (10, 'declared', 'run.world_size', 'forbids', TRUE, 'with another number of ranks a step is other work'),
    (11, 'declared', 'run.model', 'forbids', TRUE, 'another model is other work'),
    (12, 'declared', 'run.sequence_length', 'forbids', TRUE, 'other sequences are other work'),
    (13, 'declared', 'run.global_batch', 'forbids', TRUE, 'another batch is other work'),
    (14, '%', '%', 'differs', FALSE, NULL)
),

-- Where an environment is known at all, what is not in it was not set.
environment AS (
    SELECT DISTINCT side
    FROM pair.fact
    WHERE area = 'environment'
),

stated AS (
    SELECT
        coalesce(a.area, b.area) AS area,
        coalesce(a.item, b.item) AS item,
        coalesce(
            a.value,
            CASE WHEN b.area = 'environment' AND 'A' IN (SELECT e.side FROM environment AS e) THEN 'not set' END
        ) AS a_value,
        coalesce(
            b.value,
            CASE WHEN a.area = 'environment' AND 'B' IN (SELECT e.side FROM environment AS e) THEN 'not set' END
        ) AS b_value
    FROM (
        SELECT *
        FROM pair.fact
        WHERE side = 'A'
    ) AS a
    FULL JOIN (
        SELECT *
        FROM pair.fact
        WHERE side = 'B'
    ) AS b ON a.area = b.area AND a.item = b.item
),

of_fact AS (
    SELECT
        s.area,
        s.item,
        s.a_value,
        s.b_value,
        CASE
            WHEN s.a_value IS NULL OR s.b_value IS NULL THEN 'unknown'
            WHEN s.a_value = s.b_value THEN 'same'
            ELSE r.verdict
        END AS verdict,
        coalesce(s.a_value <> s.b_value AND r.is_confounding, FALSE) AS is_confounding,
        CASE WHEN s.a_value <> s.b_value THEN r.detail END AS detail
    FROM stated AS s
    INNER JOIN rule AS r ON s.area LIKE r.area AND s.item LIKE r.pattern
    -- Two runs have captures of their own: that needs no row.
    WHERE s.item <> 'captures' OR s.a_value = s.b_value
    QUALIFY row_number() OVER (PARTITION BY s.area, s.item ORDER BY r.priority) = 1
),

no_environment AS (
    SELECT
        'environment' AS area,
        'settings' AS item,
        NULL::VARCHAR AS a_value,
        NULL::VARCHAR AS b_value,
        'unknown' AS verdict,
        FALSE AS is_confounding,
        'neither capture has the environment: settings that change timing may differ' AS detail
    FROM (SELECT count(*) AS sides FROM environment) AS known
    WHERE sides = 0
),

qualities AS (
    SELECT
        'quality' AS area,
        coalesce(a.check_name, b.check_name) AS item,
        CASE WHEN a.check_name IS NULL THEN 'ok' ELSE a.detail END AS a_value,
        CASE WHEN b.check_name IS NULL THEN 'ok' ELSE b.detail END AS b_value,
        'limits' AS verdict,
        FALSE AS is_confounding,
        coalesce(a.forbids, b.forbids) AS detail
    FROM (
        SELECT *
        FROM pair.restriction
        WHERE side = 'A'
    ) AS a
    FULL JOIN (
        SELECT *
        FROM pair.restriction
        WHERE side = 'B'
    ) AS b ON a.check_name = b.check_name
)

SELECT * FROM of_fact
UNION ALL
SELECT * FROM no_environment
UNION ALL
SELECT * FROM qualities;
