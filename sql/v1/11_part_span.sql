-- view:       v1.part_span
-- purpose:    Ranks that `[parts]` of gapscope.toml names, and how many of them were captured.
-- grain:      part, first_rank
-- depends-on: v1.rank, v1.declared
-- materialise: no
-- since:      1
-- columns:
--   part           VARCHAR -  Name of the part.
--   first_rank     BIGINT  -  First of neighbouring ranks that it names.
--   last_rank      BIGINT  -  Last of them; itself part of it.
--   captured_count BIGINT  -  How many of them were captured.
CREATE OR REPLACE VIEW v1.part_span AS
WITH listed AS (
    SELECT
        item AS part,
        unnest(string_split(value, ',')) AS ranks
    FROM v1.declared
    WHERE section = 'parts'
),

span AS (
    SELECT
        part,
        regexp_extract(ranks, '^\s*(\d+)', 1)::BIGINT AS first_rank,
        regexp_extract(ranks, '(\d+)\s*$', 1)::BIGINT AS last_rank
    FROM listed
)

SELECT
    s.part,
    s.first_rank,
    s.last_rank,
    count(r.rank) AS captured_count
FROM span AS s
LEFT JOIN v1.rank AS r ON r.rank BETWEEN s.first_rank AND s.last_rank
GROUP BY s.part, s.first_rank, s.last_rank;
