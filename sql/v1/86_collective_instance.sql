-- view:       v1.collective_instance
-- purpose:    Collectives across ranks on one clock: who came last, what the transfer took, who waited how long.
-- grain:      rank, op_id
-- depends-on: v1.collective_match, v1.step_clock
-- materialise: no
-- since:      1
-- columns:
--   group_name        VARCHAR  -  Process group.
--   group_ranks       VARCHAR  -  Its ranks, as the source lists them: groups of other ranks may share the name.
--   seq               BIGINT   -  Number in the group; NULL where it has none.
--   type              VARCHAR  -  Kind of operation.
--   rank              BIGINT   -  Global rank.
--   step_id           BIGINT   -  Step; NULL outside of steps.
--   op_id             BIGINT   -  Device op on that rank.
--   start_ns          BIGINT   ns Start, aligned; NULL while the rank's clock is unknown, or jumps in the step.
--   end_ns            BIGINT   ns End, aligned.
--   last_arrival_ns   BIGINT   ns Latest aligned start of all ranks; NULL unless all are there, on known clocks.
--   last_arrival_rank BIGINT   -  Rank of that start.
--   transfer_ns       BIGINT   ns Latest aligned end less last arrival.
--   transfer_proxy_ns BIGINT   ns Shortest participant.
--   jitter_wait_ns    BIGINT   ns Own duration less transfer_proxy_ns.
--   participants      BIGINT   -  Captured ranks that have this instance.
--   group_size        BIGINT   -  Ranks that take part.
--   is_matched        BOOLEAN  -  All ranks are there and agree on the message.
CREATE OR REPLACE VIEW v1.collective_instance AS
WITH aligned AS (
    SELECT
        m.*,
        m.start_ns + c.offset_ns AS aligned_start_ns,
        m.end_ns + c.offset_ns AS aligned_end_ns,
        m.is_matched AND bool_and(c.offset_ns IS NOT NULL) OVER (
            PARTITION BY m.group_name, m.group_ranks, m.seq
        ) AS is_comparable
    FROM v1.collective_match AS m
    INNER JOIN v1.step_clock AS c ON m.rank = c.rank AND m.step_id IS NOT DISTINCT FROM c.step_id
)

SELECT
    group_name,
    group_ranks,
    seq,
    type,
    rank,
    step_id,
    op_id,
    aligned_start_ns AS start_ns,
    aligned_end_ns AS end_ns,
    CASE WHEN is_comparable THEN max(aligned_start_ns) OVER instance END AS last_arrival_ns,
    CASE WHEN is_comparable THEN arg_max(rank, aligned_start_ns) OVER instance END AS last_arrival_rank,
    CASE
        WHEN is_comparable THEN max(aligned_end_ns) OVER instance - max(aligned_start_ns) OVER instance
    END AS transfer_ns,
    CASE WHEN is_matched THEN min(end_ns - start_ns) OVER instance END AS transfer_proxy_ns,
    CASE WHEN is_matched THEN end_ns - start_ns - min(end_ns - start_ns) OVER instance END AS jitter_wait_ns,
    participants,
    group_size,
    is_matched
FROM aligned
WINDOW instance AS (PARTITION BY group_name, group_ranks, seq);
