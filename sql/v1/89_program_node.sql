-- view:       v1.program_node
-- purpose:    Each node of FSDP2's program as it ran: when it was issued, when it ran, how long it was busy.
-- grain:      rank, step_id, node_id
-- depends-on: v1.op_unit, v1.device_op, v1.collective_op
-- materialise: rank
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank.
--   step_id     BIGINT   -  Step.
--   node_id     BIGINT   -  Number of the node within the step, in host issue order.
--   node        VARCHAR  -  Name of the node, like AG'(blocks.0).
--   node_kind   VARCHAR  -  AGIN, AG, AGOUT, FWD, BWD, RSIN, RS, AR, POST, OPT or COMM.
--   unit        VARCHAR  -  Module FQN; '' for the root.
--   phase       VARCHAR  -  forward, backward or optimizer.
--   turn        BIGINT   -  1 for the first node of this kind and unit in the step, 2 for the second, ...
--   group_name  VARCHAR  -  Process group of a collective; NULL for other nodes.
--   op_count    BIGINT   -  Device ops.
--   issued_ns   BIGINT   ns When its first op was issued.
--   start_ns    BIGINT   ns Start of its first op.
--   end_ns      BIGINT   ns End of its last op.
--   busy_ns     BIGINT   ns Union of its ops.
--   compute_ns  BIGINT   ns Union of its compute kernels.
-- audit program_node_busy_within_span:
--   SELECT p.rank, p.step_id, p.node_id FROM v1.program_node AS p
--   WHERE p.busy_ns > p.end_ns - p.start_ns OR p.compute_ns > p.busy_ns
CREATE OR REPLACE VIEW v1.program_node AS
WITH member AS (
    SELECT
        u.rank,
        u.step_id,
        u.node_id,
        u.node,
        u.node_kind,
        u.unit,
        u.phase,
        u.turn,
        c.group_name,
        o.issued_ns,
        o.start_ns,
        o.end_ns,
        o.time_class IN ('compute', 'graph') AS is_compute,
        max(o.end_ns) OVER before AS busy_until_ns,
        max(CASE WHEN o.time_class IN ('compute', 'graph') THEN o.end_ns END) OVER before AS compute_until_ns
    FROM v1.op_unit AS u
    INNER JOIN v1.device_op AS o ON u.rank = o.rank AND u.op_id = o.op_id
    LEFT JOIN v1.collective_op AS c ON u.rank = c.rank AND u.op_id = c.op_id
    WINDOW before AS (
        PARTITION BY u.rank, u.step_id, u.node_id
        ORDER BY o.start_ns, o.op_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)

SELECT
    rank,
    step_id,
    node_id,
    min(node) AS node,
    min(node_kind) AS node_kind,
    min(unit) AS unit,
    min(phase) AS phase,
    min(turn) AS turn,
    min(group_name) AS group_name,
    count(*) AS op_count,
    min(issued_ns) AS issued_ns,
    min(start_ns) AS start_ns,
    max(end_ns) AS end_ns,
    sum(greatest(0, end_ns - greatest(start_ns, coalesce(busy_until_ns, start_ns))))::BIGINT AS busy_ns,
    coalesce(sum(
        greatest(0, end_ns - greatest(start_ns, coalesce(compute_until_ns, start_ns)))
    ) FILTER (WHERE is_compute), 0)::BIGINT AS compute_ns
FROM member
GROUP BY rank, step_id, node_id;
