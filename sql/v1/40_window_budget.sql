-- view:       v1.window_budget
-- purpose:    Unions of device activity and the three-way split of compute-absent time in every window of a rank.
-- grain:      rank, projection, step_id
-- depends-on: v1.step_window, v1.device_op, v1.event_producer
-- materialise: rank
-- since:      1
-- columns:
--   rank              BIGINT   -  Global rank.
--   step_id           BIGINT   -  Number of the step.
--   projection        VARCHAR  -  host, device or capture.
--   start_ns          BIGINT   ns Start of the window.
--   end_ns            BIGINT   ns End of the window.
--   step_ns           BIGINT   ns Length of the window.
--   busy_ns           BIGINT   ns Union of all device ops.
--   idle_ns           BIGINT   ns step_ns - busy_ns.
--   compute_ns        BIGINT   ns Union of compute kernels and opaque graphs.
--   noncomm_ns        BIGINT   ns Union of all kernels and graphs that do not communicate, packing in, copies and memsets out.
--   comm_ns           BIGINT   ns Union of communication kernels.
--   exposed_comm_ns   BIGINT   ns Communication minus every other device op.
--   copy_ns           BIGINT   ns Union of memcpys.
--   compute_absent_ns BIGINT   ns step_ns - compute_ns.
--   launch_starved_ns BIGINT   ns Part of compute-absent: the next compute op was not issued yet.
--   blocking_ns       BIGINT   ns Part of compute-absent: issued, and its latest recorded producer still ran.
--   stalled_ns        BIGINT   ns Part of compute-absent: issued, no recorded reason.
--   tail_ns           BIGINT   ns Part of compute-absent: after the last compute op of the window.
-- audit budget_order:
--   SELECT b.rank, b.projection, b.step_id FROM v1.window_budget AS b
--   WHERE b.compute_ns > b.noncomm_ns OR b.noncomm_ns > b.busy_ns OR b.busy_ns > b.step_ns OR b.compute_ns < 0
-- audit budget_closes:
--   SELECT b.rank, b.projection, b.step_id FROM v1.window_budget AS b WHERE b.busy_ns + b.idle_ns <> b.step_ns
-- audit absent_closes:
--   SELECT b.rank, b.projection, b.step_id FROM v1.window_budget AS b
--   WHERE b.launch_starved_ns + b.blocking_ns + b.stalled_ns + b.tail_ns <> b.compute_absent_ns
--   OR least(b.launch_starved_ns, b.blocking_ns, b.stalled_ns, b.tail_ns) < 0
-- audit communication_closes:
--   SELECT b.rank, b.projection, b.step_id FROM v1.window_budget AS b
--   WHERE b.exposed_comm_ns > b.comm_ns OR b.exposed_comm_ns < 0 OR b.exposed_comm_ns > b.compute_absent_ns
CREATE OR REPLACE VIEW v1.window_budget AS
-- Two sweeps over the ops in start order, with the window edges as rows among them. An op whose start lies
-- behind the latest end of those before it ends a time without any; so does an edge, where the time is cut.
-- What a window holds of such times is all of them before its end less all before its start.
WITH edge AS (
    SELECT
        rank,
        start_ns AS at_ns
    FROM v1.step_window
    UNION
    SELECT
        rank,
        end_ns AS at_ns
    FROM v1.step_window
),

-- Sets that hold one another: 0 compute, 1 non-communication, 2 all but communication, 3 every op.
event AS (
    SELECT
        o.rank,
        o.start_ns AS at_ns,
        o.end_ns,
        o.op_id,
        CASE
            WHEN o.time_class IN ('compute', 'graph') THEN 0
            WHEN o.time_class = 'packing' THEN 1
            WHEN o.time_class = 'communication' THEN 3
            ELSE 2
        END::TINYINT AS level,
        o.issued_ns,
        greatest(p.producer_end_ns, o.previous_end_ns) AS producer_end_ns
    FROM v1.device_op AS o
    LEFT JOIN v1.event_producer AS p ON o.rank = p.rank AND o.op_id = p.op_id
    UNION ALL
    SELECT
        rank,
        at_ns,
        NULL AS end_ns,
        NULL AS op_id,
        NULL AS level,
        NULL AS issued_ns,
        NULL AS producer_end_ns
    FROM edge
),

-- -4e18 is before any trace.
sweep AS (
    SELECT
        rank,
        at_ns,
        level,
        issued_ns,
        producer_end_ns,
        max(CASE WHEN op_id IS NULL THEN at_ns END) OVER before AS edge_ns,
        coalesce(max(end_ns) OVER before, -4000000000000000000) AS busy_until,
        coalesce(max(CASE WHEN level < 3 THEN end_ns END) OVER before, -4000000000000000000) AS other_until,
        coalesce(max(CASE WHEN level < 2 THEN end_ns END) OVER before, -4000000000000000000) AS noncomm_until,
        coalesce(max(CASE WHEN level < 1 THEN end_ns END) OVER before, -4000000000000000000) AS compute_until
    FROM event
    WINDOW
        before AS (
            PARTITION BY rank ORDER BY at_ns, op_id NULLS FIRST
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
),

-- A compute op that starts after all earlier compute has ended closes a gap. An unlinked op counts
-- as issued when the gap began (v1.capture_quality says how many there are).
closing AS (
    SELECT
        *,
        coalesce(level, 0) AS least_set,
        least(greatest(coalesce(issued_ns, compute_until), compute_until), at_ns) AS starved_until_ns
    FROM sweep
    -- Under compute nothing ends a time without compute, and none without anything more.
    WHERE level IS NULL OR at_ns > compute_until
),

gap AS (
    SELECT
        *,
        greatest(
            starved_until_ns, least(coalesce(producer_end_ns, starved_until_ns), at_ns)
        ) AS blocked_until_ns
    FROM closing
),

-- What each stretch from an edge to the next one adds, and the first gap that closes in it.
summed AS (
    SELECT
        rank,
        edge_ns AS from_ns,
        max(at_ns) FILTER (WHERE level IS NULL) AS edge_ns,
        max(compute_until) FILTER (WHERE level IS NULL) AS compute_until,
        sum(greatest(at_ns - greatest(busy_until, edge_ns), 0)) AS idle_ns,
        sum(greatest(at_ns - greatest(other_until, edge_ns), 0)) FILTER (WHERE least_set <= 2) AS other_absent_ns,
        sum(greatest(at_ns - greatest(noncomm_until, edge_ns), 0)) FILTER (WHERE least_set <= 1) AS noncomm_absent_ns,
        sum(greatest(at_ns - greatest(compute_until, edge_ns), 0)) FILTER (WHERE least_set = 0) AS compute_absent_ns,
        coalesce(sum(starved_until_ns - compute_until) FILTER (WHERE level = 0), 0) AS starved_ns,
        coalesce(sum(blocked_until_ns - starved_until_ns) FILTER (WHERE level = 0), 0) AS blocked_ns,
        coalesce(sum(at_ns - blocked_until_ns) FILTER (WHERE level = 0), 0) AS stalled_ns,
        min(at_ns) FILTER (WHERE level = 0) AS first_end_ns,
        arg_min(starved_until_ns, at_ns) FILTER (WHERE level = 0) AS first_starved_until_ns,
        arg_min(blocked_until_ns, at_ns) FILTER (WHERE level = 0) AS first_blocked_until_ns
    FROM gap
    GROUP BY rank, from_ns
),

-- Communication and copies alone are a tenth of the ops: a sweep of their own is cheaper than two more maxima above.
alone AS (
    SELECT
        rank,
        time_class,
        start_ns AS at_ns,
        end_ns,
        op_id
    FROM v1.device_op
    WHERE time_class IN ('communication', 'copy')
    UNION ALL
    SELECT
        e.rank,
        c.time_class,
        e.at_ns,
        NULL AS end_ns,
        NULL AS op_id
    FROM edge AS e
    CROSS JOIN (VALUES ('communication'), ('copy')) AS c (time_class)
),

alone_sweep AS (
    SELECT
        rank,
        time_class,
        at_ns,
        op_id,
        max(CASE WHEN op_id IS NULL THEN at_ns END) OVER before AS edge_ns,
        coalesce(max(end_ns) OVER before, -4000000000000000000) AS busy_until
    FROM alone
    WINDOW
        before AS (
            PARTITION BY rank, time_class ORDER BY at_ns, op_id NULLS FIRST
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
),

alone_summed AS (
    SELECT
        rank,
        edge_ns AS from_ns,
        max(at_ns) FILTER (WHERE op_id IS NULL) AS edge_ns,
        sum(greatest(at_ns - greatest(busy_until, edge_ns), 0)) FILTER (WHERE time_class = 'communication')
            AS comm_absent_ns,
        sum(greatest(at_ns - greatest(busy_until, edge_ns), 0)) FILTER (WHERE time_class = 'copy')
            AS copy_absent_ns
    FROM alone_sweep
    GROUP BY rank, from_ns
),

-- Everything before an edge, and the gap that is open or opens next there.
at_edge AS (
    SELECT
        s.rank,
        s.edge_ns AS at_ns,
        s.compute_until,
        sum(s.idle_ns) OVER earlier AS idle_ns,
        sum(s.other_absent_ns) OVER earlier AS other_absent_ns,
        sum(s.noncomm_absent_ns) OVER earlier AS noncomm_absent_ns,
        sum(s.compute_absent_ns) OVER earlier AS compute_absent_ns,
        sum(a.comm_absent_ns) OVER earlier AS comm_absent_ns,
        sum(a.copy_absent_ns) OVER earlier AS copy_absent_ns,
        sum(s.starved_ns) OVER earlier AS starved_ns,
        sum(s.blocked_ns) OVER earlier AS blocked_ns,
        sum(s.stalled_ns) OVER earlier AS stalled_ns,
        min(s.first_end_ns) OVER later AS next_end_ns,
        arg_min(s.first_starved_until_ns, s.first_end_ns) OVER later AS next_starved_until_ns,
        arg_min(s.first_blocked_until_ns, s.first_end_ns) OVER later AS next_blocked_until_ns
    FROM summed AS s
    INNER JOIN alone_summed AS a ON s.rank = a.rank AND s.edge_ns = a.edge_ns
    WINDOW
        earlier AS (
            PARTITION BY s.rank ORDER BY s.edge_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ),
        later AS (
            PARTITION BY s.rank ORDER BY s.edge_ns ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        )
),

-- Materialised, or DuckDB 1.4 pairs every start with every end of a rank before it looks at the windows.
opened AS MATERIALIZED (
    SELECT
        w.step_id,
        w.projection,
        w.start_ns,
        w.end_ns,
        e.*
    FROM v1.step_window AS w
    INNER JOIN at_edge AS e ON w.rank = e.rank AND w.start_ns = e.at_ns
),

-- A window sees the gap that is open at its start from there on, and ends with its tail.
-- Gaps that close inside are all those closed before its end, less those closed before its start.
window_edge AS (
    SELECT
        a.rank,
        a.step_id,
        a.projection,
        a.start_ns,
        a.end_ns,
        a.end_ns - a.start_ns AS step_ns,
        b.idle_ns - a.idle_ns AS idle_ns,
        b.other_absent_ns - a.other_absent_ns AS other_absent_ns,
        b.noncomm_absent_ns - a.noncomm_absent_ns AS noncomm_absent_ns,
        b.compute_absent_ns - a.compute_absent_ns AS compute_absent_ns,
        b.comm_absent_ns - a.comm_absent_ns AS comm_absent_ns,
        b.copy_absent_ns - a.copy_absent_ns AS copy_absent_ns,
        b.starved_ns - a.starved_ns AS starved_ns,
        b.blocked_ns - a.blocked_ns AS blocked_ns,
        b.stalled_ns - a.stalled_ns AS stalled_ns,
        greatest(a.end_ns - greatest(b.compute_until, a.start_ns), 0) AS tail_ns,
        -- The gap open at the start, when it closes inside the window.
        coalesce(a.compute_until < a.start_ns AND a.next_end_ns < a.end_ns, FALSE) AS opens_in_gap,
        a.compute_until AS open_start_ns,
        a.next_end_ns AS open_end_ns,
        a.next_starved_until_ns AS open_starved_until_ns,
        a.next_blocked_until_ns AS open_blocked_until_ns
    FROM opened AS a
    INNER JOIN at_edge AS b ON a.rank = b.rank AND a.end_ns = b.at_ns
),

-- Of that gap the sums hold [its start, its end); the window holds [window start, its end).
split AS (
    SELECT
        *,
        CASE
            WHEN opens_in_gap
                THEN greatest(open_starved_until_ns - start_ns, 0) - (open_starved_until_ns - open_start_ns)
            ELSE 0
        END AS starved_fix_ns,
        CASE
            WHEN opens_in_gap
                THEN
                    greatest(open_blocked_until_ns - greatest(open_starved_until_ns, start_ns), 0)
                    - (open_blocked_until_ns - open_starved_until_ns)
            ELSE 0
        END AS blocked_fix_ns,
        CASE
            WHEN opens_in_gap
                THEN open_blocked_until_ns - greatest(open_blocked_until_ns, start_ns)
            ELSE 0
        END AS stalled_fix_ns
    FROM window_edge
)

SELECT
    rank,
    step_id,
    projection,
    start_ns,
    end_ns,
    step_ns,
    (step_ns - idle_ns)::BIGINT AS busy_ns,
    idle_ns::BIGINT AS idle_ns,
    (step_ns - compute_absent_ns)::BIGINT AS compute_ns,
    (step_ns - noncomm_absent_ns)::BIGINT AS noncomm_ns,
    (step_ns - comm_absent_ns)::BIGINT AS comm_ns,
    (other_absent_ns - idle_ns)::BIGINT AS exposed_comm_ns,
    (step_ns - copy_absent_ns)::BIGINT AS copy_ns,
    compute_absent_ns::BIGINT AS compute_absent_ns,
    (starved_ns + starved_fix_ns)::BIGINT AS launch_starved_ns,
    (blocked_ns + blocked_fix_ns)::BIGINT AS blocking_ns,
    (stalled_ns + stalled_fix_ns)::BIGINT AS stalled_ns,
    tail_ns::BIGINT AS tail_ns
FROM split;
