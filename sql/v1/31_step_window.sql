-- view:       v1.step_window
-- purpose:    Every step of every rank in both projections, and the whole capture.
-- grain:      rank, projection, step_id
-- depends-on: v1.step_range, v1.op
-- materialise: rank
-- since:      1
-- columns:
--   rank       BIGINT   -  Global rank.
--   step_id    BIGINT   -  Number of the step, from 0; none is dropped.
--   projection VARCHAR  -  host: the range itself. device: end of the last op launched in the previous step to the end of the last one launched in this step. capture: first to last device op.
--   label      VARCHAR  -  Text of the step range; capture for the capture row.
--   source     VARCHAR  -  Anchor that gave the step.
--   start_ns   BIGINT   ns Start.
--   end_ns     BIGINT   ns End.
--   is_partial BOOLEAN  -  The window starts or ends with the capture, not with an anchor.
-- audit device_windows_tile:
--   SELECT w.rank, w.step_id FROM v1.step_window AS w INNER JOIN v1.step_window AS p
--   ON w.rank = p.rank AND w.step_id = p.step_id + 1 AND p.projection = 'device'
--   WHERE w.projection = 'device' AND w.start_ns <> p.end_ns
CREATE OR REPLACE VIEW v1.step_window AS
WITH host AS (
    SELECT
        rank,
        source,
        ordinal AS step_id,
        label,
        start_ns,
        end_ns,
        is_partial
    FROM v1.step_range
    QUALIFY priority = min(priority) OVER (PARTITION BY rank)
),

-- An op belongs to the step that launched it; the op's own start stands in where no launch is captured at all.
launched AS (
    SELECT
        rank,
        end_ns,
        coalesce(
            launch_start_ns,
            CASE WHEN NOT bool_or(launch_start_ns IS NOT NULL) OVER (PARTITION BY rank) THEN start_ns END
        ) AS at_ns
    FROM v1.op
),

last_op AS (
    SELECT
        h.rank,
        h.step_id,
        max(l.end_ns) AS end_ns
    FROM (SELECT * FROM launched WHERE at_ns IS NOT NULL) AS l
    ASOF INNER JOIN host AS h ON l.rank = h.rank AND l.at_ns >= h.start_ns
    WHERE l.at_ns < h.end_ns
    GROUP BY h.rank, h.step_id
),

device_end AS (
    SELECT
        h.rank,
        h.source,
        h.step_id,
        h.label,
        h.is_partial,
        h.start_ns AS host_start_ns,
        max(l.end_ns) OVER (PARTITION BY h.rank ORDER BY h.step_id) AS end_ns
    FROM host AS h
    LEFT JOIN last_op AS l ON h.rank = l.rank AND h.step_id = l.step_id
),

device AS (
    SELECT
        rank,
        source,
        step_id,
        label,
        is_partial,
        -- Before the first op has ended a window is empty and waits at its host start.
        coalesce(end_ns, host_start_ns) AS end_ns,
        coalesce(
            lag(coalesce(end_ns, host_start_ns)) OVER (PARTITION BY rank ORDER BY step_id),
            host_start_ns
        ) AS start_ns
    FROM device_end
)

SELECT
    rank,
    step_id,
    'host' AS projection,
    label,
    source,
    start_ns,
    end_ns,
    is_partial
FROM host
UNION ALL
SELECT
    rank,
    step_id,
    'device' AS projection,
    label,
    source,
    start_ns,
    greatest(end_ns, start_ns) AS end_ns,
    is_partial
FROM device
UNION ALL
SELECT
    rank,
    0 AS step_id,
    'capture' AS projection,
    'capture' AS label,
    'capture' AS source,
    min(start_ns) AS start_ns,
    max(end_ns) AS end_ns,
    FALSE AS is_partial
FROM v1.op
GROUP BY rank;
