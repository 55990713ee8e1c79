-- view:       v1.root_cause
-- purpose:    Time without compute by the program's own line that launched what compute waited for, as far as stacks are linked.
-- grain:      rank, projection, step_id, phenomenon, reason, frame
-- depends-on: v1.absent_piece, v1.blame_chain, v1.step_window, v1.op, v1.launch_stack
-- materialise: no
-- since:      1
-- columns:
--   rank        BIGINT  -  Global rank.
--   projection  VARCHAR -  host, device or capture.
--   step_id     BIGINT  -  Step; 0 in the capture.
--   phenomenon  VARCHAR -  launch_starved: until the late op was issued. blocking: followed back to the op that held it.
--   reason      VARCHAR -  Of blocking: running, launch_starved or stalled, what that op did.
--   frame       VARCHAR -  Line that launched the op; NULL where its launch has no stack.
--   stack       VARCHAR -  Stack of the longest of these pieces.
--   total_ns    BIGINT  ns Time.
--   piece_count BIGINT  -  Pieces.
CREATE OR REPLACE VIEW v1.root_cause AS
WITH piece AS (
    SELECT
        rank,
        projection,
        step_id,
        'launch_starved' AS phenomenon,
        'launch_starved' AS reason,
        op_id,
        dur_ns
    FROM v1.absent_piece
    WHERE absent_class = 'launch_starved'
    UNION ALL
    SELECT
        w.rank,
        w.projection,
        w.step_id,
        'blocking' AS phenomenon,
        c.reason,
        c.op_id,
        least(c.end_ns, w.end_ns) - greatest(c.start_ns, w.start_ns) AS dur_ns
    FROM v1.step_window AS w
    INNER JOIN v1.blame_chain AS c
        ON w.rank = c.rank AND w.start_ns < c.end_ns AND w.end_ns > c.start_ns
)

SELECT
    p.rank,
    p.projection,
    p.step_id,
    p.phenomenon,
    p.reason,
    s.frame,
    arg_max(s.stack, p.dur_ns) AS stack,
    sum(p.dur_ns)::BIGINT AS total_ns,
    count(*) AS piece_count
FROM piece AS p
LEFT JOIN v1.op AS o ON p.rank = o.rank AND p.op_id = o.op_id
LEFT JOIN v1.launch_stack AS s ON o.rank = s.rank AND o.launch_call_id = s.launch_call_id
GROUP BY p.rank, p.projection, p.step_id, p.phenomenon, p.reason, s.frame;
