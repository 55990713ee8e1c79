-- view:       v1.collective_op
-- purpose:    Every communication kernel with its group and its number there, so that ranks can be matched.
-- grain:      rank, op_id
-- depends-on: v1.device_op, v1.collective, v1.step_window, v1.name
-- materialise: rank
-- since:      1
-- columns:
--   rank           BIGINT   -  Global rank.
--   op_id          BIGINT   -  Device op.
--   step_id        BIGINT   -  Step whose host range holds the launch; NULL outside of steps.
--   group_name     VARCHAR  -  Process group; 'unknown' where the source names none.
--   group_ranks    VARCHAR  -  Its ranks, as the source lists them.
--   group_size     BIGINT   -  Ranks in the group.
--   seq            BIGINT   -  Sequence number in the group, when the source has it.
--   ordinal        BIGINT   -  Number within the group and step, in host issue order; send and recv have their own numbers.
--   type           VARCHAR  -  all_gather, reduce_scatter, all_reduce, broadcast, send_recv, ...
--   dtype          VARCHAR  -  Element type.
--   elements_in    BIGINT   -  Elements of the input message.
--   elements_out   BIGINT   -  Elements of the output message.
--   correlation_id BIGINT   -  Host issue order within the process.
--   start_ns       BIGINT   ns Start on the rank's own clock.
--   end_ns         BIGINT   ns End on the rank's own clock.
CREATE OR REPLACE VIEW v1.collective_op AS
WITH host_window AS (
    SELECT *
    FROM v1.step_window
    WHERE projection = 'host'
),

communication AS (
    SELECT
        o.rank,
        o.op_id,
        o.name_id,
        o.correlation_id,
        o.launch_tid,
        o.start_ns,
        o.end_ns,
        coalesce(o.launch_start_ns, o.start_ns) AS launch_start_ns
    FROM v1.device_op AS o
    WHERE o.time_class = 'communication'
),

-- A source without collective records still names the operation in the kernel.
named AS (
    SELECT
        n.rank,
        n.name_id,
        CASE
            WHEN regexp_matches(n.name, '(?i)all_?gather') THEN 'all_gather'
            WHEN regexp_matches(n.name, '(?i)reduce_?scatter') THEN 'reduce_scatter'
            WHEN regexp_matches(n.name, '(?i)all_?reduce') THEN 'all_reduce'
            WHEN regexp_matches(n.name, '(?i)broadcast') THEN 'broadcast'
            WHEN regexp_matches(n.name, '(?i)send_?recv') THEN 'send_recv'
            WHEN regexp_matches(n.name, '(?i)nccl.*reduce') THEN 'reduce'
            ELSE 'unknown'
        END AS type
    FROM v1.name AS n
),

-- A record of the host's call alone belongs to the kernel of its kind that was launched inside of it.
host_call AS (
    SELECT *
    FROM v1.collective
    WHERE op_id IS NULL AND end_ns > start_ns
),

launched AS (
    SELECT
        o.rank,
        o.op_id,
        c.collective_id
    FROM communication AS o
    INNER JOIN named AS n ON o.rank = n.rank AND o.name_id = n.name_id
    ASOF INNER JOIN host_call AS c
        ON o.rank = c.rank AND o.launch_tid = c.tid AND n.type = c.type AND o.launch_start_ns >= c.start_ns
    WHERE o.launch_start_ns < c.end_ns
),

linked AS (
    SELECT
        rank,
        op_id,
        collective_id
    FROM v1.collective
    WHERE op_id IS NOT NULL
    UNION ALL
    SELECT
        rank,
        op_id,
        collective_id
    FROM launched
),

-- A coalesced launch has several calls; the kernel is matched by the first.
called AS (
    SELECT
        l.rank,
        l.op_id,
        min_by(c.group_name, c.collective_id) AS group_name,
        min_by(c.group_ranks, c.collective_id) AS group_ranks,
        min_by(c.group_size, c.collective_id) AS group_size,
        min_by(c.seq, c.collective_id) AS seq,
        min_by(c.type, c.collective_id) AS type,
        min_by(c.dtype, c.collective_id) AS dtype,
        min_by(c.elements_in, c.collective_id) AS elements_in,
        min_by(c.elements_out, c.collective_id) AS elements_out
    FROM linked AS l
    INNER JOIN v1.collective AS c ON l.rank = c.rank AND l.collective_id = c.collective_id
    GROUP BY l.rank, l.op_id
)

SELECT
    o.rank,
    o.op_id,
    CASE WHEN o.launch_start_ns < w.end_ns THEN w.step_id END AS step_id,
    coalesce(c.group_name, 'unknown') AS group_name,
    c.group_ranks,
    c.group_size,
    c.seq,
    row_number() OVER (
        PARTITION BY
            o.rank,
            coalesce(c.group_name, 'unknown'),
            CASE WHEN o.launch_start_ns < w.end_ns THEN w.step_id END,
            coalesce(c.type, n.type) IN ('send', 'recv')
        ORDER BY o.correlation_id, o.start_ns, o.op_id
    ) - 1 AS ordinal,
    coalesce(c.type, n.type) AS type,
    c.dtype,
    c.elements_in,
    c.elements_out,
    o.correlation_id,
    o.start_ns,
    o.end_ns
FROM communication AS o
ASOF LEFT JOIN host_window AS w ON o.rank = w.rank AND o.launch_start_ns >= w.start_ns
LEFT JOIN called AS c ON o.rank = c.rank AND o.op_id = c.op_id
LEFT JOIN named AS n ON o.rank = n.rank AND o.name_id = n.name_id;
