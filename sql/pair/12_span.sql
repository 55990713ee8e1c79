-- view:       pair.span
-- purpose:    Every step of every rank, and the whole capture, in parts that sum to its length.
-- grain:      rank, projection, step_id
-- depends-on: v1.step_budget, v1.step_number, v1.step_gap
-- materialise: side
-- since:      1
-- columns:
--   rank              BIGINT  -  Global rank.
--   projection        VARCHAR -  device: a step; capture: from the first to the last device op.
--   step_id           BIGINT  -  Step of that rank; 0 in the capture row.
--   step_number       BIGINT  -  Which step of the run it is.
--   is_boundary       BOOLEAN -  Stays out of the comparison.
--   step_ns           BIGINT  ns Length of the window.
--   compute_ns        BIGINT  ns Compute runs.
--   packing_ns        BIGINT  ns Packing runs, and no compute.
--   exposed_comm_ns   BIGINT  ns Communication runs, and nothing else.
--   copy_ns           BIGINT  ns Copies or memsets run without compute and packing, with communication or without.
--   idle_ns           BIGINT  ns Nothing runs.
--   launch_starved_ns BIGINT  ns No compute: the next compute op was not issued yet.
--   blocking_ns       BIGINT  ns No compute: issued, and its latest recorded producer still ran.
--   stalled_ns        BIGINT  ns No compute: issued, no recorded reason.
--   tail_ns           BIGINT  ns No compute: after the last compute op of the window.
--   t_lb_ns           BIGINT  ns Bound of the rules; NULL, as all that follow, without one.
--   model_compute_ns  BIGINT  ns Compute busy.
--   work_ns           BIGINT  ns Compute engine busy with copies, without compute.
--   h1_ns             BIGINT  ns Structural idle of the bound.
--   h2_ns             BIGINT  ns Budget idle of the bound.
--   r1_ns             BIGINT  ns Late launch.
--   r2_ns             BIGINT  ns Queue serialization.
--   r3_ns             BIGINT  ns Cross-rank skew.
--   floor_ns          BIGINT  ns Launch floor.
--   unresolved_ns     BIGINT  ns No cause found.
--   carried_ns        BIGINT  ns Recoverable by the bound, but not found by the walk.
--   is_provisional    BOOLEAN -  The verdict on the classes was refused.
CREATE OR REPLACE VIEW pair.span AS
SELECT
    b.rank,
    b.projection,
    b.step_id,
    n.step_number,
    coalesce(b.is_boundary, FALSE) AS is_boundary,
    b.step_ns,
    b.compute_ns,
    b.noncomm_ns - b.compute_ns AS packing_ns,
    b.exposed_comm_ns,
    b.busy_ns - b.noncomm_ns - b.exposed_comm_ns AS copy_ns,
    b.idle_ns,
    b.launch_starved_ns,
    b.blocking_ns,
    b.stalled_ns,
    b.tail_ns,
    g.t_lb_ns,
    CASE WHEN g.t_lb_ns IS NOT NULL THEN g.compute_ns END AS model_compute_ns,
    CASE WHEN g.t_lb_ns IS NOT NULL THEN g.work_ns END AS work_ns,
    g.h1_ns,
    g.h2_ns,
    g.r1_ns,
    g.r2_ns,
    g.r3_ns,
    g.floor_ns,
    g.unresolved_ns,
    g.carried_ns,
    g.is_provisional
FROM v1.step_budget AS b
LEFT JOIN v1.step_number AS n
    ON b.rank = n.rank AND b.step_id = n.step_id AND b.projection = 'device'
LEFT JOIN v1.step_gap AS g
    ON b.rank = g.rank AND b.step_id = g.step_id AND b.projection = 'device' AND g.observed_ns = b.step_ns
WHERE b.projection IN ('device', 'capture');
