-- view:       v1.binding_producer
-- purpose:    Of all recorded reasons for an op to wait (stream order, event edges), the one that ended last.
-- grain:      rank, op_id
-- depends-on: v1.device_op, v1.event_producer
-- materialise: no
-- since:      1
-- columns:
--   rank              BIGINT   -  Global rank.
--   op_id             BIGINT   -  Op that waits.
--   previous_op_id    BIGINT   -  Op before it on its stream.
--   producer_op_id    BIGINT   -  Latest-ending op among the stream's previous one and the event producers.
--   producer_end_ns   BIGINT   ns Its end.
--   is_event_edge     BOOLEAN  -  Whether it came through an event edge.
--   unresolved_waits  INTEGER  -  Waits before the op whose producer is unknown.
CREATE OR REPLACE VIEW v1.binding_producer AS
SELECT
    o.rank,
    o.op_id,
    o.previous_op_id,
    CASE
        WHEN coalesce(p.producer_end_ns > o.previous_end_ns, p.producer_op_id IS NOT NULL)
            THEN p.producer_op_id
        ELSE o.previous_op_id
    END AS producer_op_id,
    greatest(p.producer_end_ns, o.previous_end_ns) AS producer_end_ns,
    coalesce(
        p.producer_end_ns > o.previous_end_ns, p.producer_op_id IS NOT NULL
    ) AS is_event_edge,
    coalesce(p.unresolved_waits, 0)::INTEGER AS unresolved_waits
FROM v1.device_op AS o
LEFT JOIN v1.event_producer AS p ON o.rank = p.rank AND o.op_id = p.op_id;
