-- view:       v1.op
-- purpose:    Device ops that count, with name, class, launching call and the ranges open at the launch.
-- grain:      rank, op_id
-- depends-on: v1.device_op, v1.gpu_op, v1.range, v1.name
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
--   stream          BIGINT   -  Stream id.
--   start_ns        BIGINT   ns Start on the device.
--   end_ns          BIGINT   ns End on the device.
--   dur_ns          BIGINT   ns end_ns - start_ns.
--   correlation_id  BIGINT   -  Host issue order within the process.
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
CREATE OR REPLACE VIEW v1.op AS
WITH moved AS (
    SELECT
        rank,
        op_id,
        bytes,
        copy_kind,
        src_memory,
        dst_memory
    FROM v1.gpu_op
    WHERE kind IN ('memcpy', 'memset')
)

SELECT
    o.rank,
    o.op_id,
    o.kind,
    coalesce(n.name, '[unknown ' || o.kind || ']') AS name,
    o.time_class,
    o.op_class,
    o.rule_id,
    o.stream,
    o.start_ns,
    o.end_ns,
    o.dur_ns,
    o.correlation_id,
    m.bytes,
    m.copy_kind,
    m.src_memory,
    m.dst_memory,
    o.launch_call_id,
    o.launch_tid,
    o.launch_start_ns,
    o.launch_end_ns,
    o.issued_ns,
    o.context_range_id,
    o.annotation_id,
    a.name AS annotation,
    o.previous_op_id,
    o.previous_end_ns
FROM v1.device_op AS o
LEFT JOIN moved AS m ON o.rank = m.rank AND o.op_id = m.op_id
LEFT JOIN v1.name AS n ON o.rank = n.rank AND o.name_id = n.name_id
LEFT JOIN v1.range AS r ON o.rank = r.rank AND o.annotation_id = r.range_id
LEFT JOIN v1.name AS a ON r.rank = a.rank AND r.name_id = a.name_id;
