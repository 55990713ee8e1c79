-- view:       v1.representative_rank
-- purpose:    Ranks to look at closely, and why: the slowest of the run, the usual one of each part, and stragglers.
-- grain:      role, part
-- depends-on: v1.rank_survey, v1.part_straggler
-- materialise: no
-- since:      1
-- columns:
--   role    VARCHAR -  slowest (longest median step of the run), straggler (repeated laggard of its part), or usual (median of its part by median step).
--   part    VARCHAR -  Its part.
--   rank    BIGINT  -  Global rank; of equals the lowest.
--   step_ns BIGINT  ns Its median step.
CREATE OR REPLACE VIEW v1.representative_rank AS
WITH placed AS (
    SELECT
        part,
        rank,
        step_ns,
        row_number() OVER (ORDER BY -step_ns, rank) AS place_in_run,
        row_number() OVER (PARTITION BY part ORDER BY step_ns, rank) AS place,
        count(*) OVER (PARTITION BY part) AS rank_count
    FROM v1.rank_survey
    WHERE step_ns IS NOT NULL
)

SELECT
    'slowest' AS role,
    part,
    rank,
    step_ns
FROM placed
WHERE place_in_run = 1
UNION ALL
SELECT
    'usual' AS role,
    part,
    rank,
    step_ns
FROM placed
WHERE place = (rank_count + 1) // 2
UNION ALL
SELECT
    'straggler' AS role,
    p.part,
    p.rank,
    p.step_ns
FROM v1.part_straggler AS s
INNER JOIN placed AS p ON s.top_rank = p.rank
WHERE s.verdict = 'repeated';
