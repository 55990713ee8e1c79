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
-- One pass over the ops in start order, with the window edges as rows among them. With M(t) the latest
-- end of the ops started before t, their union up to t is (sum of what each op added) - (M(t) - t)+.
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

event AS (
    SELECT
        o.rank,
        o.start_ns AS at_ns,
        o.end_ns,
        o.op_id,
        o.time_class IN ('compute', 'graph') AS is_compute,
        o.time_class IN ('compute', 'graph', 'packing') AS is_noncomm,
        o.time_class = 'communication' AS is_comm,
        o.time_class = 'copy' AS is_copy,
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
        FALSE AS is_compute,
        FALSE AS is_noncomm,
        FALSE AS is_comm,
        FALSE AS is_copy,
        NULL AS issued_ns,
        NULL AS producer_end_ns
    FROM edge
),

sweep AS (
    SELECT
        *,
        -- (not count(*) FILTER: its window frames cost quadratic time)
        sum((op_id IS NULL)::INTEGER) OVER so_far AS bucket,
        max(end_ns) OVER before AS busy_until,
        max(end_ns) FILTER (WHERE is_compute) OVER before AS compute_until,
        max(end_ns) FILTER (WHERE is_noncomm) OVER before AS noncomm_until,
        max(end_ns) FILTER (WHERE is_comm) OVER before AS comm_until,
        max(end_ns) FILTER (WHERE is_copy) OVER before AS copy_until,
        max(end_ns) FILTER (WHERE NOT is_comm) OVER before AS other_until
    FROM event
    WINDOW
        so_far AS (
            PARTITION BY rank ORDER BY at_ns, op_id NULLS FIRST
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ),
        before AS (
            PARTITION BY rank ORDER BY at_ns, op_id NULLS FIRST
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
),

-- A compute op that starts after all earlier compute has ended closes a gap. An unlinked op counts
-- as issued when the gap began (v1.capture_quality says how many there are); -4e18 is before any trace.
closing AS (
    SELECT
        *,
        is_compute AND at_ns > coalesce(compute_until, at_ns - 1) AS closes_gap,
        least(
            greatest(
                coalesce(issued_ns, compute_until, -4000000000000000000),
                coalesce(compute_until, -4000000000000000000)
            ),
            at_ns
        ) AS starved_until_ns
    FROM sweep
),

gap AS (
    SELECT
        *,
        greatest(
            starved_until_ns, least(coalesce(producer_end_ns, starved_until_ns), at_ns)
        ) AS blocked_until_ns
    FROM closing
),

-- What each stretch between two edges adds, the first gap that closes in it, and its edge's state.
-- The gap before the first compute op has no start of its own and is not in the sums.
summed AS (
    SELECT
        rank,
        bucket,
        coalesce(sum(greatest(0, end_ns - greatest(at_ns, coalesce(busy_until, at_ns)))), 0)
            AS busy_ns,
        coalesce(
            sum(greatest(0, end_ns - greatest(at_ns, coalesce(compute_until, at_ns))))
            FILTER (WHERE is_compute),
            0
        ) AS compute_ns,
        coalesce(
            sum(greatest(0, end_ns - greatest(at_ns, coalesce(noncomm_until, at_ns))))
            FILTER (WHERE is_noncomm),
            0
        ) AS noncomm_ns,
        coalesce(
            sum(greatest(0, end_ns - greatest(at_ns, coalesce(comm_until, at_ns))))
            FILTER (WHERE is_comm),
            0
        ) AS comm_ns,
        coalesce(
            sum(greatest(0, end_ns - greatest(at_ns, coalesce(copy_until, at_ns))))
            FILTER (WHERE is_copy),
            0
        ) AS copy_ns,
        coalesce(
            sum(greatest(0, end_ns - greatest(at_ns, coalesce(other_until, at_ns))))
            FILTER (WHERE op_id IS NOT NULL AND NOT is_comm),
            0
        ) AS other_ns,
        coalesce(
            sum(starved_until_ns - compute_until)
            FILTER (WHERE closes_gap AND compute_until IS NOT NULL),
            0
        ) AS starved_ns,
        coalesce(
            sum(blocked_until_ns - starved_until_ns)
            FILTER (WHERE closes_gap AND compute_until IS NOT NULL),
            0
        ) AS blocked_ns,
        coalesce(
            sum(at_ns - blocked_until_ns)
            FILTER (WHERE closes_gap AND compute_until IS NOT NULL),
            0
        ) AS stalled_ns,
        min(at_ns) FILTER (WHERE closes_gap) AS first_end_ns,
        arg_min(starved_until_ns, at_ns) FILTER (WHERE closes_gap) AS first_starved_until_ns,
        arg_min(blocked_until_ns, at_ns) FILTER (WHERE closes_gap) AS first_blocked_until_ns,
        max(at_ns) FILTER (WHERE op_id IS NULL) AS edge_ns,
        max(busy_until) FILTER (WHERE op_id IS NULL) AS busy_until,
        max(compute_until) FILTER (WHERE op_id IS NULL) AS compute_until,
        max(noncomm_until) FILTER (WHERE op_id IS NULL) AS noncomm_until,
        max(comm_until) FILTER (WHERE op_id IS NULL) AS comm_until,
        max(copy_until) FILTER (WHERE op_id IS NULL) AS copy_until,
        max(other_until) FILTER (WHERE op_id IS NULL) AS other_until
    FROM gap
    GROUP BY rank, bucket
),

-- Everything before an edge, and the gap that is open or opens next there.
at_edge AS (
    SELECT
        rank,
        edge_ns AS at_ns,
        compute_until,
        coalesce(sum(busy_ns) OVER earlier, 0)
        - greatest(coalesce(busy_until, edge_ns) - edge_ns, 0) AS busy_ns,
        coalesce(sum(compute_ns) OVER earlier, 0)
        - greatest(coalesce(compute_until, edge_ns) - edge_ns, 0) AS compute_ns,
        coalesce(sum(noncomm_ns) OVER earlier, 0)
        - greatest(coalesce(noncomm_until, edge_ns) - edge_ns, 0) AS noncomm_ns,
        coalesce(sum(comm_ns) OVER earlier, 0)
        - greatest(coalesce(comm_until, edge_ns) - edge_ns, 0) AS comm_ns,
        coalesce(sum(copy_ns) OVER earlier, 0)
        - greatest(coalesce(copy_until, edge_ns) - edge_ns, 0) AS copy_ns,
        coalesce(sum(other_ns) OVER earlier, 0)
        - greatest(coalesce(other_until, edge_ns) - edge_ns, 0) AS other_ns,
        coalesce(sum(starved_ns) OVER earlier, 0) AS starved_ns,
        coalesce(sum(blocked_ns) OVER earlier, 0) AS blocked_ns,
        coalesce(sum(stalled_ns) OVER earlier, 0) AS stalled_ns,
        min(first_end_ns) OVER later AS next_end_ns,
        arg_min(first_starved_until_ns, first_end_ns) OVER later AS next_starved_until_ns,
        arg_min(first_blocked_until_ns, first_end_ns) OVER later AS next_blocked_until_ns
    FROM summed
    WINDOW
        earlier AS (
            PARTITION BY rank ORDER BY bucket ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        later AS (
            PARTITION BY rank ORDER BY bucket ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
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
        b.busy_ns - a.busy_ns AS busy_ns,
        b.compute_ns - a.compute_ns AS compute_ns,
        b.noncomm_ns - a.noncomm_ns AS noncomm_ns,
        b.comm_ns - a.comm_ns AS comm_ns,
        b.copy_ns - a.copy_ns AS copy_ns,
        b.other_ns - a.other_ns AS other_ns,
        b.starved_ns - a.starved_ns AS starved_ns,
        b.blocked_ns - a.blocked_ns AS blocked_ns,
        b.stalled_ns - a.stalled_ns AS stalled_ns,
        greatest(
            a.end_ns - greatest(coalesce(b.compute_until, a.start_ns), a.start_ns), 0
        ) AS tail_ns,
        -- The gap open at the start, when it closes inside the window.
        coalesce(
            coalesce(a.compute_until, a.at_ns - 1) < a.start_ns AND a.next_end_ns < a.end_ns, FALSE
        ) AS opens_in_gap,
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
            WHEN NOT opens_in_gap THEN 0
            WHEN open_start_ns IS NULL THEN greatest(open_starved_until_ns - start_ns, 0)
            ELSE
                greatest(open_starved_until_ns - start_ns, 0)
                - (open_starved_until_ns - open_start_ns)
        END AS starved_fix_ns,
        CASE
            WHEN NOT opens_in_gap THEN 0
            WHEN open_start_ns IS NULL
                THEN greatest(open_blocked_until_ns - greatest(open_starved_until_ns, start_ns), 0)
            ELSE
                greatest(open_blocked_until_ns - greatest(open_starved_until_ns, start_ns), 0)
                - (open_blocked_until_ns - open_starved_until_ns)
        END AS blocked_fix_ns,
        CASE
            WHEN NOT opens_in_gap THEN 0
            WHEN open_start_ns IS NULL THEN open_end_ns - greatest(open_blocked_until_ns, start_ns)
            ELSE
                (open_end_ns - greatest(open_blocked_until_ns, start_ns))
                - (open_end_ns - open_blocked_until_ns)
        END AS stalled_fix_ns
    FROM window_edge
)

SELECT
    rank,
    step_id,
    projection,
    start_ns,
    end_ns,
    (end_ns - start_ns)::BIGINT AS step_ns,
    busy_ns::BIGINT AS busy_ns,
    (end_ns - start_ns - busy_ns)::BIGINT AS idle_ns,
    compute_ns::BIGINT AS compute_ns,
    noncomm_ns::BIGINT AS noncomm_ns,
    comm_ns::BIGINT AS comm_ns,
    (busy_ns - other_ns)::BIGINT AS exposed_comm_ns,
    copy_ns::BIGINT AS copy_ns,
    (end_ns - start_ns - compute_ns)::BIGINT AS compute_absent_ns,
    (starved_ns + starved_fix_ns)::BIGINT AS launch_starved_ns,
    (blocked_ns + blocked_fix_ns)::BIGINT AS blocking_ns,
    (stalled_ns + stalled_fix_ns)::BIGINT AS stalled_ns,
    tail_ns::BIGINT AS tail_ns
FROM split;
