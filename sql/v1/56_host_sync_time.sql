-- view:       v1.host_sync_time
-- purpose:    Calls in which the host waits for the device, by function and step: how long, and how much of it the device was idle, which alone can lengthen a step.
-- grain:      rank, projection, step_id, name
-- depends-on: v1.api_call, v1.name, v1.step_window, v1.device_op
-- materialise: no
-- since:      1
-- columns:
--   rank       BIGINT  -  Global rank.
--   projection VARCHAR -  device or capture.
--   step_id    BIGINT  -  Step.
--   name       VARCHAR -  Function.
--   call_count BIGINT  -  Calls, each window that they reach into.
--   busy_ns    BIGINT  ns Union of the calls inside the window: some thread waits. Work of the device goes on below it.
--   idle_ns    BIGINT  ns Part of busy_ns in which the device ran nothing: an upper bound of what the wait can cost.
--   waited_ns  BIGINT  ns busy_ns - idle_ns: the host waited for work that ran.
CREATE OR REPLACE VIEW v1.host_sync_time AS
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

wait AS (
    SELECT
        a.rank,
        p.projection,
        a.call_id,
        n.name,
        a.start_ns,
        a.end_ns
    FROM v1.api_call AS a
    INNER JOIN v1.name AS n ON a.rank = n.rank AND a.name_id = n.name_id
    INNER JOIN projection AS p ON a.rank = p.rank
    WHERE a.end_ns > a.start_ns AND regexp_matches(n.name, '^(cuda|cu|hip)\w*Synchronize(_|$)')
),

-- A call meets the windows of a projection from the one that it starts in to the one that it ends in.
first_met AS (
    SELECT
        c.*,
        w.pos AS first_pos
    FROM wait AS c
    ASOF INNER JOIN numbered AS w ON c.rank = w.rank AND c.projection = w.projection AND c.start_ns < w.end_ns
),

last_met AS (
    SELECT
        c.*,
        w.pos AS last_pos
    FROM first_met AS c
    ASOF INNER JOIN numbered AS w ON c.rank = w.rank AND c.projection = w.projection AND c.end_ns > w.start_ns
),

met AS MATERIALIZED (
    SELECT
        * EXCLUDE (first_pos, last_pos),
        unnest(range(first_pos, last_pos + 1)) AS pos
    FROM last_met
),

part AS (
    SELECT
        m.rank,
        m.projection,
        w.step_id,
        m.call_id,
        m.name,
        greatest(m.start_ns, w.start_ns) AS start_ns,
        least(m.end_ns, w.end_ns) AS end_ns
    FROM met AS m
    INNER JOIN numbered AS w ON m.rank = w.rank AND m.projection = w.projection AND m.pos = w.pos
),

-- What each call adds to the union of its function: threads may wait at once.
added AS (
    SELECT
        *,
        greatest(start_ns, coalesce(max(end_ns) OVER (
            PARTITION BY rank, projection, step_id, name
            ORDER BY start_ns, call_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns)) AS from_ns
    FROM part
),

-- Union of the device ops up to the start of each.
op AS (
    SELECT
        o.rank,
        o.op_id,
        o.start_ns,
        o.end_ns,
        max(o.end_ns) OVER (
            PARTITION BY o.rank ORDER BY o.start_ns, o.op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until
    FROM v1.device_op AS o
),

op_so_far AS (
    SELECT
        rank,
        start_ns,
        max(end_ns) OVER so_far AS busy_until,
        sum(greatest(0, end_ns - greatest(start_ns, coalesce(busy_until, start_ns)))) OVER so_far AS busy_ns
    FROM op
    WINDOW so_far AS (PARTITION BY rank ORDER BY start_ns, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),

by_start AS (
    SELECT
        rank,
        start_ns,
        max(busy_until) AS busy_until,
        max(busy_ns) AS busy_ns
    FROM op_so_far
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

at_edge AS MATERIALIZED (
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
        a.name,
        count(*) AS call_count,
        coalesce(sum(a.end_ns - a.from_ns) FILTER (WHERE a.end_ns > a.from_ns), 0) AS busy_ns,
        coalesce(sum(f.busy_ns - s.busy_ns) FILTER (WHERE a.end_ns > a.from_ns), 0) AS waited_ns
    FROM added AS a
    LEFT JOIN at_edge AS s ON a.rank = s.rank AND a.from_ns = s.at_ns
    LEFT JOIN at_edge AS f ON a.rank = f.rank AND a.end_ns = f.at_ns
    GROUP BY a.rank, a.projection, a.step_id, a.name
)

SELECT
    rank,
    projection,
    step_id,
    name,
    call_count,
    busy_ns::BIGINT AS busy_ns,
    (busy_ns - waited_ns)::BIGINT AS idle_ns,
    waited_ns::BIGINT AS waited_ns
FROM summed;
