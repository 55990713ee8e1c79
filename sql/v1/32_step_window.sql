-- view:       v1.step_window
-- purpose:    Every step of every rank in both projections, and the whole capture.
-- grain:      rank, projection, step_id
-- depends-on: v1.anchor_window, v1.op_launch
-- materialise: rank
-- since:      1
-- columns:
--   rank       BIGINT   -  Global rank.
--   step_id    BIGINT   -  Number of the step, from 0; none is dropped.
--   projection VARCHAR  -  host: the range itself. device: end of the last op launched in the previous step to the end of the last one launched in this step. capture: first to last device op.
--   label      VARCHAR  -  Text of the step range; capture for the capture row.
--   source     VARCHAR  -  Anchor that gave the step.
--   start_ns   BIGINT   ns Start.
--   end_ns     BIGINT   ns End.
--   is_partial BOOLEAN  -  The window starts or ends with the capture, not with an anchor.
--   carried_in_ns BIGINT ns First device window: how far into it the device still ran ops launched before; NULL in others.
CREATE OR REPLACE VIEW v1.step_window AS
SELECT
    rank,
    step_id,
    projection,
    label,
    source,
    start_ns,
    end_ns,
    is_partial,
    carried_in_ns
FROM v1.anchor_window
QUALIFY priority = min(priority) OVER (PARTITION BY rank)
UNION ALL
SELECT
    rank,
    0 AS step_id,
    'capture' AS projection,
    'capture' AS label,
    'capture' AS source,
    min(start_ns) AS start_ns,
    max(end_ns) AS end_ns,
    FALSE AS is_partial,
    NULL::BIGINT AS carried_in_ns
FROM v1.op_launch
GROUP BY rank;
