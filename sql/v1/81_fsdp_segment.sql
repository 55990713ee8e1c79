-- view:       v1.fsdp_segment
-- purpose:    Unit whose forward or backward a thread is inside of, from each instant at which that changes.
-- grain:      rank, tid, at_ns
-- depends-on: v1.fsdp_label
-- materialise: no
-- since:      1
-- columns:
--   rank       BIGINT   -  Global rank.
--   tid        BIGINT   -  Thread.
--   at_ns      BIGINT   ns From here on ...
--   unit       VARCHAR  -  ... launches belong to this unit; NULL outside of every unit.
--   phase      VARCHAR  -  forward or backward.
CREATE OR REPLACE VIEW v1.fsdp_segment AS
WITH ordered AS (
    SELECT
        *,
        lag(verb) OVER on_thread AS verb_before,
        lag(start_ns) OVER on_thread AS start_before_ns,
        lag(end_ns) OVER on_thread AS end_before_ns
    FROM v1.fsdp_label
    WINDOW on_thread AS (PARTITION BY rank, tid ORDER BY start_ns ASC, end_ns DESC, range_id ASC)
),

-- A forward runs from the first hook of the module (its inputs are cast just before pre_forward) to its last one.
forward_mark AS (
    SELECT
        rank,
        tid,
        unit,
        verb,
        CASE
            WHEN verb_before = 'cast_forward_inputs' AND end_before_ns <= start_ns THEN start_before_ns
            ELSE start_ns
        END AS open_ns,
        lead(verb) OVER of_unit AS verb_after,
        lead(end_ns) OVER of_unit AS close_ns
    FROM ordered
    WHERE verb IN ('pre_forward', 'post_forward')
    WINDOW of_unit AS (PARTITION BY rank, tid, unit ORDER BY start_ns, range_id)
),

-- A backward runs from pre_backward to the last hook after it; the root's is called by the root callback.
backward_mark AS (
    SELECT
        rank,
        tid,
        unit,
        verb,
        start_ns,
        end_ns,
        sum((verb = 'pre_backward')::INTEGER) OVER (
            PARTITION BY rank, tid, unit ORDER BY start_ns, range_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS turn
    FROM ordered
    WHERE verb IN ('pre_backward', 'post_backward_accumulate', 'post_backward_reshard', 'post_backward_reduce')
),

module AS (
    SELECT
        rank,
        tid,
        unit,
        'forward' AS phase,
        open_ns,
        close_ns
    FROM forward_mark
    WHERE verb = 'pre_forward' AND verb_after = 'post_forward' AND close_ns > open_ns
    UNION ALL
    SELECT
        rank,
        tid,
        unit,
        'backward' AS phase,
        min(start_ns) AS open_ns,
        max(end_ns) AS close_ns
    FROM backward_mark
    GROUP BY rank, tid, unit, turn
    HAVING bool_or(verb = 'pre_backward') AND bool_or(verb <> 'pre_backward') AND max(end_ns) > min(start_ns)
),

boundary AS (
    SELECT
        rank,
        tid,
        unit,
        phase,
        open_ns AS at_ns,
        1 AS delta,
        close_ns - open_ns AS length_ns
    FROM module
    UNION ALL
    SELECT
        rank,
        tid,
        unit,
        phase,
        close_ns AS at_ns,
        -1 AS delta,
        close_ns - open_ns AS length_ns
    FROM module
),

-- At one instant: ends before starts, inner ends first, outer starts first.
nested AS (
    SELECT
        *,
        row_number() OVER nesting AS pos,
        sum(delta) OVER nesting AS depth,
        coalesce(lead(at_ns) OVER nesting > at_ns, TRUE) AS is_last_at
    FROM boundary
    WINDOW nesting AS (PARTITION BY rank, tid ORDER BY at_ns, delta, -delta * length_ns, unit)
),

-- What is open after a boundary is what was opened last at the depth that is left.
opened AS (
    SELECT
        rank,
        tid,
        at_ns,
        depth,
        is_last_at,
        last_value(CASE WHEN delta = 1 THEN unit END IGNORE NULLS) OVER at_depth AS unit,
        last_value(CASE WHEN delta = 1 THEN phase END IGNORE NULLS) OVER at_depth AS phase
    FROM nested
    WINDOW at_depth AS (
        PARTITION BY rank, tid, depth ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
)

SELECT
    rank,
    tid,
    at_ns,
    CASE WHEN depth > 0 THEN unit END AS unit,
    CASE WHEN depth > 0 THEN phase END AS phase
FROM opened
WHERE is_last_at;
