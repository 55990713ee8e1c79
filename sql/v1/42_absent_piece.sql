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
-- audit pieces_equal_budget:
--   SELECT b.rank, b.projection, b.step_id FROM v1.window_budget AS b LEFT JOIN v1.absent_piece AS p
--   ON b.rank = p.rank AND b.projection = p.projection AND b.step_id = p.step_id
--   GROUP BY b.rank, b.projection, b.step_id, b.launch_starved_ns, b.blocking_ns, b.stalled_ns, b.tail_ns
--   HAVING b.launch_starved_ns <> coalesce(sum(p.dur_ns) FILTER (WHERE p.absent_class = 'launch_starved'), 0)
--   OR b.blocking_ns <> coalesce(sum(p.dur_ns) FILTER (WHERE p.absent_class = 'blocking'), 0)
--   OR b.stalled_ns <> coalesce(sum(p.dur_ns) FILTER (WHERE p.absent_class = 'stalled'), 0)
--   OR b.tail_ns <> coalesce(sum(p.dur_ns) FILTER (WHERE p.absent_class = 'tail'), 0)
CREATE OR REPLACE VIEW v1.absent_piece AS
WITH clipped AS (
    SELECT
        w.rank,
        w.step_id,
        w.projection,
        w.start_ns AS window_start_ns,
        w.end_ns AS window_end_ns,
        g.*
    FROM v1.step_window AS w
    INNER JOIN v1.compute_gap AS g
        ON w.rank = g.rank AND w.start_ns < g.end_ns AND w.end_ns > g.start_ns
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
