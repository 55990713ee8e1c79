-- view:       v1.collective_match
-- purpose:    Collective operations of all ranks put together: same group, same number, same kind of message.
-- grain:      rank, op_id
-- depends-on: v1.collective_op, v1.step_window, v1.declared_part
-- materialise: run
-- since:      1
-- columns:
--   rank           BIGINT   -  Global rank.
--   op_id          BIGINT   -  Device op.
--   step_id        BIGINT   -  Step; NULL outside of steps.
--   group_name     VARCHAR  -  Process group; one that the source does not name is one of each declared part, for ranks of several stages share few.
--   group_ranks    VARCHAR  -  Its ranks, as the source lists them: groups of other ranks may share the name.
--   seq            BIGINT   -  Number in the group: the source's own, or counted over the steps; NULL for send and recv.
--   type           VARCHAR  -  Kind of operation.
--   group_size     BIGINT   -  Ranks that take part: as the source says, else all ranks of the run that communicate.
--   participants   BIGINT   -  Captured ranks that have this instance.
--   is_matched     BOOLEAN  -  All agree on kind and message, nobody is missing or there twice; if counted, all ran as many in the step. A rank alone in its declared part has no match.
--   unmatched      VARCHAR  -  Why it is not: point to point; outside of steps without a number; alone in its declared part; in no declared part, where others are; ranks not captured; lacking on a captured rank (it began later, ended earlier, or lost it); twice on a rank; other messages; other counts in the step. NULL where it is.
--   start_ns       BIGINT   ns Start on the rank's own clock.
--   end_ns         BIGINT   ns End on the rank's own clock.
CREATE OR REPLACE VIEW v1.collective_match AS
WITH op AS (
    SELECT
        o.* REPLACE (
            CASE
                WHEN o.group_name = 'unknown' AND p.part IS NOT NULL THEN 'unknown in ' || p.part ELSE o.group_name
            END AS group_name
        ),
        o.group_name = 'unknown' AND p.part IS NOT NULL AS is_parted,
        o.group_name = 'unknown' AND p.part IS NULL AND s.is_any AS is_left_out
    FROM v1.collective_op AS o
    LEFT JOIN v1.declared_part AS p ON o.rank = p.rank
    CROSS JOIN (SELECT count(part) > 0 AS is_any FROM v1.declared_part) AS s
),

has_seq AS (
    SELECT
        group_name,
        bool_and(seq IS NOT NULL) AS is_sequenced,
        count(DISTINCT rank) AS ranks
    FROM op
    GROUP BY group_name
),

run_size AS (
    SELECT count(DISTINCT rank) AS ranks
    FROM op
),

-- Captures may begin at different steps: where all labels number them, their numbers tell which belong together.
labelled AS (
    SELECT
        rank,
        step_id,
        CASE
            WHEN source IN ('profiler_step', 'nvtx_step', 'gapscope_step')
                THEN try_cast(regexp_extract(label, '\d+$') AS BIGINT)
        END AS number
    FROM v1.step_window
    WHERE projection = 'host'
),

numbering AS (
    SELECT count(*) = count(number) AND count(*) = count(DISTINCT row(rank, number)) AS is_complete
    FROM labelled
),

step_number AS (
    SELECT
        l.rank,
        l.step_id,
        l.number
    FROM labelled AS l
    CROSS JOIN numbering AS n
    WHERE n.is_complete
),

-- Without sequence numbers captures may begin at different instances: steps are the common anchor.
numbered AS (
    SELECT
        o.*,
        coalesce(o.group_size, CASE WHEN o.is_parted THEN h.ranks ELSE r.ranks END) AS expected_size,
        coalesce(s.number, o.step_id) AS step_place,
        h.is_sequenced,
        CASE
            -- Only a pair takes part, under numbers of its own.
            WHEN o.type IN ('send', 'recv') THEN NULL
            WHEN h.is_sequenced THEN o.seq
            WHEN o.step_id IS NOT NULL
                THEN dense_rank() OVER (
                    PARTITION BY o.group_name ORDER BY coalesce(s.number, o.step_id) NULLS LAST, o.ordinal
                ) - 1
        END AS instance_seq
    FROM op AS o
    INNER JOIN has_seq AS h ON o.group_name = h.group_name
    LEFT JOIN step_number AS s ON o.rank = s.rank AND o.step_id = s.step_id
    CROSS JOIN run_size AS r
),

-- A kernel that one rank's capture lost shifts all places behind it in the step.
counted AS (
    SELECT
        *,
        count(instance_seq) OVER (PARTITION BY rank, group_name, group_ranks, step_place) AS in_step
    FROM numbered
),

agreed AS (
    SELECT
        *,
        is_sequenced
        OR min(in_step) OVER in_place = max(in_step) OVER in_place AS is_in_place,
        count(DISTINCT rank) OVER (PARTITION BY group_name, group_ranks) AS captured,
        count(DISTINCT rank) OVER instance AS participants,
        count(*) OVER instance AS op_count,
        min(type) OVER instance = max(type) OVER instance
        AND coalesce(min(elements_in) OVER instance = max(elements_in) OVER instance, TRUE)
        AND coalesce(min(dtype) OVER instance = max(dtype) OVER instance, TRUE) AS is_same_message
    FROM counted
    WINDOW
        instance AS (PARTITION BY group_name, group_ranks, instance_seq),
        in_place AS (PARTITION BY group_name, group_ranks, step_place)
),

judged AS (
    SELECT
        *,
        CASE
            WHEN type IN ('send', 'recv') THEN 'point to point'
            WHEN instance_seq IS NULL THEN 'outside of steps without a number'
            WHEN is_parted AND participants = 1 THEN 'alone in its declared part'
            WHEN is_left_out AND captured < expected_size THEN 'in no declared part'
            WHEN captured < expected_size THEN 'ranks not captured'
            WHEN participants < expected_size THEN 'lacking on a captured rank'
            WHEN participants > expected_size OR op_count <> participants THEN 'twice on a rank'
            WHEN is_same_message IS NOT TRUE THEN 'other messages'
            WHEN is_in_place IS NOT TRUE THEN 'other counts in the step'
        END AS unmatched
    FROM agreed
)

SELECT
    rank,
    op_id,
    step_id,
    group_name,
    group_ranks,
    instance_seq AS seq,
    type,
    expected_size AS group_size,
    CASE WHEN instance_seq IS NULL THEN 1 ELSE participants END AS participants,
    unmatched IS NULL AS is_matched,
    unmatched,
    start_ns,
    end_ns
FROM judged;
