-- view:       v1.launch_stack
-- purpose:    Where in the program each launch came from: call stacks by rank, thread and number of the launch on it, or by the Python calls open at it.
-- grain:      rank, launch_call_id
-- depends-on: v1.op, v1.call_stack, v1.python_frame, v1.name
-- materialise: no
-- since:      1
-- columns:
--   rank           BIGINT  -  Global rank.
--   launch_call_id BIGINT  -  Launching API call.
--   launch_tid     BIGINT  -  Launching thread.
--   ordinal        BIGINT  -  Number of the launch on that thread, from 0 at the beginning of the capture.
--   source         VARCHAR -  same capture: Python calls of the trace itself. own capture: a table of stacks, by ordinal. NULL: no stack.
--   is_checked     BOOLEAN -  The stack's own capture names the kernel, and it is this one's; one that disagrees is no link. NULL without a stack.
--   stack          VARCHAR -  Frames from the outermost to the innermost, `;` between them.
--   frame          VARCHAR -  Innermost frame that is none of the framework's or interpreter's own; of nothing else, the innermost.
CREATE OR REPLACE VIEW v1.launch_stack AS
WITH RECURSIVE launch AS (
    SELECT
        rank,
        launch_call_id,
        any_value(launch_tid) AS launch_tid,
        any_value(launch_start_ns) AS launch_start_ns,
        arg_min(name, op_id) AS kernel
    FROM v1.op
    WHERE launch_call_id IS NOT NULL
    GROUP BY rank, launch_call_id
),

numbered AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY rank, launch_tid ORDER BY launch_start_ns, launch_call_id) - 1 AS ordinal
    FROM launch
),

-- Thread ids change from run to run. Where none of a rank's is known here, a thread of the table is the one with as
-- many launches; the others pair in the order of their launches only where both sides have as many threads.
launching_thread AS (
    SELECT
        rank,
        launch_tid,
        count(*) AS launch_count
    FROM launch
    GROUP BY rank, launch_tid
),

stack_thread AS (
    SELECT
        s.rank,
        s.thread,
        max(s.ordinal) + 1 AS launch_count,
        bool_or(bool_or(t.launch_tid IS NOT NULL)) OVER (PARTITION BY s.rank) AS has_known_thread
    FROM v1.call_stack AS s
    LEFT JOIN launching_thread AS t ON s.rank = t.rank AND s.thread = t.launch_tid
    GROUP BY s.rank, s.thread
),

same_thread AS (
    SELECT
        s.rank,
        s.thread,
        t.launch_tid
    FROM stack_thread AS s
    INNER JOIN launching_thread AS t ON s.rank = t.rank AND s.thread = t.launch_tid
),

same_count AS (
    SELECT
        s.rank,
        s.thread,
        t.launch_tid
    FROM stack_thread AS s
    INNER JOIN launching_thread AS t ON s.rank = t.rank AND s.launch_count = t.launch_count
    WHERE NOT s.has_known_thread
    QUALIFY count(*) OVER (PARTITION BY s.rank, s.launch_count) = 1
),

stack_rest AS (
    SELECT
        s.rank,
        s.thread,
        row_number() OVER (PARTITION BY s.rank ORDER BY s.launch_count DESC, s.thread ASC) AS place,
        count(*) OVER (PARTITION BY s.rank) AS thread_count
    FROM stack_thread AS s
    ANTI JOIN same_count AS c ON s.rank = c.rank AND s.thread = c.thread
    WHERE NOT s.has_known_thread
),

launching_rest AS (
    SELECT
        t.rank,
        t.launch_tid,
        row_number() OVER (PARTITION BY t.rank ORDER BY t.launch_count DESC, t.launch_tid ASC) AS place,
        count(*) OVER (PARTITION BY t.rank) AS thread_count
    FROM launching_thread AS t
    ANTI JOIN same_count AS c ON t.rank = c.rank AND t.launch_tid = c.launch_tid
),

thread_pair AS (
    SELECT * FROM same_thread
    UNION ALL
    SELECT * FROM same_count
    UNION ALL
    SELECT
        s.rank,
        s.thread,
        t.launch_tid
    FROM stack_rest AS s
    INNER JOIN launching_rest AS t ON s.rank = t.rank AND s.place = t.place AND s.thread_count = t.thread_count
),

given AS (
    SELECT
        s.rank,
        p.launch_tid,
        s.ordinal,
        s.name,
        s.stack
    FROM v1.call_stack AS s
    INNER JOIN thread_pair AS p ON s.rank = p.rank AND s.thread = p.thread
),

-- Captures of one process that were put together number their calls anew: such numbers lead nowhere.
frame AS (
    SELECT
        f.rank,
        f.tid,
        f.frame_id,
        f.parent_id,
        f.start_ns,
        f.end_ns,
        n.name
    FROM v1.python_frame AS f
    INNER JOIN v1.name AS n ON f.rank = n.rank AND f.name_id = n.name_id
    QUALIFY count(*) OVER (PARTITION BY f.rank, f.frame_id) = 1
),

-- Calls of a thread nest: at its entry a call is the innermost one, at its return the one around it is.
changed AS (
    SELECT
        rank,
        tid,
        start_ns AS at_ns,
        frame_id,
        1 AS is_entry
    FROM frame
    UNION ALL
    SELECT
        rank,
        tid,
        end_ns AS at_ns,
        parent_id AS frame_id,
        0 AS is_entry
    FROM frame
    WHERE end_ns IS NOT NULL
),

innermost AS (
    SELECT *
    FROM changed
    QUALIFY row_number() OVER (PARTITION BY rank, tid, at_ns ORDER BY is_entry DESC, frame_id DESC) = 1
),

followed AS (
    SELECT
        l.rank,
        l.launch_call_id,
        i.frame_id
    FROM numbered AS l
    ASOF INNER JOIN innermost AS i
        ON l.rank = i.rank AND l.launch_tid = i.tid AND l.launch_start_ns >= i.at_ns
    WHERE i.frame_id IS NOT NULL
),

step AS (
    SELECT DISTINCT
        rank,
        frame_id AS leaf_id,
        frame_id,
        0 AS depth
    FROM followed
    UNION ALL
    SELECT
        s.rank,
        s.leaf_id,
        f.parent_id AS frame_id,
        s.depth + 1 AS depth
    FROM step AS s
    INNER JOIN frame AS f ON s.rank = f.rank AND s.frame_id = f.frame_id
    WHERE f.parent_id IS NOT NULL AND s.depth < 500
),

outward AS (
    SELECT
        s.rank,
        s.leaf_id,
        string_agg(f.name, ';' ORDER BY s.depth DESC) AS stack
    FROM step AS s
    INNER JOIN frame AS f ON s.rank = f.rank AND s.frame_id = f.frame_id
    GROUP BY s.rank, s.leaf_id
),

linked AS (
    SELECT
        l.rank,
        l.launch_call_id,
        l.launch_tid,
        l.ordinal,
        CASE WHEN o.stack IS NOT NULL THEN 'same capture' WHEN g.stack IS NOT NULL THEN 'own capture' END AS source,
        CASE WHEN o.stack IS NOT NULL THEN TRUE WHEN g.stack IS NOT NULL THEN g.name IS NOT NULL END AS is_checked,
        coalesce(o.stack, g.stack) AS stack
    FROM numbered AS l
    LEFT JOIN followed AS f ON l.rank = f.rank AND l.launch_call_id = f.launch_call_id
    LEFT JOIN outward AS o ON f.rank = o.rank AND f.frame_id = o.leaf_id
    LEFT JOIN given AS g
        ON
            l.rank = g.rank AND l.launch_tid = g.launch_tid AND l.ordinal = g.ordinal
            AND (g.name IS NULL OR g.name = l.kernel)
)

SELECT
    rank,
    launch_call_id,
    launch_tid,
    ordinal,
    source,
    is_checked,
    stack,
    coalesce(
        list_last([
            f FOR f IN string_split(stack, ';')
            IF NOT regexp_matches(f, '^(<|torch/|threading|functools|contextlib|importlib|nn\.Module: )')
        ]),
        list_last(string_split(stack, ';'))
    ) AS frame
FROM linked;
