-- view:       v1.step_number
-- purpose:    Which steps of the ranks are one step of the run, also where captures begin at different ones.
-- grain:      rank, step_id
-- depends-on: v1.step
-- materialise: no
-- since:      1
-- columns:
--   rank        BIGINT -  Global rank.
--   step_id     BIGINT -  Step of that rank.
--   step_number BIGINT -  The number that labels of profiler, NVTX and instrument steps end in, where all have one; else step_id.
CREATE OR REPLACE VIEW v1.step_number AS
WITH labelled AS (
    SELECT
        rank,
        step_id,
        CASE
            WHEN source IN ('profiler_step', 'nvtx_step', 'gapscope_step')
                THEN try_cast(regexp_extract(label, '\d+$') AS BIGINT)
        END AS number
    FROM v1.step
),

numbering AS (
    SELECT count(*) = count(number) AND count(*) = count(DISTINCT row(rank, number)) AS is_complete
    FROM labelled
)

SELECT
    l.rank,
    l.step_id,
    CASE WHEN n.is_complete THEN l.number ELSE l.step_id END AS step_number
FROM labelled AS l
CROSS JOIN numbering AS n;
