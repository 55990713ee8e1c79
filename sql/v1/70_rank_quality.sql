-- view:       v1.rank_quality
-- purpose:    Checks over the rows of one rank: joins, intervals, edges, step anchors.
-- grain:      rank, check_name
-- depends-on: v1.gpu_op, v1.api_call, v1.device_op, v1.event_edge, v1.step_range, v1.anchor_check, v1.range, v1.name, v1.run_option
-- materialise: rank
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank.
--   check_name  VARCHAR  -  Stable name of the check.
--   status      VARCHAR  -  ok, info, warn or fail.
--   detail      VARCHAR  -  What was seen, with counts.
--   forbids     VARCHAR  -  What cannot be said because of it; NULL when nothing.
CREATE OR REPLACE VIEW v1.rank_quality AS
WITH op_count AS (
    SELECT
        rank,
        count(*) AS total,
        count(launch_call_id) AS linked,
        count(*) FILTER (WHERE previous_end_ns > start_ns) AS overlapping,
        count(*) FILTER (WHERE start_ns < launch_start_ns) AS premature,
        max(launch_start_ns - start_ns) AS longest_lead_ns
    FROM v1.device_op
    GROUP BY rank
),

fan_out AS (
    SELECT
        rank,
        count(*) AS launch_count,
        sum(op_count) AS op_count
    FROM (
        SELECT
            rank,
            launch_call_id,
            count(*) AS op_count
        FROM v1.device_op
        WHERE launch_call_id IS NOT NULL
        GROUP BY rank, launch_call_id
        HAVING count(*) > 1
    ) AS shared
    GROUP BY rank
),

bad_interval AS (
    SELECT
        rank,
        count(*) FILTER (WHERE end_ns = start_ns) AS empty_count,
        count(*) FILTER (WHERE end_ns < start_ns) AS reversed_count,
        count(*) FILTER (WHERE end_ns IS NULL OR start_ns IS NULL) AS open_count,
        count(*) AS total
    FROM v1.gpu_op
    GROUP BY rank
),

-- A wait that leads only to streams that had no op before in the capture waits for nothing that was captured.
wait AS (
    SELECT
        rank,
        count(*) AS total,
        count(*) FILTER (WHERE has_producer) AS resolved,
        count(*) FILTER (WHERE is_complete AND NOT has_producer) AS empty,
        count(*) FILTER (WHERE has_producer AND NOT is_complete) AS partly_resolved
    FROM (
        SELECT
            rank,
            wait_id,
            bool_or(producer_op_id IS NOT NULL) AS has_producer,
            bool_and(is_complete) AS is_complete
        FROM v1.event_edge
        GROUP BY rank, wait_id
    ) AS by_wait
    GROUP BY rank
),

open_range AS (
    SELECT
        rank,
        count(*) AS total,
        count(*) FILTER (WHERE end_ns IS NULL) AS open_count
    FROM v1.range
    GROUP BY rank
),

anchor AS (
    SELECT
        rank,
        source,
        min(priority) AS priority,
        count(*) AS step_count,
        arg_min(label, ordinal) AS label
    FROM v1.step_range
    GROUP BY rank, source
),

named AS (
    SELECT rank
    FROM anchor
    WHERE source = 'user'
),

chosen AS (
    SELECT *
    FROM anchor
    QUALIFY row_number() OVER (PARTITION BY rank ORDER BY priority) = 1
),

-- The anchor in use and each other one, with their step times: one of them is not the step where they disagree.
second AS (
    SELECT
        u.rank,
        o.priority,
        -- The user's word ends a contest. A range is not refuted by what merely recurs, but a step is no step of the
        -- optimizer when that runs less often.
        CASE
            WHEN o.verdict = 'agrees' THEN 1
            WHEN u.source = 'user' THEN 2
            WHEN (u.priority < 6) = (o.priority < 6) THEN 4
            WHEN o.source = 'optimizer_kernels' THEN 3
            ELSE 2
        END AS severity,
        printf(
            '%s (%d steps, median %.3f ms)', o.source, o.step_count, o.median_ns / 1e6
        ) || CASE
            WHEN o.pair_count IS NOT NULL
                THEN printf(': %d of %d paired windows are more than 2 %% apart', o.apart_count, o.pair_count)
            ELSE ''
        END AS said,
        printf('%s (%d steps, median %.3f ms)', u.source, u.step_count, u.median_ns / 1e6) AS used_said
    FROM v1.anchor_check AS u
    INNER JOIN v1.anchor_check AS o ON u.rank = o.rank AND o.verdict IN ('agrees', 'disagrees')
    WHERE u.is_used
),

-- Labels of FSDP2 said twice: by GapScope's instrument and, say, by emit_nvtx().
labelled AS (
    SELECT
        r.rank,
        count(*) FILTER (WHERE r.domain = 'gapscope') AS own_count,
        count(*) FILTER (WHERE r.domain IS DISTINCT FROM 'gapscope') AS other_count
    FROM v1.range AS r
    INNER JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
    WHERE n.name LIKE 'FSDP::%' AND r.kind <> 'gpu_user_annotation'
    GROUP BY r.rank
),

ranked AS (
    SELECT rank FROM v1.gpu_op
    UNION
    SELECT rank FROM v1.api_call
    UNION
    SELECT rank FROM v1.range
)

SELECT
    o.rank,
    'launch_join' AS check_name,
    CASE WHEN o.linked >= 0.99 * o.total THEN 'ok' ELSE 'warn' END AS status,
    printf('%d of %d device ops (%.1f %%) have a launching API call', o.linked, o.total, 100.0 * o.linked / o.total)
        AS detail,
    CASE
        WHEN o.linked < 0.99 * o.total
            THEN 'launch-starved time as more than a lower bound: unlinked ops count as issued'
    END AS forbids
FROM op_count AS o
UNION ALL
SELECT
    f.rank,
    'launch_fan_out' AS check_name,
    'info' AS status,
    printf(
        '%d launches started %d device ops together (graphs, or one call with several ops)',
        f.launch_count, f.op_count
    ) AS detail,
    NULL AS forbids
FROM fan_out AS f
UNION ALL
-- Nothing runs before it is asked for: the clocks of host and device are apart by at least the lead.
SELECT
    o.rank,
    'launch_order' AS check_name,
    'warn' AS status,
    printf(
        '%d of %d device ops start before their API call, by up to %d ns: device times are too early',
        o.premature, o.linked, o.longest_lead_ns
    ) AS detail,
    'how late launches were (R1): host and device clocks are apart' AS forbids
FROM op_count AS o
WHERE o.premature > 0
UNION ALL
SELECT
    b.rank,
    'interval_sanity' AS check_name,
    CASE
        WHEN b.reversed_count + b.open_count > 0 THEN 'warn'
        WHEN b.empty_count > 0 THEN 'info'
        ELSE 'ok'
    END AS status,
    printf(
        '%d device ops: %d zero-length, %d reversed, %d without an end; none of these is used',
        b.total, b.empty_count, b.reversed_count, b.open_count
    ) AS detail,
    NULL AS forbids
FROM bad_interval AS b
UNION ALL
SELECT
    o.rank,
    'stream_overlap' AS check_name,
    'info' AS status,
    printf('%d device ops start before the one before them on their stream ends', o.overlapping) AS detail,
    'sums of durations as busy time' AS forbids
FROM op_count AS o
WHERE o.overlapping > 0
UNION ALL
SELECT
    w.rank,
    'wait_resolution' AS check_name,
    CASE WHEN w.resolved + w.empty >= 0.99 * w.total THEN 'ok' ELSE 'warn' END AS status,
    printf(
        '%d of %d stream waits (%.1f %%) lead to a producing op, '
        || '%d to a stream without an earlier op, %d stay unresolved',
        w.resolved, w.total, 100.0 * w.resolved / w.total, w.empty, w.total - w.resolved - w.empty
    ) || CASE
        WHEN w.partly_resolved > 0
            THEN printf('; %d lead to one, but not all that they wait for could be followed', w.partly_resolved)
        ELSE ''
    END AS detail,
    CASE
        WHEN w.resolved + w.empty < 0.99 * w.total
            THEN 'blocking time as more than a lower bound: unresolved waits count as stalled'
    END AS forbids
FROM wait AS w
UNION ALL
SELECT
    r.rank,
    'open_ranges' AS check_name,
    'info' AS status,
    printf('%d of %d ranges were still open when the capture ended', r.open_count, r.total) AS detail,
    NULL AS forbids
FROM open_range AS r
WHERE r.open_count > 0
UNION ALL
SELECT
    l.rank,
    'fsdp_label_source' AS check_name,
    'info' AS status,
    printf(
        '%d labels of FSDP2 in the domain gapscope are used, %d from elsewhere are not', l.own_count, l.other_count
    ) AS detail,
    NULL AS forbids
FROM labelled AS l
WHERE l.own_count > 0 AND l.other_count > 0
UNION ALL
SELECT
    c.rank,
    'step_anchor' AS check_name,
    CASE
        WHEN c.source IN ('user', 'profiler_step', 'nvtx_step', 'gapscope_step') THEN 'ok'
        WHEN c.source IN ('optimizer', 'optimizer_kernels') THEN 'info'
        ELSE 'warn'
    END AS status,
    printf('%d steps from %s (%s)', c.step_count, c.source, c.label) AS detail,
    CASE
        WHEN c.source IN ('collective_sequence', 'kernel_sequence')
            THEN 'that a step is one optimizer step: it is an inferred period, perhaps a layer'
    END AS forbids
FROM chosen AS c
UNION ALL
SELECT
    k.rank,
    'step_anchor' AS check_name,
    'warn' AS status,
    'no step range, optimizer range or recurring sequence: only the whole capture is budgeted; name one with `--steps`'
        AS detail,
    'times per step' AS forbids
FROM ranked AS k
WHERE k.rank NOT IN (SELECT c.rank FROM chosen AS c)
UNION ALL
SELECT
    k.rank,
    'steps_option' AS check_name,
    'warn' AS status,
    '`--steps` matches no range of this rank whole: its steps are from another anchor' AS detail,
    'times of the steps that were named' AS forbids
FROM ranked AS k
INNER JOIN v1.run_option AS o ON o.name = 'steps'
WHERE k.rank NOT IN (SELECT a.rank FROM named AS a)
UNION ALL
SELECT
    s.rank,
    'anchor_agreement' AS check_name,
    ['ok', 'info', 'warn', 'fail'][max(s.severity)] AS status,
    CASE max(s.severity)
        WHEN 1 THEN ''
        WHEN 4 THEN 'two step anchors disagree, name the steps with `--steps`: '
        ELSE 'another anchor has other steps: '
    END
    || s.used_said || ' against ' || string_agg(s.said, '; ' ORDER BY s.priority) AS detail,
    CASE max(s.severity)
        WHEN 3 THEN 'that a step holds one step of the optimizer'
        WHEN 4 THEN 'anything beyond the budget'
    END AS forbids
FROM second AS s
GROUP BY s.rank, s.used_said
UNION ALL
SELECT
    c.rank,
    'anchor_agreement' AS check_name,
    'info' AS status,
    'no second anchor to check ' || c.source || ' by' AS detail,
    NULL AS forbids
FROM chosen AS c
WHERE c.priority >= 5 AND c.rank NOT IN (SELECT s.rank FROM second AS s)
UNION ALL
SELECT
    a.rank,
    'step_stability' AS check_name,
    CASE
        WHEN a.op_count_max <= 1.05 * a.op_count_min THEN 'ok'
        WHEN a.priority < 6 THEN 'info'
        ELSE 'warn'
    END AS status,
    printf(
        '%d steps after the first launch %s device ops each',
        a.step_count - 1,
        CASE
            WHEN a.op_count_min = a.op_count_max THEN a.op_count_min::VARCHAR
            ELSE a.op_count_min || ' to ' || a.op_count_max
        END
    ) AS detail,
    CASE
        WHEN a.op_count_max > 1.05 * a.op_count_min THEN 'comparisons of steps as equal work'
    END AS forbids
FROM v1.anchor_check AS a
WHERE a.is_used AND a.op_count_min IS NOT NULL;
