-- view:       v1.arrival_summary
-- purpose:    Who came last at the collectives, how often, by how much, and how long the others waited.
-- grain:      rank, group_name, group_ranks, type
-- depends-on: v1.collective_instance, v1.rank_clock
-- materialise: no
-- since:      1
-- columns:
--   rank               BIGINT  -  Global rank.
--   group_name         VARCHAR -  Process group.
--   group_ranks        VARCHAR -  Its ranks, as the source lists them.
--   type               VARCHAR -  Kind of operation.
--   op_count           BIGINT  -  Operations of the rank.
--   matched_count      BIGINT  -  Of these, matched on all their ranks; the columns below are of these.
--   last_count         BIGINT  -  Where this rank came last.
--   clear_last_count   BIGINT  -  Of these, by more than three clock residuals after the rank before it.
--   wait_ns            BIGINT  ns Work volume: from its own start to the last arrival.
--   jitter_wait_ns     BIGINT  ns Work volume: own durations less those of the shortest participants.
--   median_transfer_ns BIGINT  ns Median of last aligned end less last arrival; NULL without a match.
CREATE OR REPLACE VIEW v1.arrival_summary AS
WITH latest AS (
    SELECT
        i.group_name,
        i.group_ranks,
        i.seq,
        max(i.start_ns, 2)[1] - max(i.start_ns, 2)[2]
        > 3 * list_max(arg_max(c.residual_ns, i.start_ns, 2)) AS is_clear
    FROM v1.collective_instance AS i
    INNER JOIN v1.rank_clock AS c ON i.rank = c.rank
    WHERE i.is_matched AND i.participants > 1
    GROUP BY i.group_name, i.group_ranks, i.seq
)

SELECT
    i.rank,
    i.group_name,
    i.group_ranks,
    i.type,
    count(*) AS op_count,
    count(*) FILTER (WHERE i.is_matched) AS matched_count,
    count(*) FILTER (WHERE i.is_matched AND i.last_arrival_rank = i.rank AND i.participants > 1) AS last_count,
    count(*) FILTER (WHERE i.last_arrival_rank = i.rank AND l.is_clear) AS clear_last_count,
    coalesce(sum(i.last_arrival_ns - i.start_ns) FILTER (WHERE i.is_matched), 0)::BIGINT AS wait_ns,
    coalesce(sum(i.jitter_wait_ns) FILTER (WHERE i.is_matched), 0)::BIGINT AS jitter_wait_ns,
    quantile_disc(i.transfer_ns, 0.5) FILTER (WHERE i.is_matched) AS median_transfer_ns
FROM v1.collective_instance AS i
INNER JOIN v1.rank_clock AS c ON i.rank = c.rank
LEFT JOIN latest AS l
    ON
        i.group_name = l.group_name
        AND i.group_ranks IS NOT DISTINCT FROM l.group_ranks
        AND i.seq = l.seq
GROUP BY i.rank, i.group_name, i.group_ranks, i.type;
