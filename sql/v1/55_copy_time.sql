-- view:       v1.copy_time
-- purpose:    Copies of each step by direction, memory and stream: how long their engine is busy, what rate they reach against the link, and whether anything waits for them.
-- grain:      rank, projection, step_id, level, copy_kind, src_memory, dst_memory, stream
-- depends-on: v1.device_op, v1.op_window, v1.gpu_op, v1.api_call, v1.name, v1.stream, v1.absent_piece, v1.blame_chain, v1.rank, v1.link_peak, v1.declared
-- materialise: no
-- since:      1
-- columns:
--   rank            BIGINT  -    Global rank.
--   projection      VARCHAR -    device or capture.
--   step_id         BIGINT  -    Step.
--   level           VARCHAR -    direction, or stream: by memory kinds and stream as well.
--   copy_kind       VARCHAR -    HtoD, DtoH, DtoD, PtoP, ...; NULL where the source does not say.
--   src_memory      VARCHAR -    Source memory kind; NULL in rows of a direction.
--   dst_memory      VARCHAR -    Destination memory kind; NULL in rows of a direction.
--   stream          BIGINT  -    Stream id; NULL in rows of a direction.
--   op_count        BIGINT  -    Copies, each window that they run in.
--   bytes           BIGINT  B    Bytes, by the part of each copy that lies in the window; NULL when the source does not carry them.
--   volume_ns       BIGINT  ns   Work volume.
--   busy_ns         BIGINT  ns   Union.
--   occupancy       DOUBLE  1    busy_ns over the length of the window: how long the engine of that direction is busy.
--   gb_s            DOUBLE  GB/s bytes over work volume.
--   best_gb_s       DOUBLE  GB/s Fastest copy of 4 MiB or more of that direction and memory in the whole capture: measured, no link peak; NULL without one.
--   peak_gb_s       DOUBLE  GB/s Stated peak: `[device]` of gapscope.toml, else by the device's name (v1.link_peak); half of the memory's for DtoD, which reads and writes. NULL where unknown.
--   peak_source     VARCHAR -    declared, or who states it.
--   blocking_ns     BIGINT  ns   Compute-absent time in which an issued compute op waits, by recorded edges followed back, for one of these copies to run.
--   pageable_count  BIGINT  -    Copies from or to pageable host memory: the host stages them.
--   default_stream_count BIGINT - Copies on the context's null stream, which waits for blocking streams and they for it; NULL where streams are not described.
--   sync_call_count BIGINT  -    Copies by a call that returns only when they are done (no Async in its name).
--   sync_call_ns    BIGINT  ns   Time of the host in these calls.
--   limits          VARCHAR -    saturated engine (occupancy of 0.9 or more), blocking edge (blocking_ns of 1 % of the window or more), or both; NULL: no bottleneck is shown.
CREATE OR REPLACE VIEW v1.copy_time AS
WITH copy AS (
    SELECT
        o.rank,
        o.op_id,
        o.stream,
        o.start_ns,
        o.end_ns,
        o.dur_ns,
        g.bytes,
        g.copy_kind,
        g.src_memory,
        g.dst_memory,
        'pageable' IN (g.src_memory, g.dst_memory) AS is_pageable,
        s.is_default,
        CASE WHEN n.name NOT LIKE '%Async%' AND n.name ILIKE '%memcpy%' THEN a.end_ns - a.start_ns END AS sync_call_ns
    FROM v1.device_op AS o
    INNER JOIN v1.gpu_op AS g ON o.rank = g.rank AND o.op_id = g.op_id
    LEFT JOIN v1.api_call AS a ON o.rank = a.rank AND o.launch_call_id = a.call_id
    LEFT JOIN v1.name AS n ON a.rank = n.rank AND a.name_id = n.name_id
    LEFT JOIN (
        SELECT
            rank,
            stream,
            max(is_default) AS is_default
        FROM v1.stream
        GROUP BY rank, stream
    ) AS s ON o.rank = s.rank AND o.stream = s.stream
    WHERE o.time_class = 'copy'
),

part AS (
    SELECT
        w.rank,
        w.projection,
        w.step_id,
        w.window_ns AS step_ns,
        w.op_id,
        c.stream,
        c.dur_ns,
        c.bytes,
        c.copy_kind,
        c.src_memory,
        c.dst_memory,
        c.is_pageable,
        c.is_default,
        c.sync_call_ns,
        w.start_ns,
        w.end_ns
    FROM v1.op_window AS w
    INNER JOIN copy AS c ON w.rank = c.rank AND w.op_id = c.op_id
    WHERE w.time_class = 'copy'
),

levelled AS (
    SELECT
        * REPLACE (NULL::VARCHAR AS src_memory, NULL::VARCHAR AS dst_memory, NULL::BIGINT AS stream),
        'direction' AS level
    FROM part
    UNION ALL
    SELECT
        *,
        'stream' AS level
    FROM part
),

added AS (
    SELECT
        *,
        greatest(0, end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
            PARTITION BY rank, projection, step_id, level, copy_kind, src_memory, dst_memory, stream
            ORDER BY start_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns))) AS added_ns
    FROM levelled
),

held AS (
    SELECT
        p.rank,
        p.projection,
        p.step_id,
        c.op_id,
        sum(least(b.end_ns, p.end_ns) - greatest(b.start_ns, p.start_ns)) AS blocking_ns
    FROM v1.absent_piece AS p
    INNER JOIN v1.blame_chain AS b
        ON p.rank = b.rank AND p.gap_id = b.gap_id AND b.start_ns < p.end_ns AND b.end_ns > p.start_ns
    INNER JOIN copy AS c ON b.rank = c.rank AND b.op_id = c.op_id
    WHERE p.absent_class = 'blocking' AND p.projection <> 'host' AND b.reason = 'running'
    GROUP BY p.rank, p.projection, p.step_id, c.op_id
),

summed AS (
    SELECT
        a.rank,
        a.projection,
        a.step_id,
        a.level,
        a.copy_kind,
        a.src_memory,
        a.dst_memory,
        a.stream,
        any_value(a.step_ns) AS step_ns,
        count(*) AS op_count,
        sum(a.bytes * ((a.end_ns - a.start_ns) / a.dur_ns)) AS bytes,
        sum(a.end_ns - a.start_ns) AS volume_ns,
        sum(a.end_ns - a.start_ns) FILTER (WHERE a.bytes IS NOT NULL) AS sized_ns,
        sum(a.added_ns) AS busy_ns,
        coalesce(sum(h.blocking_ns), 0) AS blocking_ns,
        count(*) FILTER (WHERE a.is_pageable) AS pageable_count,
        CASE WHEN count(a.is_default) > 0 THEN count(*) FILTER (WHERE a.is_default = 1) END AS default_stream_count,
        count(a.sync_call_ns) AS sync_call_count,
        coalesce(sum(a.sync_call_ns), 0) AS sync_call_ns
    FROM added AS a
    LEFT JOIN held AS h
        ON a.rank = h.rank AND a.projection = h.projection AND a.step_id = h.step_id AND a.op_id = h.op_id
    GROUP BY a.rank, a.projection, a.step_id, a.level, a.copy_kind, a.src_memory, a.dst_memory, a.stream
),

best AS (
    SELECT
        rank,
        copy_kind,
        src_memory,
        dst_memory,
        grouping(src_memory) AS is_direction,
        max(bytes / dur_ns) AS gb_s
    FROM copy
    WHERE bytes >= 4194304
    GROUP BY GROUPING SETS ((rank, copy_kind), (rank, copy_kind, src_memory, dst_memory))
),

declared AS (
    SELECT
        max(try_cast(value AS DOUBLE)) FILTER (WHERE item = 'host_link_gb_s') AS host_link_gb_s,
        max(try_cast(value AS DOUBLE)) FILTER (WHERE item = 'peer_link_gb_s') AS peer_link_gb_s,
        max(try_cast(value AS DOUBLE)) FILTER (WHERE item = 'memory_gb_s') AS memory_gb_s
    FROM v1.declared
    WHERE section = 'device'
),

stated AS (
    SELECT
        r.rank,
        p.host_link_gb_s,
        p.peer_link_gb_s,
        p.memory_gb_s,
        p.source
    FROM v1.rank AS r
    INNER JOIN v1.link_peak AS p ON lower(r.device_name) LIKE p.pattern
    QUALIFY row_number() OVER (PARTITION BY r.rank ORDER BY p.priority) = 1
),

peaked AS (
    SELECT
        s.*,
        b.gb_s AS best_gb_s,
        CASE
            WHEN regexp_matches(s.copy_kind, '(HtoD|DtoH)$') THEN d.host_link_gb_s
            WHEN s.copy_kind = 'PtoP' THEN d.peer_link_gb_s
            WHEN s.copy_kind = 'DtoD' THEN d.memory_gb_s / 2
        END AS declared_gb_s,
        CASE
            WHEN regexp_matches(s.copy_kind, '(HtoD|DtoH)$') THEN p.host_link_gb_s
            WHEN s.copy_kind = 'PtoP' THEN p.peer_link_gb_s
            WHEN s.copy_kind = 'DtoD' THEN p.memory_gb_s / 2
        END AS stated_gb_s,
        p.source
    FROM summed AS s
    LEFT JOIN best AS b
        ON
            s.rank = b.rank
            AND s.copy_kind IS NOT DISTINCT FROM b.copy_kind
            AND s.src_memory IS NOT DISTINCT FROM b.src_memory
            AND s.dst_memory IS NOT DISTINCT FROM b.dst_memory
            AND (s.level = 'direction') = (b.is_direction = 1)
    LEFT JOIN stated AS p ON s.rank = p.rank
    CROSS JOIN declared AS d
)

SELECT
    rank,
    projection,
    step_id,
    level,
    copy_kind,
    src_memory,
    dst_memory,
    stream,
    op_count,
    bytes::BIGINT AS bytes,
    volume_ns::BIGINT AS volume_ns,
    busy_ns::BIGINT AS busy_ns,
    busy_ns / step_ns AS occupancy,
    bytes / sized_ns AS gb_s,
    best_gb_s,
    coalesce(declared_gb_s, stated_gb_s) AS peak_gb_s,
    CASE WHEN declared_gb_s IS NOT NULL THEN 'declared' WHEN stated_gb_s IS NOT NULL THEN source END AS peak_source,
    blocking_ns::BIGINT AS blocking_ns,
    pageable_count,
    default_stream_count,
    sync_call_count,
    sync_call_ns::BIGINT AS sync_call_ns,
    nullif(concat_ws(
        ', ',
        CASE WHEN busy_ns >= 0.9 * step_ns THEN 'saturated engine' END,
        CASE WHEN blocking_ns >= 0.01 * step_ns THEN 'blocking edge' END
    ), '') AS limits
FROM peaked;
