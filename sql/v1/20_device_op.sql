-- view:       v1.device_op
-- purpose:    Device ops that count, classed, in numbers only: what unions and gaps are made from.
-- grain:      rank, op_id
-- depends-on: v1.op_launch, v1.name_class, v1.collective_copy
-- materialise: no
-- since:      1
-- columns:
--   rank            BIGINT   -  Global rank.
--   op_id           BIGINT   -  Number of the op within its rank.
--   kind            VARCHAR  -  kernel, memcpy, memset or graph.
--   name_id          BIGINT   -   Kernel or copy name.
--   time_class      VARCHAR  -  compute, communication, packing, copy, memset or graph.
--   op_class        VARCHAR  -  Finer class: gemm, attention, norm, ..., nccl, copy_engine, memcpy, ...
--   rule_id         VARCHAR  -  Rule that decided: one of v1.kernel_rule, kind, annotation, or collective_call (v1.collective_copy).
--   stream          BIGINT   -  Stream id.
--   start_ns        BIGINT   ns Start on the device.
--   end_ns          BIGINT   ns End on the device.
--   dur_ns          BIGINT   ns end_ns - start_ns.
--   correlation_id  BIGINT   -  Host issue order within the process.
--   launch_call_id  BIGINT   -  Launching API call (outermost of that correlation id); NULL when not captured.
--   launch_tid      BIGINT   -  Launching thread.
--   launch_start_ns BIGINT   ns Entry of the launching call.
--   launch_end_ns   BIGINT   ns Return of the launching call.
--   issued_ns       BIGINT   ns Earlier of launch_end_ns and start_ns: from here on the device could start it. NULL without a launch.
--   context_range_id BIGINT  -  Innermost range open on the launching thread at the call's entry.
--   annotation_id   BIGINT   -  Innermost annotation open there.
--   previous_op_id  BIGINT   -  Op before it on its stream.
--   previous_end_ns BIGINT   ns End of that op.
-- audit op_has_positive_length:
--   SELECT o.rank, o.op_id FROM v1.device_op AS o WHERE o.end_ns <= o.start_ns
-- audit op_issued_before_start:
--   SELECT o.rank, o.op_id FROM v1.device_op AS o WHERE o.issued_ns > o.start_ns
CREATE OR REPLACE VIEW v1.device_op AS
WITH classed AS (
    SELECT
        o.*,
        c.rule_id AS name_rule_id,
        c.time_class AS name_time_class,
        c.op_class AS name_op_class,
        o.is_packing_range AND c.time_class = 'compute' AS is_packing_by_annotation,
        e.op_id IS NOT NULL AS is_collective_copy
    FROM v1.op_launch AS o
    -- A kernel without a name has a class too: that of the unknown name.
    LEFT JOIN v1.name_class AS c
        ON o.rank = c.rank AND o.name_id IS NOT DISTINCT FROM c.name_id AND o.kind = 'kernel'
    LEFT JOIN v1.collective_copy AS e ON o.rank = e.rank AND o.op_id = e.op_id
)

SELECT
    k.rank,
    k.op_id,
    k.kind,
    k.name_id,
    CASE
        WHEN k.is_packing_by_annotation THEN 'packing'
        WHEN k.kind = 'kernel' THEN k.name_time_class
        WHEN k.is_collective_copy THEN 'communication'
        WHEN k.kind = 'memcpy' THEN 'copy'
        ELSE k.kind
    END AS time_class,
    CASE
        WHEN k.is_packing_by_annotation THEN 'annotated'
        WHEN k.kind = 'kernel' THEN k.name_op_class
        WHEN k.is_collective_copy THEN 'copy_engine'
        ELSE k.kind
    END AS op_class,
    CASE
        WHEN k.is_packing_by_annotation THEN 'annotation'
        WHEN k.kind = 'kernel' THEN k.name_rule_id
        WHEN k.is_collective_copy THEN 'collective_call'
        ELSE 'kind'
    END AS rule_id,
    k.stream,
    k.start_ns,
    k.end_ns,
    k.end_ns - k.start_ns AS dur_ns,
    k.correlation_id,
    k.launch_call_id,
    k.launch_tid,
    k.launch_start_ns,
    k.launch_end_ns,
    -- A call that never returned was still entered before the op started; least() skips its NULL.
    CASE WHEN k.launch_call_id IS NOT NULL THEN least(k.launch_end_ns, k.start_ns) END AS issued_ns,
    k.context_range_id,
    k.annotation_id,
    k.previous_op_id,
    k.previous_end_ns
FROM classed AS k;
