-- view:       v1.op_unit
-- purpose:    Unit, phase and node of FSDP2's program that each device op belongs to.
-- grain:      rank, op_id
-- depends-on: v1.device_op, v1.fsdp_label, v1.fsdp_segment, v1.step_window, v1.name
-- materialise: rank
-- since:      1
-- columns:
--   rank           BIGINT   -  Global rank.
--   step_id        BIGINT   -  Step whose host range holds the launch; between steps, the device window of the start.
--   op_id          BIGINT   -  Number of the op within its rank.
--   correlation_id BIGINT   -  Host issue order within the process.
--   unit           VARCHAR  -  Module FQN; '' for the root.
--   phase          VARCHAR  -  forward, backward or optimizer.
--   node           VARCHAR  -  Node of the rule book, like AG'(blocks.0): an apostrophe marks the backward re-gather, #2 the second of a step.
--   node_kind      VARCHAR  -  AGIN, AG, AGOUT, FWD, BWD, RSIN, RS, AR, POST, OPT, or COMM for a collective that no label names.
--   turn           BIGINT   -  1 for the first node of this kind, unit and apostrophe in the step, 2 for the second, ...
--   node_id        BIGINT   -  Number of the node within the step, in host issue order.
--   issue_rank     BIGINT   -  Number of the op within the step, in host issue order.
--   anchor         VARCHAR  -  label: launched inside a label that names the node; interpolated: between two labels; order: by the phase of the step alone.
-- audit op_unit_node_has_one_unit:
--   SELECT u.rank, u.step_id, u.node_id FROM v1.op_unit AS u GROUP BY u.rank, u.step_id, u.node_id
--   HAVING count(DISTINCT u.unit) > 1 OR count(DISTINCT u.node) > 1
-- audit op_unit_node_is_named_once:
--   SELECT u.rank, u.step_id, u.node FROM v1.op_unit AS u GROUP BY u.rank, u.step_id, u.node
--   HAVING count(DISTINCT u.node_id) > 1
CREATE OR REPLACE VIEW v1.op_unit AS
-- Only captures with FSDP2's labels have rows.
WITH labelled_rank AS (
    SELECT DISTINCT rank
    FROM v1.fsdp_label
    WHERE verb IN ('pre_forward', 'root_pre_forward', 'pre_backward')
),

launched AS (
    SELECT
        o.rank,
        o.op_id,
        o.correlation_id,
        o.time_class,
        o.start_ns,
        o.launch_tid,
        o.launch_start_ns,
        o.time_class = 'communication' AND coalesce(regexp_matches(n.name, '(?i)all_?reduce'), FALSE) AS is_all_reduce,
        coalesce(n.name LIKE '%FillFunctor%', FALSE) AS is_fill
    FROM v1.device_op AS o
    INNER JOIN labelled_rank AS l ON o.rank = l.rank
    LEFT JOIN v1.name AS n ON o.rank = n.rank AND o.name_id = n.name_id
    WHERE o.launch_call_id IS NOT NULL
),

-- These labels do not nest in one another, so that the last one opened decides.
leaf AS (
    SELECT *
    FROM v1.fsdp_label
    WHERE verb IN ('all_gather', 'all_gather_copy_out', 'post_backward_reduce', 'optimizer')
),

-- An all-gather belongs to the pass whose hook or prefetch asked for it.
direction AS (
    SELECT
        rank,
        tid,
        start_ns,
        CASE WHEN verb IN ('pre_forward', 'forward_prefetch') THEN 'forward' ELSE 'backward' END AS phase
    FROM v1.fsdp_label
    WHERE verb IN ('pre_forward', 'forward_prefetch', 'pre_backward', 'backward_prefetch')
),

-- Outside of every module the step itself tells the phase, whatever the thread; it begins with a forward.
stage AS (
    SELECT
        rank,
        CASE WHEN verb = 'root_post_backward_callback' THEN end_ns ELSE start_ns END AS at_ns,
        CASE
            WHEN verb = 'root_post_backward_callback' THEN 'optimizer'
            WHEN verb = 'pre_backward' THEN 'backward'
            ELSE 'forward'
        END AS phase
    FROM v1.fsdp_label
    WHERE verb IN ('root_pre_forward', 'pre_forward', 'pre_backward', 'root_post_backward_callback')
    UNION ALL
    SELECT
        rank,
        start_ns AS at_ns,
        'forward' AS phase
    FROM v1.step_window
    WHERE projection = 'host'
),

-- The loss runs backward on autograd's thread before the first hook says so.
backward_thread AS (
    SELECT
        rank,
        tid
    FROM v1.fsdp_label
    GROUP BY rank, tid
    HAVING bool_or(verb = 'pre_backward') AND NOT bool_or(verb = 'root_pre_forward')
),

in_leaf AS (
    SELECT
        o.*,
        CASE WHEN l.end_ns > o.launch_start_ns THEN l.range_id END AS leaf_range_id,
        CASE WHEN l.end_ns > o.launch_start_ns THEN l.verb END AS verb,
        CASE WHEN l.end_ns > o.launch_start_ns THEN l.unit END AS leaf_unit
    FROM launched AS o
    ASOF LEFT JOIN leaf AS l
        ON o.rank = l.rank AND o.launch_tid = l.tid AND o.launch_start_ns >= l.start_ns
),

in_module AS (
    SELECT
        o.*,
        s.unit AS module_unit,
        s.phase AS module_phase
    FROM in_leaf AS o
    ASOF LEFT JOIN v1.fsdp_segment AS s
        ON o.rank = s.rank AND o.launch_tid = s.tid AND o.launch_start_ns >= s.at_ns
),

in_direction AS (
    SELECT
        o.*,
        d.phase AS gather_phase
    FROM in_module AS o
    ASOF LEFT JOIN direction AS d
        ON o.rank = d.rank AND o.launch_tid = d.tid AND o.launch_start_ns >= d.start_ns
),

in_stage AS (
    SELECT
        o.*,
        s.phase AS stage_phase
    FROM in_direction AS o
    ASOF LEFT JOIN stage AS s ON o.rank = s.rank AND o.launch_start_ns >= s.at_ns
),

host_window AS (
    SELECT *
    FROM v1.step_window
    WHERE projection = 'host'
),

device_window AS (
    SELECT *
    FROM v1.step_window
    WHERE projection = 'device'
),

in_host_step AS (
    SELECT
        o.*,
        CASE WHEN o.launch_start_ns < w.end_ns THEN w.step_id END AS host_step_id
    FROM in_stage AS o
    ASOF LEFT JOIN host_window AS w ON o.rank = w.rank AND o.launch_start_ns >= w.start_ns
),

in_step AS (
    SELECT
        o.*,
        coalesce(o.host_step_id, CASE WHEN o.start_ns < w.end_ns THEN w.step_id END) AS step_id,
        -- What copies in and what comes after the collective are told by the order within the label.
        o.correlation_id > max(CASE WHEN o.time_class = 'communication' THEN o.correlation_id END)
            OVER (PARTITION BY o.rank, o.leaf_range_id) AS is_after_collective
    FROM in_host_step AS o
    ASOF LEFT JOIN device_window AS w ON o.rank = w.rank AND o.start_ns >= w.start_ns
),

placed AS (
    SELECT
        o.*,
        CASE
            WHEN o.verb = 'all_gather' THEN CASE WHEN o.time_class = 'communication' THEN 'AG' ELSE 'AGIN' END
            WHEN o.verb = 'all_gather_copy_out' THEN 'AGOUT'
            WHEN o.verb = 'post_backward_reduce' AND o.is_all_reduce THEN 'AR'
            WHEN o.verb = 'post_backward_reduce' AND o.time_class = 'communication' THEN 'RS'
            WHEN o.verb = 'post_backward_reduce' THEN CASE WHEN o.is_after_collective THEN 'POST' ELSE 'RSIN' END
            WHEN o.time_class = 'communication' THEN 'COMM'
            WHEN o.verb = 'optimizer' THEN 'OPT'
            WHEN o.module_phase = 'forward' THEN 'FWD'
            WHEN o.module_phase = 'backward' THEN 'BWD'
            WHEN o.stage_phase = 'optimizer' THEN 'OPT'
            WHEN o.stage_phase = 'backward' OR b.tid IS NOT NULL THEN 'BWD'
            ELSE 'FWD'
        END AS node_kind,
        CASE
            WHEN o.verb = 'optimizer' THEN 'optimizer'
            WHEN o.verb = 'post_backward_reduce' THEN 'backward'
            WHEN o.verb IS NOT NULL THEN coalesce(o.gather_phase, o.module_phase, 'forward')
            WHEN o.module_phase IS NOT NULL THEN o.module_phase
            WHEN o.stage_phase = 'optimizer' THEN 'optimizer'
            WHEN o.stage_phase = 'backward' OR b.tid IS NOT NULL THEN 'backward'
            ELSE 'forward'
        END AS phase,
        CASE WHEN o.verb IS NOT NULL THEN o.leaf_unit ELSE coalesce(o.module_unit, '') END AS unit,
        CASE
            WHEN o.verb IS NOT NULL THEN 'label'
            WHEN o.module_unit IS NOT NULL THEN 'interpolated'
            ELSE 'order'
        END AS anchor
    FROM in_step AS o
    LEFT JOIN backward_thread AS b ON o.rank = b.rank AND o.launch_tid = b.tid
    WHERE o.step_id IS NOT NULL
),

-- Bare compute makes a new node when unit or phase changes in host issue order, and behind a copy-out (what came
-- before it, such as a cast of the inputs, did not need it); a label makes one of each kind.
ordered AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY rank, step_id ORDER BY correlation_id, start_ns, op_id) - 1 AS issue_rank,
        verb IS NOT NULL OR node_kind = 'COMM' AS is_own_node,
        sum((node_kind = 'AGOUT')::INTEGER) OVER (
            PARTITION BY rank, step_id ORDER BY correlation_id, start_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS copy_outs
    FROM placed
),

-- The thread that calls backward() fills the loss' own gradient with ones before autograd's thread begins.
seeded AS (
    SELECT
        *,
        coalesce(
            is_fill AND node_kind = 'FWD' AND anchor = 'order' AND lead(node_kind) OVER bare = 'BWD', FALSE
        ) AS is_seed
    FROM ordered
    WINDOW bare AS (PARTITION BY rank, step_id, is_own_node ORDER BY issue_rank)
),

parted AS (
    SELECT
        * EXCLUDE (node_kind, phase),
        CASE WHEN is_seed THEN 'BWD' ELSE node_kind END AS node_kind,
        CASE WHEN is_seed THEN 'backward' ELSE phase END AS phase
    FROM seeded
),

changed AS (
    SELECT
        *,
        CASE
            WHEN is_own_node THEN 0
            WHEN
                unit = lag(unit) OVER bare
                AND node_kind = lag(node_kind) OVER bare
                AND copy_outs = lag(copy_outs) OVER bare
                THEN 0
            ELSE 1
        END AS is_change
    FROM parted
    WINDOW bare AS (PARTITION BY rank, step_id, is_own_node ORDER BY issue_rank)
),

keyed AS (
    SELECT
        *,
        CASE
            WHEN node_kind = 'COMM' THEN issue_rank
            WHEN is_own_node THEN leaf_range_id
            ELSE sum(is_change) OVER (
                PARTITION BY rank, step_id, is_own_node ORDER BY issue_rank
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
        END AS node_key
    FROM changed
),

firsts AS (
    SELECT
        *,
        min(issue_rank) OVER (
            PARTITION BY rank, step_id, is_own_node, node_kind, node_key
        ) AS first_issue
    FROM keyed
),

named AS (
    SELECT
        *,
        node_kind
        || CASE WHEN phase = 'backward' AND node_kind IN ('AGIN', 'AG', 'AGOUT') THEN '''' ELSE '' END
        || '(' || CASE WHEN unit = '' THEN 'root' ELSE unit END || ')' AS first_name
    FROM firsts
),

numbered AS (
    SELECT
        *,
        dense_rank() OVER (PARTITION BY rank, step_id ORDER BY first_issue) - 1 AS node_id,
        dense_rank() OVER (PARTITION BY rank, step_id, first_name ORDER BY first_issue) AS turn
    FROM named
)

SELECT
    rank,
    step_id,
    op_id,
    correlation_id,
    unit,
    phase,
    first_name || CASE WHEN turn > 1 THEN '#' || turn ELSE '' END AS node,
    node_kind,
    turn,
    node_id,
    issue_rank,
    anchor
FROM numbered;
