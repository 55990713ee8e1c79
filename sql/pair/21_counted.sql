-- view:       pair.counted
-- purpose:    Windows that are compared: steps that count of ranks that both runs have, or whole captures with their units of work.
-- grain:      side, rank, step_id
-- depends-on: pair.span, pair.shown, pair.anchor
-- materialise: no
-- since:      1
-- columns:
--   side              VARCHAR -  A or B.
--   rank              BIGINT  -  Global rank.
--   step_id           BIGINT  -  Step of that rank; 0 for the whole capture.
--   step_number       BIGINT  -  Which step of the run it is; 0 for the whole capture.
--   units             BIGINT  -  Units of work in it: 1 for a step, launches of the anchor for a capture.
--   step_ns           BIGINT  ns Length of the window.
--   compute_ns        BIGINT  ns As in pair.span, like all that follow.
--   packing_ns        BIGINT  ns -.
--   exposed_comm_ns   BIGINT  ns -.
--   copy_ns           BIGINT  ns -.
--   idle_ns           BIGINT  ns -.
--   launch_starved_ns BIGINT  ns -.
--   blocking_ns       BIGINT  ns -.
--   stalled_ns        BIGINT  ns -.
--   tail_ns           BIGINT  ns -.
--   t_lb_ns           BIGINT  ns -.
--   model_compute_ns  BIGINT  ns -.
--   work_ns           BIGINT  ns -.
--   h1_ns             BIGINT  ns -.
--   h2_ns             BIGINT  ns -.
--   r1_ns             BIGINT  ns -.
--   r2_ns             BIGINT  ns -.
--   r3_ns             BIGINT  ns -.
--   floor_ns          BIGINT  ns -.
--   unresolved_ns     BIGINT  ns -.
--   carried_ns        BIGINT  ns -.
--   is_provisional    BOOLEAN -  -.
CREATE OR REPLACE VIEW pair.counted AS
WITH eligible AS (
    SELECT
        w.*,
        CASE
            WHEN s.projection = 'device' THEN 1
            WHEN w.side = 'A' THEN a.a_count
            ELSE a.b_count
        END AS units
    FROM pair.span AS w
    INNER JOIN pair.shown AS s ON w.projection = s.projection
    LEFT JOIN pair.anchor AS a ON w.rank = a.rank
    WHERE NOT w.is_boundary AND w.step_ns > 0
),

both_sides AS (
    SELECT rank
    FROM eligible
    WHERE units IS NOT NULL
    GROUP BY rank
    HAVING count(DISTINCT side) = 2
)

SELECT
    e.side,
    e.rank,
    e.step_id,
    coalesce(e.step_number, 0) AS step_number,
    e.units,
    e.step_ns,
    e.compute_ns,
    e.packing_ns,
    e.exposed_comm_ns,
    e.copy_ns,
    e.idle_ns,
    e.launch_starved_ns,
    e.blocking_ns,
    e.stalled_ns,
    e.tail_ns,
    e.t_lb_ns,
    e.model_compute_ns,
    e.work_ns,
    e.h1_ns,
    e.h2_ns,
    e.r1_ns,
    e.r2_ns,
    e.r3_ns,
    e.floor_ns,
    e.unresolved_ns,
    e.carried_ns,
    e.is_provisional
FROM eligible AS e
INNER JOIN both_sides AS r ON e.rank = r.rank;
