-- view:       v1.blame_summary
-- purpose:    Blocking time of each step by what really held it, from the blame chain.
-- grain:      rank, step_id, reason, time_class
-- depends-on: v1.blame_chain, v1.step_window
-- materialise: run
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank.
--   step_id     BIGINT   -  Step of the device projection.
--   reason      VARCHAR  -  running, launch_starved or stalled.
--   time_class  VARCHAR  -  Class of the op that ran or waited.
--   blamed_ns   BIGINT   ns Time within the step.
--   piece_count BIGINT   -  Pieces.
CREATE OR REPLACE VIEW v1.blame_summary AS
SELECT
    w.rank,
    w.step_id,
    c.reason,
    c.time_class,
    sum(least(c.end_ns, w.end_ns) - greatest(c.start_ns, w.start_ns))::BIGINT AS blamed_ns,
    count(*) AS piece_count
FROM v1.step_window AS w
INNER JOIN v1.blame_chain AS c
    ON w.rank = c.rank AND w.start_ns < c.end_ns AND w.end_ns > c.start_ns
WHERE w.projection = 'device'
GROUP BY w.rank, w.step_id, c.reason, c.time_class;
