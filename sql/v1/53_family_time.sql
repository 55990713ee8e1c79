-- view:       v1.family_time
-- purpose:    Communication and dispatcher work of each step by library and role, four measures side by side: volume, exposed, blocking and overlap.
-- grain:      rank, projection, step_id, level, family, role, is_communication
-- depends-on: v1.device_op, v1.op_window, v1.name_family, v1.absent_piece, v1.blame_chain
-- materialise: no
-- since:      1
-- columns:
--   rank          BIGINT   -  Global rank.
--   projection    VARCHAR  -  device or capture.
--   step_id       BIGINT   -  Step.
--   level         VARCHAR  -  total (all communication), family, or role (what it does within its family). Packing has families and roles and is in no total.
--   family        VARCHAR  -  nccl, nvshmem, deep_ep, hybrid_ep, ucc, mscclpp, userbuffers, symmetric_memory, copy_engine, custom, dispatcher, fsdp or other; NULL in the total.
--   role          VARCHAR  -  transport, synchronization, routing, packing or control; NULL above roles.
--   is_communication BOOLEAN - Counts as communication; otherwise it is packing.
--   op_count      BIGINT   -  Ops, each window that they run in.
--   volume_ns     BIGINT   ns Work volume: sum of durations inside the window. Says nothing of what the step waits for.
--   busy_ns       BIGINT   ns Union of its ops.
--   exposed_ns    BIGINT   ns Part of busy_ns in which no op but communication runs: an upper bound of what hiding it could give, not a gain. Families exposed together count in each; NULL for packing.
--   overlapped_ns BIGINT   ns busy_ns - exposed_ns.
--   blocking_ns   BIGINT   ns Compute-absent time in which an issued compute op waits, by recorded edges followed back, for one of these ops to run.
CREATE OR REPLACE VIEW v1.family_time AS
WITH op AS (
    SELECT
        o.rank,
        o.op_id,
        o.time_class = 'communication' AS is_communication,
        CASE
            WHEN o.op_class = 'copy_engine' THEN 'copy_engine'
            -- Generic kernels that an annotation of FSDP2 makes packing.
            WHEN o.rule_id = 'annotation' THEN 'fsdp'
            ELSE coalesce(f.family, 'other')
        END AS family,
        CASE
            WHEN o.rule_id = 'annotation' THEN 'packing'
            ELSE coalesce(f.role, 'transport')
        END AS role
    FROM v1.device_op AS o
    LEFT JOIN v1.name_family AS f
        ON o.rank = f.rank AND o.name_id IS NOT DISTINCT FROM f.name_id AND o.kind = 'kernel'
    WHERE o.time_class IN ('communication', 'packing')
),

part AS (
    SELECT
        w.rank,
        w.projection,
        w.step_id,
        w.op_id,
        o.is_communication,
        o.family,
        o.role,
        w.start_ns,
        w.end_ns
    FROM v1.op_window AS w
    INNER JOIN op AS o ON w.rank = o.rank AND w.op_id = o.op_id
    WHERE w.time_class IN ('communication', 'packing')
),

levelled AS (
    SELECT
        * EXCLUDE (family, role),
        'total' AS level,
        NULL AS family,
        NULL AS role
    FROM part
    WHERE is_communication
    UNION ALL
    SELECT
        * EXCLUDE (family, role),
        'family' AS level,
        family,
        NULL AS role
    FROM part
    UNION ALL
    SELECT
        * EXCLUDE (family, role),
        'role' AS level,
        family,
        role
    FROM part
),

-- What each op adds to the union of its kind: these stretches do not overlap.
added AS (
    SELECT
        *,
        greatest(start_ns, coalesce(max(end_ns) OVER (
            PARTITION BY rank, projection, step_id, level, family, role, is_communication
            ORDER BY start_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns)) AS from_ns
    FROM levelled
),

-- Union of all that does not communicate, up to the start of each of its ops.
beside AS (
    SELECT
        o.rank,
        o.op_id,
        o.start_ns,
        o.end_ns,
        max(o.end_ns) OVER (
            PARTITION BY o.rank ORDER BY o.start_ns, o.op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until
    FROM v1.device_op AS o
    WHERE o.time_class <> 'communication'
),

beside_so_far AS (
    SELECT
        rank,
        start_ns,
        max(end_ns) OVER so_far AS busy_until,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(busy_until, start_ns)))) OVER so_far AS busy_ns
    FROM beside
    WINDOW so_far AS (PARTITION BY rank ORDER BY start_ns, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),

by_start AS (
    SELECT
        rank,
        start_ns,
        max(busy_until) AS busy_until,
        max(busy_ns) AS busy_ns
    FROM beside_so_far
    GROUP BY rank, start_ns
),

edge AS (
    SELECT
        rank,
        from_ns AS at_ns
    FROM added
    WHERE end_ns > from_ns
    UNION
    SELECT
        rank,
        end_ns AS at_ns
    FROM added
    WHERE end_ns > from_ns
),

at_edge AS (
    SELECT
        e.rank,
        e.at_ns,
        coalesce(b.busy_ns - greatest(b.busy_until - e.at_ns, 0), 0) AS busy_ns
    FROM edge AS e
    ASOF LEFT JOIN by_start AS b ON e.rank = b.rank AND e.at_ns >= b.start_ns
),

summed AS (
    SELECT
        a.rank,
        a.projection,
        a.step_id,
        a.level,
        a.family,
        a.role,
        a.is_communication,
        count(*) AS op_count,
        sum(a.end_ns - a.start_ns) AS volume_ns,
        sum(greatest(a.end_ns - a.from_ns, 0)) AS busy_ns,
        sum(a.end_ns - a.from_ns - (f.busy_ns - s.busy_ns)) FILTER (WHERE a.end_ns > a.from_ns) AS exposed_ns
    FROM added AS a
    LEFT JOIN at_edge AS s ON a.rank = s.rank AND a.from_ns = s.at_ns
    LEFT JOIN at_edge AS f ON a.rank = f.rank AND a.end_ns = f.at_ns
    GROUP BY a.rank, a.projection, a.step_id, a.level, a.family, a.role, a.is_communication
),

held AS (
    SELECT
        p.rank,
        p.projection,
        p.step_id,
        o.family,
        o.role,
        o.is_communication,
        sum(least(c.end_ns, p.end_ns) - greatest(c.start_ns, p.start_ns)) AS blocking_ns
    FROM v1.absent_piece AS p
    INNER JOIN v1.blame_chain AS c
        ON p.rank = c.rank AND p.gap_id = c.gap_id AND c.start_ns < p.end_ns AND c.end_ns > p.start_ns
    INNER JOIN op AS o ON c.rank = o.rank AND c.op_id = o.op_id
    WHERE p.absent_class = 'blocking' AND p.projection <> 'host' AND c.reason = 'running'
    GROUP BY p.rank, p.projection, p.step_id, o.family, o.role, o.is_communication
),

held_level AS (
    SELECT
        rank,
        projection,
        step_id,
        CASE
            WHEN grouping(family) = 1 THEN 'total'
            WHEN grouping(role) = 1 THEN 'family'
            ELSE 'role'
        END AS level,
        family,
        role,
        is_communication,
        sum(blocking_ns) AS blocking_ns
    FROM held
    GROUP BY GROUPING SETS (
        (rank, projection, step_id, is_communication),
        (rank, projection, step_id, is_communication, family),
        (rank, projection, step_id, is_communication, family, role)
    )
)

SELECT
    s.rank,
    s.projection,
    s.step_id,
    s.level,
    s.family,
    s.role,
    s.is_communication,
    s.op_count,
    s.volume_ns::BIGINT AS volume_ns,
    s.busy_ns::BIGINT AS busy_ns,
    CASE WHEN s.is_communication THEN s.exposed_ns END::BIGINT AS exposed_ns,
    CASE WHEN s.is_communication THEN s.busy_ns - s.exposed_ns END::BIGINT AS overlapped_ns,
    coalesce(h.blocking_ns, 0)::BIGINT AS blocking_ns
FROM summed AS s
LEFT JOIN held_level AS h
    ON
        s.rank = h.rank
        AND s.projection = h.projection
        AND s.step_id = h.step_id
        AND s.level = h.level
        AND s.family IS NOT DISTINCT FROM h.family
        AND s.role IS NOT DISTINCT FROM h.role
        AND s.is_communication = h.is_communication;
