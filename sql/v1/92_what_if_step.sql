-- view:       v1.what_if_step
-- purpose:    Length of each step of the run when mechanisms are removed: that of its slowest rank.
-- grain:      step_id, removed
-- depends-on: v1.what_if, v1.step_gap
-- materialise: no
-- since:      1
-- columns:
--   step_id      BIGINT   -  Step.
--   removed      VARCHAR  -  '' (replay as executed), R1, R2, R3, R1+R2, ..., R1+R2+R3.
--   rank_count   BIGINT   -  Ranks that were replayed.
--   step_ns      BIGINT   ns Replayed length, the largest over ranks.
--   stretched_ns BIGINT   ns The same with newly overlapped compute slowed as the capture shows; NULL: not measurable.
--   is_boundary  BOOLEAN  -  The step stays out of medians and verdicts.
CREATE OR REPLACE VIEW v1.what_if_step AS
SELECT
    w.step_id,
    w.removed,
    count(*) AS rank_count,
    max(w.step_ns) AS step_ns,
    max(w.stretched_ns) AS stretched_ns,
    bool_or(g.is_boundary) AS is_boundary
FROM v1.what_if AS w
INNER JOIN v1.step_gap AS g ON w.rank = g.rank AND w.step_id = g.step_id
GROUP BY w.step_id, w.removed;
