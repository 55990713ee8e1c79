-- view:       v1.event_producer
-- purpose:    For ops behind a stream wait: the latest-ending op that the waits lead to.
-- grain:      rank, op_id
-- depends-on: v1.event_edge
-- materialise: no
-- since:      1
-- columns:
--   rank              BIGINT   -  Global rank.
--   op_id             BIGINT   -  First op launched on the waiting stream after the waits.
--   producer_op_id    BIGINT   -  Latest-ending producer; NULL when none is known.
--   producer_end_ns   BIGINT   ns Its end.
--   unresolved_waits  BIGINT   -  Waits before the op whose producer is unknown; a wait for a stream without an earlier op is none.
CREATE OR REPLACE VIEW v1.event_producer AS
SELECT
    e.rank,
    e.consumer_op_id AS op_id,
    arg_max(e.producer_op_id, e.producer_end_ns) AS producer_op_id,
    max(e.producer_end_ns) AS producer_end_ns,
    count(DISTINCT e.wait_id) FILTER (WHERE e.producer_op_id IS NULL AND NOT e.is_complete)
        AS unresolved_waits
FROM v1.event_edge AS e
WHERE e.consumer_op_id IS NOT NULL
GROUP BY e.rank, e.consumer_op_id;
