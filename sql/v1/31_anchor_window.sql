-- view:       v1.anchor_window
-- purpose:    Steps of every anchor that the capture offers, on the host and on the device.
-- grain:      rank, source, projection, step_id
-- depends-on: v1.step_range, v1.op_launch
-- materialise: rank
-- since:      1
-- columns:
--   rank       BIGINT   -  Global rank.
--   source     VARCHAR  -  Anchor, as in v1.step_range.
--   priority   INTEGER  -  The lowest priority present is the run's step anchor.
--   projection VARCHAR  -  host: the range itself. device: end of the last op launched in the previous step to the end of the last one launched in this step.
--   step_id    BIGINT   -  Number of the step of that anchor, from 0.
--   label      VARCHAR  -  Text of the step range.
--   start_ns   BIGINT   ns Start.
--   end_ns     BIGINT   ns End.
--   is_partial BOOLEAN  -  The window starts or ends with the capture, not with an anchor.
--   carried_in_ns BIGINT ns First device window: how far into it the device still ran ops launched before; NULL in others.
--   op_count   BIGINT   -  Device ops launched in the step.
-- audit device_windows_tile:
--   SELECT w.rank, w.step_id FROM v1.anchor_window AS w INNER JOIN v1.anchor_window AS p
--   ON w.rank = p.rank AND w.source = p.source AND w.step_id = p.step_id + 1 AND p.projection = 'device'
--   WHERE w.projection = 'device' AND w.start_ns <> p.end_ns
CREATE OR REPLACE VIEW v1.anchor_window AS
-- An op belongs to the step that launched it; its own start stands in where no launch at all is captured.
WITH linked AS (
    SELECT
        rank,
        count(launch_start_ns) > 0 AS has_launches,
        min(start_ns) FILTER (WHERE launch_start_ns IS NOT NULL) AS first_linked_ns
    FROM v1.op_launch
    GROUP BY rank
),

launched AS (
    SELECT
        o.rank,
        o.end_ns,
        CASE WHEN k.has_launches THEN o.launch_start_ns ELSE o.start_ns END AS at_ns
    FROM v1.op_launch AS o
    INNER JOIN linked AS k ON o.rank = k.rank
),

anchor AS (
    SELECT DISTINCT
        rank,
        source
    FROM v1.step_range
),

anchored AS (
    SELECT
        a.rank,
        a.source,
        l.at_ns,
        l.end_ns
    FROM anchor AS a
    INNER JOIN launched AS l ON a.rank = l.rank
    WHERE l.at_ns IS NOT NULL
),

last_op AS (
    SELECT
        h.rank,
        h.source,
        h.ordinal,
        max(l.end_ns) AS end_ns,
        count(*) AS op_count
    FROM anchored AS l
    ASOF INNER JOIN v1.step_range AS h
        ON l.rank = h.rank AND l.source = h.source AND l.at_ns >= h.start_ns
    WHERE l.at_ns < h.end_ns
    GROUP BY h.rank, h.source, h.ordinal
),

-- Ops launched before the first step: by their launch, or, without one, as they run before every linked op.
carried AS (
    SELECT
        f.rank,
        f.source,
        max(o.end_ns) - f.first_ns AS carried_in_ns
    FROM (
        SELECT
            rank,
            source,
            min(start_ns) AS first_ns
        FROM v1.step_range
        GROUP BY rank, source
    ) AS f
    INNER JOIN linked AS k ON f.rank = k.rank
    INNER JOIN v1.op_launch AS o
        ON
            f.rank = o.rank
            AND o.end_ns > f.first_ns
            AND coalesce(o.launch_start_ns < f.first_ns, k.has_launches AND o.start_ns < k.first_linked_ns)
    GROUP BY f.rank, f.source, f.first_ns
),

-- Until the first op has ended a window is empty and waits where the first step starts on the host.
ended AS (
    SELECT
        h.rank,
        h.source,
        h.priority,
        h.ordinal AS step_id,
        h.label,
        h.is_partial,
        h.start_ns,
        h.end_ns AS host_end_ns,
        coalesce(l.op_count, 0) AS op_count,
        min(h.start_ns) OVER so_far AS first_ns,
        greatest(max(l.end_ns) OVER so_far, min(h.start_ns) OVER so_far) AS end_ns
    FROM v1.step_range AS h
    LEFT JOIN last_op AS l ON h.rank = l.rank AND h.source = l.source AND h.ordinal = l.ordinal
    WINDOW so_far AS (PARTITION BY h.rank, h.source ORDER BY h.ordinal)
),

device AS (
    SELECT
        rank,
        source,
        priority,
        step_id,
        label,
        is_partial,
        op_count,
        coalesce(lag(end_ns) OVER (PARTITION BY rank, source ORDER BY step_id), first_ns) AS start_ns,
        end_ns
    FROM ended
)

SELECT
    rank,
    source,
    priority,
    'host' AS projection,
    step_id,
    label,
    start_ns,
    host_end_ns AS end_ns,
    is_partial,
    NULL::BIGINT AS carried_in_ns,
    op_count
FROM ended
UNION ALL
SELECT
    d.rank,
    d.source,
    d.priority,
    'device' AS projection,
    d.step_id,
    d.label,
    d.start_ns,
    d.end_ns,
    d.is_partial,
    CASE WHEN d.step_id = 0 THEN coalesce(c.carried_in_ns, 0) END::BIGINT AS carried_in_ns,
    d.op_count
FROM device AS d
LEFT JOIN carried AS c ON d.rank = c.rank AND d.source = c.source;
