-- view:       v1.op_launch
-- purpose:    Device ops that count, with the launching call, the ranges open there and the op before on the stream.
-- grain:      rank, op_id
-- depends-on: v1.gpu_op, v1.api_call, v1.range_segment, v1.call_range, v1.name
-- materialise: rank
-- since:      1
-- columns:
--   rank             BIGINT   -   Global rank.
--   op_id            BIGINT   -   Number of the op within its rank.
--   kind             VARCHAR  -   kernel, memcpy, memset or graph.
--   name_id          BIGINT   -   Kernel or copy name.
--   stream           BIGINT   -   Stream id.
--   start_ns         BIGINT   ns  Start on the device.
--   end_ns           BIGINT   ns  End on the device.
--   correlation_id   BIGINT   -   Host issue order within the process.
--   launch_call_id   BIGINT   -   Launching API call (outermost of that correlation id); NULL when not captured.
--   launch_tid       BIGINT   -   Launching thread.
--   launch_start_ns  BIGINT   ns  Entry of the launching call.
--   launch_end_ns    BIGINT   ns  Return of the launching call.
--   context_range_id BIGINT   -   Innermost range open on the launching thread at the call's entry.
--   annotation_id    BIGINT   -   Innermost annotation open there.
--   is_packing_range BOOLEAN  -   Whether that annotation is one under which FSDP2 packs and unpacks its buffers.
--   previous_op_id   BIGINT   -   Op before it on its stream.
--   previous_end_ns  BIGINT   ns  End of that op.
CREATE OR REPLACE VIEW v1.op_launch AS
-- Sorts come before joins, on as few columns as they need: this view sees every op of a rank.
WITH ordered AS (
    SELECT
        g.rank,
        g.op_id,
        g.kind,
        g.name_id,
        g.process_id,
        g.stream,
        g.start_ns,
        g.end_ns,
        g.correlation_id,
        lag(g.op_id) OVER on_stream AS previous_op_id,
        lag(g.end_ns) OVER on_stream AS previous_end_ns
    FROM v1.gpu_op AS g
    WHERE g.end_ns > g.start_ns
    WINDOW on_stream AS (PARTITION BY g.rank, g.stream ORDER BY g.start_ns, g.op_id)
),

-- One row a correlation id: where a runtime call wraps a driver call of the same id, the outermost counts.
launch AS (
    SELECT
        a.rank,
        a.process_id,
        a.correlation_id,
        coalesce(arg_min(a.call_id, a.start_ns - a.end_ns), min(a.call_id)) AS call_id,
        min(a.tid) AS tid,
        min(a.start_ns) AS start_ns,
        max(a.end_ns) AS end_ns
    FROM v1.api_call AS a
    SEMI JOIN v1.gpu_op AS g ON a.rank = g.rank AND a.correlation_id = g.correlation_id
    GROUP BY a.rank, a.process_id, a.correlation_id
),

any_segment AS (
    SELECT *
    FROM v1.range_segment
    WHERE layer = 'all'
),

annotation_segment AS (
    SELECT *
    FROM v1.range_segment
    WHERE layer = 'annotation'
),

placed AS (
    SELECT
        l.*,
        CASE WHEN s.open_until_ns > l.start_ns THEN s.range_id END AS range_id
    FROM launch AS l
    ASOF LEFT JOIN any_segment AS s
        ON l.rank = s.rank AND l.tid = s.tid AND l.start_ns >= s.at_ns
),

-- The annotation of a launch is that of its innermost range: the range itself or one around it.
annotated AS (
    SELECT
        r.rank,
        r.range_id,
        CASE WHEN s.open_until_ns > r.start_ns THEN s.range_id END AS annotation_id
    FROM v1.call_range AS r
    ASOF INNER JOIN annotation_segment AS s
        ON r.rank = s.rank AND r.tid = s.tid AND r.start_ns >= s.at_ns
),

annotation AS (
    SELECT
        a.rank,
        a.range_id,
        a.annotation_id,
        -- FSDP2 copies in and out of its buffers with generic kernels: only the label tells them apart.
        coalesce(
            n.name LIKE 'FSDP::all_gather%' OR n.name LIKE 'FSDP::post_backward_reduce%', FALSE
        ) AS is_packing
    FROM annotated AS a
    INNER JOIN v1.call_range AS r ON a.rank = r.rank AND a.annotation_id = r.range_id
    LEFT JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
)

SELECT
    o.rank,
    o.op_id,
    o.kind,
    o.name_id,
    o.stream,
    o.start_ns,
    o.end_ns,
    o.correlation_id,
    l.call_id AS launch_call_id,
    l.tid AS launch_tid,
    l.start_ns AS launch_start_ns,
    l.end_ns AS launch_end_ns,
    l.range_id AS context_range_id,
    a.annotation_id,
    coalesce(a.is_packing, FALSE) AS is_packing_range,
    o.previous_op_id,
    o.previous_end_ns
FROM ordered AS o
LEFT JOIN placed AS l
    ON
        o.rank = l.rank
        AND o.process_id IS NOT DISTINCT FROM l.process_id
        AND o.correlation_id = l.correlation_id
LEFT JOIN annotation AS a ON l.rank = a.rank AND l.range_id = a.range_id;
