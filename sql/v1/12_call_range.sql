-- view:       v1.call_range
-- purpose:    Ranges in which their own thread enters a CUDA call: only these can be the context of a launch.
-- grain:      rank, range_id
-- depends-on: v1.range, v1.api_call
-- materialise: rank
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank.
--   range_id    BIGINT   -  Number of the range within its rank.
--   tid         BIGINT   -  Thread.
--   kind        VARCHAR  -  push_pop, user_annotation, cpu_op or another kind of v1.range.
--   name_id     BIGINT   -  Its text.
--   start_ns    BIGINT   ns Start.
--   end_ns      BIGINT   ns End; NULL when still open.
--   external_id BIGINT   -  External id, or op number of emit_nvtx().
CREATE OR REPLACE VIEW v1.call_range AS
-- Most ranges of a training step (views, shapes, dispatch) call nothing: to drop them costs one sort of
-- their starts, to nest them two sorts of their starts and ends. What is sorted is numbers only.
WITH call AS (
    SELECT
        rank,
        tid,
        start_ns
    FROM v1.api_call
    WHERE correlation_id IS NOT NULL
),

held AS (
    SELECT
        r.rank,
        r.range_id
    FROM v1.range AS r
    ASOF INNER JOIN call AS c
        ON r.rank = c.rank AND r.tid = c.tid AND r.start_ns <= c.start_ns
    WHERE c.start_ns < coalesce(r.end_ns, 4000000000000000000)
)

SELECT
    r.rank,
    r.range_id,
    r.tid,
    r.kind,
    r.name_id,
    r.start_ns,
    r.end_ns,
    r.external_id
FROM v1.range AS r
SEMI JOIN held AS h ON r.rank = h.rank AND r.range_id = h.range_id;
