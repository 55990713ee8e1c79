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

telling_name AS (
    SELECT
        rank,
        name_id,
        regexp_matches(name, '(?i)all_?reduce') AS is_all_reduce,
        name LIKE '%FillFunctor%' AS is_fill
    FROM v1.name
    WHERE regexp_matches(name, '(?i)all_?reduce') OR name LIKE '%FillFunctor%'
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
        o.time_class = 'communication' AND coalesce(n.is_all_reduce, FALSE) AS is_all_reduce,
        coalesce(n.is_fill, FALSE) AS is_fill
    FROM v1.device_op AS o
    INNER JOIN labelled_rank AS l ON o.rank = l.rank
    LEFT JOIN telling_name AS n ON o.rank = n.rank AND o.name_id = n.name_id
    WHERE o.launch_call_id IS NOT NULL
),

-- All that changes on a thread, so that a launch is looked up once. A label that names a node: these do not nest in
-- one another, so that the last one opened decides. The module that the thread is inside of. The pass whose hook or
-- prefetch asked last for an all-gather, which belongs to that pass.
thread_change AS (
    SELECT
        rank,
        tid,
        start_ns AS at_ns,
        range_id,
        struct_pack(range_id := range_id, verb := verb, unit := unit, end_ns := end_ns) AS leaf,
        NULL AS module,
        NULL AS gather_phase
    FROM v1.fsdp_label
    WHERE verb IN ('all_gather', 'all_gather_copy_out', 'post_backward_reduce', 'optimizer')
    UNION ALL
    SELECT
        rank,
        tid,
        at_ns,
        NULL AS range_id,
        NULL AS leaf,
        struct_pack(unit := unit, phase := phase) AS module,
        NULL AS gather_phase
    FROM v1.fsdp_segment
    UNION ALL
    SELECT
        rank,
        tid,
        start_ns AS at_ns,
        range_id,
        NULL AS leaf,
        NULL AS module,
        CASE WHEN verb IN ('pre_forward', 'forward_prefetch') THEN 'forward' ELSE 'backward' END AS gather_phase
    FROM v1.fsdp_label
    WHERE verb IN ('pre_forward', 'forward_prefetch', 'pre_backward', 'backward_prefetch')
),

thread_state AS (
    SELECT
        rank,
        tid,
        at_ns,
        last_value(leaf IGNORE NULLS) OVER so_far AS leaf,
        last_value(module IGNORE NULLS) OVER so_far AS module,
        last_value(gather_phase IGNORE NULLS) OVER so_far AS gather_phase
    FROM thread_change
    WHERE at_ns IS NOT NULL
    WINDOW
        so_far AS (
            PARTITION BY rank, tid ORDER BY at_ns, range_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    QUALIFY coalesce(lead(at_ns) OVER so_far > at_ns, TRUE)
),

-- Outside of every module the step itself tells the phase, whatever the thread; it begins with a forward.
rank_change AS (
    SELECT
        rank,
        CASE WHEN verb = 'root_post_backward_callback' THEN end_ns ELSE start_ns END AS at_ns,
        CASE
            WHEN verb = 'root_post_backward_callback' THEN 'optimizer'
            WHEN verb = 'pre_backward' THEN 'backward'
            ELSE 'forward'
        END AS phase,
        NULL AS host_step
    FROM v1.fsdp_label
    WHERE verb IN ('root_pre_forward', 'pre_forward', 'pre_backward', 'root_post_backward_callback')
    UNION ALL
    SELECT
        rank,
        start_ns AS at_ns,
        'forward' AS phase,
        struct_pack(step_id := step_id, end_ns := end_ns) AS host_step
    FROM v1.step_window
    WHERE projection = 'host'
),

rank_state AS (
    SELECT
        rank,
        at_ns,
        phase AS stage_phase,
        last_value(host_step IGNORE NULLS) OVER so_far AS host_step
    FROM rank_change
    WHERE at_ns IS NOT NULL
    WINDOW
        so_far AS (
            PARTITION BY rank ORDER BY at_ns, host_step.step_id NULLS FIRST, phase
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )
    QUALIFY coalesce(lead(at_ns) OVER so_far > at_ns, TRUE)
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

on_thread AS (
    SELECT
        o.*,
        CASE WHEN s.leaf.end_ns > o.launch_start_ns THEN s.leaf.range_id END AS leaf_range_id,
        CASE WHEN s.leaf.end_ns > o.launch_start_ns THEN s.leaf.verb END AS verb,
        CASE WHEN s.leaf.end_ns > o.launch_start_ns THEN s.leaf.unit END AS leaf_unit,
        s.module.unit AS module_unit,
        s.module.phase AS module_phase,
        s.gather_phase
    FROM launched AS o
    ASOF LEFT JOIN thread_state AS s
        ON o.rank = s.rank AND o.launch_tid = s.tid AND o.launch_start_ns >= s.at_ns
),

in_host_step AS MATERIALIZED (
    SELECT
        o.*,
        s.stage_phase,
        CASE WHEN o.launch_start_ns < s.host_step.end_ns THEN s.host_step.step_id END AS host_step_id
    FROM on_thread AS o
    ASOF LEFT JOIN rank_state AS s ON o.rank = s.rank AND o.launch_start_ns >= s.at_ns
),

device_window AS (
    SELECT *
    FROM v1.step_window
    WHERE projection = 'device'
),

in_step AS MATERIALIZED (
    SELECT
        *,
        host_step_id AS step_id
    FROM in_host_step
    WHERE host_step_id IS NOT NULL
    UNION ALL
    SELECT
        o.*,
        w.step_id
    FROM in_host_step AS o
    ASOF INNER JOIN device_window AS w ON o.rank = w.rank AND o.start_ns >= w.start_ns
    WHERE o.host_step_id IS NULL AND o.start_ns < w.end_ns
),

-- What copies in and what comes after the collective are told by the order within the label.
reduced AS (
    SELECT
        rank,
        leaf_range_id,
        max(correlation_id) AS correlation_id
    FROM in_step
    WHERE verb = 'post_backward_reduce' AND time_class = 'communication'
    GROUP BY rank, leaf_range_id
),

placed AS (
    SELECT
        o.rank,
        o.step_id,
        o.op_id,
        o.correlation_id,
        o.start_ns,
        o.leaf_range_id,
        o.is_fill,
        CASE
            WHEN o.verb = 'all_gather' THEN CASE WHEN o.time_class = 'communication' THEN 'AG' ELSE 'AGIN' END
            WHEN o.verb = 'all_gather_copy_out' THEN 'AGOUT'
            WHEN o.verb = 'post_backward_reduce' AND o.is_all_reduce THEN 'AR'
            WHEN o.verb = 'post_backward_reduce' AND o.time_class = 'communication' THEN 'RS'
            WHEN o.verb = 'post_backward_reduce'
                THEN CASE WHEN o.correlation_id > r.correlation_id THEN 'POST' ELSE 'RSIN' END
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
    LEFT JOIN reduced AS r ON o.rank = r.rank AND o.leaf_range_id = r.leaf_range_id
),

-- Bare compute makes a new node when unit or phase changes in host issue order, and behind a copy-out (what came
-- before it, such as a cast of the inputs, did not need it); a label makes one of each kind.
marked AS (
    SELECT
        *,
        anchor = 'label' OR node_kind = 'COMM' AS is_own_node,
        CASE WHEN anchor <> 'label' AND node_kind <> 'COMM' THEN struct_pack(
            unit := unit,
            node_kind := node_kind,
            -- The thread that calls backward() fills the loss' own gradient with ones before autograd's thread begins.
            may_be_seed := is_fill AND node_kind = 'FWD' AND anchor = 'order'
        ) END AS bare
    FROM placed
),

beside AS (
    SELECT
        * EXCLUDE (bare, is_fill, start_ns),
        row_number() OVER by_issue - 1 AS issue_rank,
        last_value(bare IGNORE NULLS) OVER so_far AS bare_before,
        coalesce(
            bare['may_be_seed'] AND (first_value(bare IGNORE NULLS) OVER to_come)['node_kind'] = 'BWD', FALSE
        ) AS is_seed,
        last_value(CASE WHEN node_kind = 'AGOUT' THEN TRUE WHEN bare IS NOT NULL THEN FALSE END IGNORE NULLS)
            OVER so_far AS is_behind_copy_out
    FROM marked
    WINDOW
        by_issue AS (PARTITION BY rank, step_id ORDER BY correlation_id, start_ns, op_id),
        so_far AS (
            PARTITION BY rank, step_id ORDER BY correlation_id, start_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        to_come AS (
            PARTITION BY rank, step_id ORDER BY correlation_id, start_ns, op_id
            ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        )
),

parted AS (
    SELECT
        rank,
        step_id,
        op_id,
        correlation_id,
        leaf_range_id,
        unit,
        issue_rank,
        is_own_node,
        anchor,
        CASE WHEN is_seed THEN 'BWD' ELSE node_kind END AS node_kind,
        CASE WHEN is_seed THEN 'backward' ELSE phase END AS phase,
        -- Goes on with the node of the bare op before it.
        unit = bare_before['unit']
        AND node_kind = CASE
            WHEN bare_before['may_be_seed'] AND node_kind = 'BWD' THEN 'BWD' ELSE bare_before['node_kind']
        END
        AND NOT is_behind_copy_out AS is_same_node
    FROM beside
),

keyed AS MATERIALIZED (
    SELECT
        rank,
        step_id,
        op_id,
        correlation_id,
        unit,
        phase,
        node_kind,
        issue_rank,
        anchor,
        is_own_node,
        CASE
            WHEN node_kind = 'COMM' THEN issue_rank
            WHEN is_own_node THEN leaf_range_id
            ELSE
                count(CASE WHEN is_own_node OR is_same_node THEN NULL ELSE 1 END) OVER (
                    PARTITION BY rank, step_id ORDER BY issue_rank
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                )
        END AS node_key
    FROM parted
),

node AS (
    SELECT
        rank,
        step_id,
        is_own_node,
        node_kind,
        node_key,
        phase,
        unit,
        min(min(issue_rank)) OVER (PARTITION BY rank, step_id, is_own_node, node_kind, node_key) AS first_issue,
        node_kind
        || CASE WHEN phase = 'backward' AND node_kind IN ('AGIN', 'AG', 'AGOUT') THEN '''' ELSE '' END
        || '(' || CASE WHEN unit = '' THEN 'root' ELSE unit END || ')' AS first_name
    FROM keyed
    GROUP BY rank, step_id, is_own_node, node_kind, node_key, phase, unit
),

numbered AS (
    SELECT
        *,
        dense_rank() OVER (PARTITION BY rank, step_id ORDER BY first_issue) - 1 AS node_id,
        dense_rank() OVER (PARTITION BY rank, step_id, first_name ORDER BY first_issue) AS turn
    FROM node
)

SELECT
    o.rank,
    o.step_id,
    o.op_id,
    o.correlation_id,
    o.unit,
    o.phase,
    n.first_name || CASE WHEN n.turn > 1 THEN '#' || n.turn ELSE '' END AS node,
    o.node_kind,
    n.turn,
    n.node_id,
    o.issue_rank,
    o.anchor
FROM keyed AS o
INNER JOIN numbered AS n
    ON
        o.rank = n.rank
        AND o.step_id = n.step_id
        AND o.is_own_node = n.is_own_node
        AND o.node_kind = n.node_kind
        AND o.node_key = n.node_key
        AND o.phase = n.phase
        AND o.unit IS NOT DISTINCT FROM n.unit;
