-- view:       v1.collective_bandwidth
-- purpose:    What collectives of one kind and size reached, as nccl-tests counts it, without the waiting for late ranks.
-- grain:      group_name, group_ranks, type, bytes
-- depends-on: v1.collective_op, v1.collective_instance, v1.rank_clock, v1.element_size
-- materialise: no
-- since:      1
-- columns:
--   group_name     VARCHAR -    Process group.
--   group_ranks    VARCHAR -    Its ranks, as the source lists them.
--   type           VARCHAR -    Kind of operation.
--   bytes          BIGINT  B    Message by its larger side: the gathered or the unreduced one; NULL where the element type is unknown.
--   group_size     BIGINT  -    Ranks that take part.
--   instance_count BIGINT  -    Collectives of which all ranks were captured and agree on the message.
--   resolved_count BIGINT  -    Of these, those whose transfer is longer than the clock residual; the columns below are of these.
--   transfer_ns    BIGINT  ns   Median of last aligned end less last aligned start; NULL without one.
--   shortest_ns    BIGINT  ns   The shortest.
--   algorithm_gb_s DOUBLE  GB/s bytes over the median transfer.
--   bus_gb_s       DOUBLE  GB/s That times 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter and all_to_all, 1 for broadcast, reduce, send and recv; NULL for others.
CREATE OR REPLACE VIEW v1.collective_bandwidth AS
WITH member AS (
    SELECT
        i.group_name,
        i.group_ranks,
        i.seq,
        i.type,
        i.group_size,
        i.transfer_ns,
        c.residual_ns,
        greatest(o.elements_in, o.elements_out) * e.element_bytes AS bytes
    FROM v1.collective_instance AS i
    INNER JOIN v1.collective_op AS o ON i.rank = o.rank AND i.op_id = o.op_id
    INNER JOIN v1.rank_clock AS c ON i.rank = c.rank
    LEFT JOIN v1.element_size AS e ON lower(o.dtype) = e.dtype
    WHERE i.is_matched AND i.participants > 1
),

instance AS (
    SELECT
        group_name,
        group_ranks,
        seq,
        any_value(type) AS type,
        any_value(group_size) AS group_size,
        max(bytes) AS bytes,
        CASE
            WHEN count(residual_ns) = count(*) AND any_value(transfer_ns) > max(residual_ns)
                THEN any_value(transfer_ns)
        END AS transfer_ns
    FROM member
    GROUP BY group_name, group_ranks, seq
),

measured AS (
    SELECT
        group_name,
        group_ranks,
        type,
        bytes,
        max(group_size) AS group_size,
        count(*) AS instance_count,
        count(transfer_ns) AS resolved_count,
        quantile_disc(transfer_ns, 0.5) AS transfer_ns,
        min(transfer_ns) AS shortest_ns
    FROM instance
    GROUP BY group_name, group_ranks, type, bytes
)

SELECT
    *,
    bytes / transfer_ns AS algorithm_gb_s,
    bytes / transfer_ns * CASE
        WHEN type = 'all_reduce' THEN 2 * (group_size - 1) / group_size
        WHEN type IN ('all_gather', 'reduce_scatter', 'all_to_all') THEN (group_size - 1) / group_size
        WHEN type IN ('broadcast', 'reduce', 'send', 'recv', 'send_recv') THEN 1
    END AS bus_gb_s
FROM measured;
