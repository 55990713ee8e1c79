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
--   clear_last_count   BIGINT  -  Of these, by more than the clock residual after the first rank.
--   wait_ns            BIGINT  ns Work volume: from its own start to the last arrival.
--   jitter_wait_ns     BIGINT  ns Work volume: own durations less those of the shortest participants.
--   median_transfer_ns BIGINT  ns Median of last aligned end less last arrival; NULL without a match.
CREATE OR REPLACE VIEW v1.arrival_summary AS
WITH instance AS (
    SELECT
        i.*,
        i.last_arrival_ns - min(i.start_ns) OVER (
            PARTITION BY i.group_name, i.group_ranks, i.seq
        ) AS spread_ns
    FROM v1.collective_instance AS i
)

SELECT
    i.rank,
    i.group_name,
    i.group_ranks,
    i.type,
    count(*) AS op_count,
    count(*) FILTER (WHERE i.is_matched) AS matched_count,
    count(*) FILTER (WHERE i.is_matched AND i.last_arrival_rank = i.rank AND i.participants > 1) AS last_count,
    count(*) FILTER (
        WHERE i.is_matched AND i.last_arrival_rank = i.rank AND i.participants > 1 AND i.spread_ns > c.residual_ns
    ) AS clear_last_count,
    coalesce(sum(i.last_arrival_ns - i.start_ns) FILTER (WHERE i.is_matched), 0)::BIGINT AS wait_ns,
    coalesce(sum(i.jitter_wait_ns) FILTER (WHERE i.is_matched), 0)::BIGINT AS jitter_wait_ns,
    quantile_disc(i.transfer_ns, 0.5) FILTER (WHERE i.is_matched) AS median_transfer_ns
FROM instance AS i
INNER JOIN v1.rank_clock AS c ON i.rank = c.rank
GROUP BY i.rank, i.group_name, i.group_ranks, i.type;
