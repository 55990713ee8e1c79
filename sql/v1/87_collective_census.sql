-- view:       v1.collective_census
-- purpose:    How many collectives of each type a rank ran per step, how much they moved, how long they took.
-- grain:      rank, step_id, group_name, type
-- depends-on: v1.collective_op, v1.collective_instance, v1.element_size
-- materialise: no
-- since:      1
-- columns:
--   rank               BIGINT   -  Global rank.
--   step_id            BIGINT   -  Step whose host range holds the launch; NULL outside of steps.
--   group_name         VARCHAR  -  Process group; 'unknown' where the source names none.
--   type               VARCHAR  -  Kind of operation.
--   op_count           BIGINT   -  Communication kernels.
--   matched_count      BIGINT   -  Of these, matched on all their ranks.
--   elements           BIGINT   -  Sum of the messages, each by its larger side (the gathered or the unreduced one); NULL unless known for every op.
--   bytes              BIGINT   B  The same in bytes; NULL unless the element type of every op is known.
--   busy_ns            BIGINT   ns Union of the ops, waiting for other ranks included.
--   median_transfer_ns BIGINT   ns Median of last aligned end less last aligned start, over the matched ones; NULL without one.
-- audit collective_census_counts_every_op:
--   SELECT a.census_count, b.op_count
--   FROM (SELECT coalesce(sum(c.op_count), 0) AS census_count FROM v1.collective_census AS c) AS a
--   CROSS JOIN (SELECT count(*) AS op_count FROM v1.collective_op) AS b
--   WHERE a.census_count <> b.op_count
CREATE OR REPLACE VIEW v1.collective_census AS
WITH member AS (
    SELECT
        o.rank,
        o.step_id,
        o.group_name,
        o.type,
        greatest(o.elements_in, o.elements_out) AS elements,
        greatest(o.elements_in, o.elements_out) * e.element_bytes AS bytes,
        i.is_matched,
        i.transfer_ns,
        o.start_ns,
        o.end_ns,
        max(o.end_ns) OVER (
            PARTITION BY o.rank, o.step_id, o.group_name, o.type
            ORDER BY o.start_ns, o.op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until_ns
    FROM v1.collective_op AS o
    LEFT JOIN v1.element_size AS e ON lower(o.dtype) = e.dtype
    LEFT JOIN v1.collective_instance AS i ON o.rank = i.rank AND o.op_id = i.op_id
)

SELECT
    rank,
    step_id,
    group_name,
    type,
    count(*) AS op_count,
    count(*) FILTER (WHERE is_matched) AS matched_count,
    CASE WHEN count(elements) = count(*) THEN sum(elements) END::BIGINT AS elements,
    CASE WHEN count(bytes) = count(*) THEN sum(bytes) END::BIGINT AS bytes,
    sum(greatest(0, end_ns - greatest(start_ns, coalesce(busy_until_ns, start_ns))))::BIGINT AS busy_ns,
    median(transfer_ns)::BIGINT AS median_transfer_ns
FROM member
GROUP BY rank, step_id, group_name, type;
