-- view:       v1.op_window
-- purpose:    Parts of device ops that lie inside each window, of steps by the device's time and of the capture.
-- grain:      rank, projection, step_id, op_id
-- depends-on: v1.step_window, v1.device_op
-- materialise: no
-- since:      1
-- columns:
--   rank       BIGINT  -  Global rank.
--   projection VARCHAR -  device or capture.
--   step_id    BIGINT  -  Step.
--   op_id      BIGINT  -  Device op.
--   time_class VARCHAR -  Its class.
--   start_ns   BIGINT  ns Start inside the window.
--   end_ns     BIGINT  ns End inside the window.
--   window_ns  BIGINT  ns Length of the window.
CREATE OR REPLACE VIEW v1.op_window AS
WITH numbered AS (
    SELECT
        rank,
        projection,
        step_id,
        start_ns,
        end_ns,
        row_number() OVER (PARTITION BY rank, projection ORDER BY start_ns, end_ns) AS pos
    FROM v1.step_window
    WHERE projection <> 'host' AND end_ns > start_ns
),

projection AS (
    SELECT DISTINCT
        rank,
        projection
    FROM numbered
),

projected AS (
    SELECT
        p.projection,
        o.rank,
        o.op_id,
        o.time_class,
        o.start_ns,
        o.end_ns
    FROM v1.device_op AS o
    INNER JOIN projection AS p ON o.rank = p.rank
),

-- Windows of one projection do not overlap: an op meets those from the one that it starts in to the one that it ends in.
first_met AS (
    SELECT
        o.*,
        w.pos AS first_pos
    FROM projected AS o
    ASOF INNER JOIN numbered AS w ON o.rank = w.rank AND o.projection = w.projection AND o.start_ns < w.end_ns
),

last_met AS (
    SELECT
        o.*,
        w.pos AS last_pos
    FROM first_met AS o
    ASOF INNER JOIN numbered AS w ON o.rank = w.rank AND o.projection = w.projection AND o.end_ns > w.start_ns
),

met AS (
    SELECT
        * EXCLUDE (first_pos, last_pos),
        unnest(range(first_pos, last_pos + 1)) AS pos
    FROM last_met
)

SELECT
    m.rank,
    m.projection,
    w.step_id,
    m.op_id,
    m.time_class,
    greatest(m.start_ns, w.start_ns) AS start_ns,
    least(m.end_ns, w.end_ns) AS end_ns,
    w.end_ns - w.start_ns AS window_ns
FROM met AS m
INNER JOIN numbered AS w ON m.rank = w.rank AND m.projection = w.projection AND m.pos = w.pos;
