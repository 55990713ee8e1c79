-- view:       v1.gap_cause
-- purpose:    What each class of a step's gap is made of: sub-cause, who is to blame, what is awaited.
-- grain:      rank, step_id, gap_class, sub_cause, culprit_rank, awaited_node
-- depends-on: v1.gap_piece
-- materialise: no
-- since:      1
-- columns:
--   rank           BIGINT  -  Global rank.
--   step_id        BIGINT  -  Step.
--   gap_class      VARCHAR -  R1, R2, R3, H1, H2, work, floor, unresolved or carried.
--   sub_cause      VARCHAR -  R1: what the launching thread did; R2: what held the op; R3: the laggard's own reason; NULL without one.
--   culprit_rank   BIGINT  -  Rank on which a late collective came last; NULL where the rank itself is late.
--   awaited_node   VARCHAR -  Collective that a hard piece waits for; NULL for other classes.
--   piece_count    BIGINT  -  Pieces.
--   total_ns       BIGINT  ns Their length together.
--   hidden_ns      BIGINT  ns Of it, lateness that lies before the gap and shows as transfer inside it.
--   is_provisional BOOLEAN -  The verdict is refused; the class is not to be relied on.
-- audit gap_cause_sums_to_the_step:
--   SELECT c.rank, c.step_id
--   FROM (
--       SELECT a.rank, a.step_id, sum(a.total_ns) AS total_ns FROM v1.gap_cause AS a GROUP BY a.rank, a.step_id
--   ) AS c
--   INNER JOIN v1.step_gap AS g ON c.rank = g.rank AND c.step_id = g.step_id
--   WHERE c.total_ns <> g.observed_ns - g.compute_ns
CREATE OR REPLACE VIEW v1.gap_cause AS
SELECT
    rank,
    step_id,
    gap_class,
    sub_cause,
    culprit_rank,
    awaited_node,
    count(*) AS piece_count,
    sum(end_ns - start_ns)::BIGINT AS total_ns,
    coalesce(sum(CASE WHEN is_hidden THEN end_ns - start_ns END), 0)::BIGINT AS hidden_ns,
    bool_or(is_provisional) AS is_provisional
FROM v1.gap_piece
GROUP BY rank, step_id, gap_class, sub_cause, culprit_rank, awaited_node;
