-- view:       v1.op
-- purpose:    Device ops that count, with name, class, launching call and the ranges open at the launch.
-- grain:      rank, op_id
-- depends-on: v1.op_launch, v1.name_class, v1.range, v1.name
-- materialise: no
-- since:      1
-- columns:
--   rank            BIGINT   -  Global rank.
--   op_id           BIGINT   -  Number of the op within its rank.
--   kind            VARCHAR  -  kernel, memcpy, memset or graph.
--   name            VARCHAR  -  Kernel or copy name.
--   time_class      VARCHAR  -  compute, communication, packing, copy, memset or graph.
--   op_class        VARCHAR  -  Finer class: gemm, attention, norm, ..., nccl, memcpy, ...
--   rule_id         VARCHAR  -  Rule that decided: one of v1.kernel_rule, kind, or annotation.
--   device          INTEGER  -  Device ordinal.
--   context         BIGINT   -  CUDA context id.
--   stream          BIGINT   -  Stream id.
--   start_ns        BIGINT   ns Start on the device.
--   end_ns          BIGINT   ns End on the device.
--   dur_ns          BIGINT   ns end_ns - start_ns.
--   correlation_id  BIGINT   -  Host issue order within the process.
--   graph_node_id   BIGINT   -  CUDA graph node.
--   bytes           BIGINT   B  Bytes copied or set.
--   copy_kind       VARCHAR  -  HtoD, DtoH, DtoD, ...
--   src_memory      VARCHAR  -  Source memory kind.
--   dst_memory      VARCHAR  -  Destination memory kind.
--   launch_call_id  BIGINT   -  Launching API call (outermost of that correlation id); NULL when not captured.
--   launch_tid      BIGINT   -  Launching thread.
--   launch_start_ns BIGINT   ns Entry of the launching call.
--   launch_end_ns   BIGINT   ns Return of the launching call.
--   issued_ns       BIGINT   ns Earlier of launch_end_ns and start_ns: from here on the device could start it. NULL without a launch.
--   context_range_id BIGINT  -  Innermost range open on the launching thread at the call's entry.
--   annotation_id   BIGINT   -  Innermost annotation open there.
--   annotation      VARCHAR  -  Its text.
--   previous_op_id  BIGINT   -  Op before it on its stream.
--   previous_end_ns BIGINT   ns End of that op.
-- audit op_has_positive_length:
--   SELECT o.rank, o.op_id FROM v1.op AS o WHERE o.end_ns <= o.start_ns
-- audit op_issued_before_start:
--   SELECT o.rank, o.op_id FROM v1.op AS o WHERE o.issued_ns > o.start_ns
CREATE OR REPLACE VIEW v1.op AS
WITH classed AS (
    SELECT
        o.*,
        c.name AS kernel_name,
        c.rule_id AS name_rule_id,
        c.time_class AS name_time_class,
        c.op_class AS name_op_class,
        o.is_packing_range AND c.time_class = 'compute' AS is_packing_by_annotation
    FROM v1.op_launch AS o
    LEFT JOIN v1.name_class AS c ON o.rank = c.rank AND o.name_id = c.name_id AND o.kind = 'kernel'
)

SELECT
    k.rank,
    k.op_id,
    k.kind,
    coalesce(k.kernel_name, n.name, '[unknown ' || k.kind || ']') AS name,
    CASE
        WHEN k.is_packing_by_annotation THEN 'packing'
        WHEN k.kind = 'kernel' THEN k.name_time_class
        WHEN k.kind = 'memcpy' THEN 'copy'
        ELSE k.kind
    END AS time_class,
    CASE
        WHEN k.is_packing_by_annotation THEN 'annotated'
        WHEN k.kind = 'kernel' THEN k.name_op_class
        ELSE k.kind
    END AS op_class,
    CASE
        WHEN k.is_packing_by_annotation THEN 'annotation'
        WHEN k.kind = 'kernel' THEN k.name_rule_id
        ELSE 'kind'
    END AS rule_id,
    k.device,
    k.context,
    k.stream,
    k.start_ns,
    k.end_ns,
    k.end_ns - k.start_ns AS dur_ns,
    k.correlation_id,
    k.graph_node_id,
    k.bytes,
    k.copy_kind,
    k.src_memory,
    k.dst_memory,
    k.launch_call_id,
    k.launch_tid,
    k.launch_start_ns,
    k.launch_end_ns,
    -- A call that never returned was still entered before the op started; least() skips its NULL.
    CASE WHEN k.launch_call_id IS NOT NULL THEN least(k.launch_end_ns, k.start_ns) END AS issued_ns,
    k.context_range_id,
    k.annotation_id,
    a.name AS annotation,
    k.previous_op_id,
    k.previous_end_ns
FROM classed AS k
LEFT JOIN v1.name AS n ON k.rank = n.rank AND k.name_id = n.name_id AND k.kind <> 'kernel'
LEFT JOIN v1.range AS r ON k.rank = r.rank AND k.annotation_id = r.range_id
LEFT JOIN v1.name AS a ON r.rank = a.rank AND r.name_id = a.name_id;
