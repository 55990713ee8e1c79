-- view:       v1.absent_piece
-- purpose:    Compute-absent time of each window cut into pieces of one class: what the Gantt draws.
-- grain:      rank, projection, step_id, start_ns
-- depends-on: v1.compute_gap, v1.step_window
-- materialise: no
-- since:      1
-- columns:
--   rank            BIGINT   -  Global rank.
--   step_id         BIGINT   -  Step.
--   projection      VARCHAR  -  host, device or capture.
--   start_ns        BIGINT   ns Start, clipped to the window.
--   end_ns          BIGINT   ns End, clipped to the window.
--   dur_ns          BIGINT   ns end_ns - start_ns.
--   absent_class    VARCHAR  -  launch_starved, blocking, stalled or tail.
--   gap_id          BIGINT   -  Gap that it is part of.
--   op_id           BIGINT   -  Compute op that ends the gap.
--   producer_op_id  BIGINT   -  Op credited with a blocking piece.
--   producer_class  VARCHAR  -  Its time class.
CREATE OR REPLACE VIEW v1.absent_piece AS
-- Windows of one projection do not overlap, so a gap meets those from the one that it starts in to the
-- one that it ends in: two sorted look-ups, not a comparison of every gap with every window.
WITH numbered AS (
    SELECT
        rank,
        step_id,
        projection,
        start_ns,
        end_ns,
        row_number() OVER (PARTITION BY rank, projection ORDER BY start_ns, end_ns) AS pos
    FROM v1.step_window
    WHERE end_ns > start_ns
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
        g.*
    FROM v1.compute_gap AS g
    INNER JOIN projection AS p ON g.rank = p.rank
),

first_met AS (
    SELECT
        g.*,
        coalesce(w.pos, 1) AS first_pos
    FROM projected AS g
    ASOF LEFT JOIN numbered AS w
        ON g.rank = w.rank AND g.projection = w.projection AND g.start_ns >= w.start_ns
),

last_met AS (
    SELECT
        g.*,
        w.pos AS last_pos
    FROM first_met AS g
    ASOF INNER JOIN numbered AS w
        ON g.rank = w.rank AND g.projection = w.projection AND g.end_ns > w.start_ns
),

met AS (
    SELECT
        *,
        unnest(range(first_pos, last_pos + 1)) AS pos
    FROM last_met
),

clipped AS (
    SELECT
        w.step_id,
        w.start_ns AS window_start_ns,
        w.end_ns AS window_end_ns,
        g.*
    FROM met AS g
    INNER JOIN numbered AS w
        ON g.rank = w.rank AND g.projection = w.projection AND g.pos = w.pos
    WHERE g.start_ns < w.end_ns
),

piece AS (
    SELECT
        rank,
        step_id,
        projection,
        greatest(start_ns, window_start_ns) AS start_ns,
        window_end_ns AS end_ns,
        'tail' AS absent_class,
        gap_id,
        op_id,
        NULL AS producer_op_id,
        NULL AS producer_class
    FROM clipped
    WHERE op_id IS NULL OR end_ns >= window_end_ns
    UNION ALL
    SELECT
        rank,
        step_id,
        projection,
        greatest(start_ns, window_start_ns) AS start_ns,
        starved_until_ns AS end_ns,
        'launch_starved' AS absent_class,
        gap_id,
        op_id,
        NULL AS producer_op_id,
        NULL AS producer_class
    FROM clipped
    WHERE op_id IS NOT NULL AND end_ns < window_end_ns
    UNION ALL
    SELECT
        rank,
        step_id,
        projection,
        greatest(starved_until_ns, window_start_ns) AS start_ns,
        blocked_until_ns AS end_ns,
        'blocking' AS absent_class,
        gap_id,
        op_id,
        producer_op_id,
        producer_class
    FROM clipped
    WHERE op_id IS NOT NULL AND end_ns < window_end_ns
    UNION ALL
    SELECT
        rank,
        step_id,
        projection,
        greatest(blocked_until_ns, window_start_ns) AS start_ns,
        end_ns,
        'stalled' AS absent_class,
        gap_id,
        op_id,
        NULL AS producer_op_id,
        NULL AS producer_class
    FROM clipped
    WHERE op_id IS NOT NULL AND end_ns < window_end_ns
)

SELECT
    rank,
    step_id,
    projection,
    start_ns,
    end_ns,
    end_ns - start_ns AS dur_ns,
    absent_class,
    gap_id,
    op_id,
    producer_op_id,
    producer_class
FROM piece
WHERE end_ns > start_ns;
