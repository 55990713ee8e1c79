-- view:       v1.step
-- purpose:    Steps of each rank and whether they stay out of medians and verdicts.
-- grain:      rank, step_id
-- depends-on: v1.step_window, v1.device_op, v1.api_call, v1.name, v1.overhead, v1.rank, v1.declared, v1.declared_part
-- materialise: run
-- since:      1
-- columns:
--   rank             BIGINT   -  Global rank.
--   step_id          BIGINT   -  Number of the step, from 0.
--   label            VARCHAR  -  Text of the step range.
--   source           VARCHAR  -  Anchor that gave the step.
--   host_start_ns    BIGINT   ns Start on the host.
--   host_end_ns      BIGINT   ns End on the host.
--   device_start_ns  BIGINT   ns Start on the device.
--   device_end_ns    BIGINT   ns End on the device.
--   is_boundary      BOOLEAN  -  Warm-up, graph capture, profiler activity, outside the declared steady steps, or a first step that ranks disagree on.
--   boundary_reason  VARCHAR  -  Why; NULL otherwise.
CREATE OR REPLACE VIEW v1.step AS
WITH paired AS (
    SELECT
        h.rank,
        h.step_id,
        h.label,
        h.source,
        h.is_partial,
        h.start_ns AS host_start_ns,
        h.end_ns AS host_end_ns,
        d.start_ns AS device_start_ns,
        d.end_ns AS device_end_ns,
        d.carried_in_ns
    FROM v1.step_window AS h
    INNER JOIN v1.step_window AS d
        ON h.rank = d.rank AND h.step_id = d.step_id AND d.projection = 'device'
    WHERE h.projection = 'host'
),

telling_call AS (
    SELECT
        a.rank,
        a.start_ns,
        CASE
            WHEN regexp_matches(n.name, '^(cuda|cu|hip)(Module|Library)Load') THEN 'warm-up: modules are loaded'
            WHEN regexp_matches(n.name, '^(cudaStreamBeginCapture|cuStreamBeginCapture|hipStreamBeginCapture)')
                THEN 'graph capture'
            WHEN regexp_matches(n.name, '^(cuda|cu)ProfilerSt') THEN 'profiler start or stop'
        END AS reason
    FROM v1.api_call AS a
    INNER JOIN v1.name AS n ON a.rank = n.rank AND a.name_id = n.name_id
    WHERE regexp_matches(n.name, '(Module|Library)Load|BeginCapture|ProfilerSt')
),

called AS (
    SELECT
        p.rank,
        p.step_id,
        string_agg(DISTINCT c.reason, '; ' ORDER BY c.reason) AS reason,
        bool_or(c.reason NOT LIKE 'warm-up%') AS is_certain
    FROM telling_call AS c
    ASOF INNER JOIN paired AS p ON c.rank = p.rank AND c.start_ns >= p.host_start_ns
    WHERE c.start_ns < p.host_end_ns AND c.reason IS NOT NULL
    GROUP BY p.rank, p.step_id
),

-- The profiler began to record, or emptied its buffers, for more than 2 % of the step.
tool_work AS (
    SELECT
        o.rank,
        o.start_ns,
        o.end_ns,
        CASE WHEN n.name = 'Recording begins' THEN 'the tool begins to record' ELSE 'profiler flush' END AS reason
    FROM v1.overhead AS o
    INNER JOIN v1.name AS n ON o.rank = n.rank AND o.name_id = n.name_id
    WHERE lower(n.name) LIKE '%flush%' OR n.name = 'Recording begins'
),

disturbed AS (
    SELECT
        p.rank,
        p.step_id,
        o.reason
    FROM tool_work AS o
    INNER JOIN paired AS p
        ON o.rank = p.rank AND o.start_ns < p.host_end_ns AND o.end_ns > p.host_start_ns
    GROUP BY p.rank, p.step_id, o.reason
    HAVING
        sum(least(o.end_ns, p.host_end_ns) - greatest(o.start_ns, p.host_start_ns))
        > 0.02 * any_value(p.host_end_ns - p.host_start_ns)
),

flushed AS (
    SELECT
        rank,
        step_id,
        string_agg(reason, '; ' ORDER BY reason) AS reason
    FROM disturbed
    GROUP BY rank, step_id
),

-- A capture that begins while the device is busy: its first launch, or what that launched, waits for work that nobody
-- recorded, or for the tool to begin.
first_op AS (
    SELECT
        rank,
        min(start_ns) AS start_ns,
        min(start_ns) - min(launch_start_ns) AS waited_ns
    FROM v1.device_op
    WHERE launch_start_ns IS NOT NULL
    GROUP BY rank
),

-- Or the host waits, before anything that was recorded runs, for work that was launched before.
first_wait AS (
    SELECT
        p.rank,
        max(least(a.end_ns, o.start_ns, p.device_end_ns) - greatest(a.start_ns, p.device_start_ns)) AS waited_ns
    FROM paired AS p
    INNER JOIN first_op AS o ON p.rank = o.rank
    INNER JOIN v1.api_call AS a
        ON p.rank = a.rank AND a.start_ns < least(o.start_ns, p.device_end_ns) AND a.end_ns > p.device_start_ns
    INNER JOIN v1.name AS n
        ON a.rank = n.rank AND a.name_id = n.name_id AND regexp_matches(n.name, '^(cuda|cu|hip)\w*Synchronize(_|$)')
    WHERE p.step_id = 0
    GROUP BY p.rank
),

-- First step, compared between ranks of one job: same world size, stage, and kind of device and of capture.
first_length AS (
    SELECT
        p.rank,
        p.device_end_ns - p.device_start_ns AS length_ns,
        r.world_size,
        r.device_name,
        r.source_format,
        d.part
    FROM paired AS p
    LEFT JOIN v1.rank AS r ON p.rank = r.rank
    LEFT JOIN v1.declared_part AS d ON p.rank = d.rank
    WHERE p.step_id = 0 AND p.device_end_ns > p.device_start_ns
),

first_step AS (
    SELECT
        rank,
        max(length_ns) OVER job > 1.1 * min(length_ns) OVER job AS differs
    FROM first_length
    WINDOW job AS (PARTITION BY world_size, device_name, source_format, part)
),

warming AS (
    SELECT
        p.rank,
        p.step_id,
        -- Loading modules is warm-up only while every step before did it too.
        bool_and(c.reason IS NOT NULL OR p.is_partial) OVER (
            PARTITION BY p.rank ORDER BY p.step_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS is_leading
    FROM paired AS p
    LEFT JOIN called AS c ON p.rank = c.rank AND p.step_id = c.step_id
),

steady AS (
    SELECT
        split_part(value, ':', 1)::BIGINT AS first_step,
        split_part(value, ':', 2)::BIGINT AS end_step
    FROM v1.declared
    WHERE section = 'run' AND item = 'steady_steps'
),

reasoned AS (
    SELECT
        p.*,
        concat_ws(
            '; ',
            CASE WHEN p.is_partial THEN 'starts or ends with the capture' END,
            CASE WHEN c.is_certain OR l.is_leading THEN c.reason END,
            f.reason,
            CASE
                WHEN p.carried_in_ns > 0.02 * (p.device_end_ns - p.device_start_ns)
                    THEN 'the device still runs work launched before it'
            END,
            CASE
                WHEN
                    p.step_id = 0
                    AND o.start_ns >= p.device_start_ns
                    -- No launch takes a millisecond by itself, however short the step is.
                    AND o.waited_ns > greatest(1e6, 0.02 * (p.device_end_ns - p.device_start_ns))
                    THEN 'the first launch waits for what was before the capture'
            END,
            CASE
                WHEN p.step_id = 0 AND i.waited_ns > greatest(1e6, 0.02 * (p.device_end_ns - p.device_start_ns))
                    THEN 'the host waits for what was before the capture'
            END,
            CASE
                WHEN p.step_id < y.first_step OR p.step_id >= y.end_step THEN 'outside the declared steady steps'
            END,
            CASE WHEN p.step_id = 0 AND s.differs THEN 'first step differs between ranks by over 10 %' END
        ) AS reason
    FROM paired AS p
    LEFT JOIN called AS c ON p.rank = c.rank AND p.step_id = c.step_id
    LEFT JOIN warming AS l ON p.rank = l.rank AND p.step_id = l.step_id
    LEFT JOIN flushed AS f ON p.rank = f.rank AND p.step_id = f.step_id
    LEFT JOIN first_step AS s ON p.rank = s.rank
    LEFT JOIN first_op AS o ON p.rank = o.rank
    LEFT JOIN first_wait AS i ON p.rank = i.rank
    LEFT JOIN steady AS y ON TRUE
)

SELECT
    rank,
    step_id,
    label,
    source,
    host_start_ns,
    host_end_ns,
    device_start_ns,
    device_end_ns,
    reason <> '' AS is_boundary,
    nullif(reason, '') AS boundary_reason
FROM reasoned;
