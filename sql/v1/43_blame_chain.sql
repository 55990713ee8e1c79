-- view:       v1.blame_chain
-- purpose:    Blocking time followed backwards: who really held the gap, not only who came last.
-- grain:      rank, gap_id, start_ns
-- depends-on: v1.compute_gap, v1.device_op, v1.binding_producer
-- materialise: rank
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank.
--   gap_id      BIGINT   -  Gap whose blocking part is explained.
--   start_ns    BIGINT   ns Start of the piece.
--   end_ns      BIGINT   ns End of the piece.
--   dur_ns      BIGINT   ns end_ns - start_ns.
--   depth       INTEGER  -  0: the op that the gap waited for; n: n producers further back.
--   op_id       BIGINT   -  Op that ran, was not issued yet, or stalled.
--   reason      VARCHAR  -  running, launch_starved or stalled: what op_id was doing.
--   time_class  VARCHAR  -  Class of op_id.
-- audit chain_equals_blocking:
--   SELECT g.rank, g.gap_id FROM v1.compute_gap AS g LEFT JOIN v1.blame_chain AS c
--   ON g.rank = c.rank AND g.gap_id = c.gap_id
--   GROUP BY g.rank, g.gap_id, g.blocked_until_ns, g.starved_until_ns
--   HAVING coalesce(sum(c.dur_ns), 0) <> g.blocked_until_ns - g.starved_until_ns
CREATE OR REPLACE VIEW v1.blame_chain AS
-- Every round of the recursion reads this again.
WITH RECURSIVE op AS MATERIALIZED (
    SELECT
        o.rank,
        o.op_id,
        o.time_class,
        o.issued_ns,
        o.start_ns,
        p.producer_op_id,
        p.producer_end_ns
    FROM v1.device_op AS o
    LEFT JOIN v1.binding_producer AS p ON o.rank = p.rank AND o.op_id = p.op_id
),

-- [from_ns, until_ns) is still to be explained, and op_id ran at its end.
chain AS (
    SELECT
        g.rank,
        g.gap_id,
        0 AS depth,
        g.producer_op_id AS op_id,
        g.starved_until_ns AS from_ns,
        g.blocked_until_ns AS until_ns
    FROM v1.compute_gap AS g
    WHERE g.producer_op_id IS NOT NULL
    UNION ALL
    SELECT
        c.rank,
        c.gap_id,
        c.depth + 1 AS depth,
        o.producer_op_id AS op_id,
        greatest(c.from_ns, coalesce(o.issued_ns, c.from_ns)) AS from_ns,
        least(o.producer_end_ns, o.start_ns, c.until_ns) AS until_ns
    FROM chain AS c
    INNER JOIN op AS o ON c.rank = o.rank AND c.op_id = o.op_id
    WHERE
        o.producer_op_id IS NOT NULL
        AND least(o.producer_end_ns, o.start_ns, c.until_ns)
        > greatest(c.from_ns, coalesce(o.issued_ns, c.from_ns))
        AND c.depth < 1000
),

-- Where each link of the chain ran, waited to be issued, or stalled.
link AS (
    SELECT
        c.rank,
        c.gap_id,
        c.depth,
        c.op_id,
        o.time_class,
        c.from_ns,
        c.until_ns,
        -- A recorded producer may even have started after the gap: it then explains no more than the gap.
        least(greatest(o.start_ns, c.from_ns), c.until_ns) AS running_ns,
        least(greatest(coalesce(o.issued_ns, c.from_ns), c.from_ns), greatest(o.start_ns, c.from_ns), c.until_ns)
            AS issued_ns,
        n.until_ns AS blocked_until_ns
    FROM chain AS c
    INNER JOIN op AS o ON c.rank = o.rank AND c.op_id = o.op_id
    LEFT JOIN chain AS n ON c.rank = n.rank AND c.gap_id = n.gap_id AND c.depth + 1 = n.depth
),

piece AS (
    SELECT
        rank,
        gap_id,
        depth,
        op_id,
        time_class,
        'running' AS reason,
        running_ns AS start_ns,
        until_ns AS end_ns
    FROM link
    UNION ALL
    SELECT
        rank,
        gap_id,
        depth,
        op_id,
        time_class,
        'launch_starved' AS reason,
        from_ns AS start_ns,
        issued_ns AS end_ns
    FROM link
    UNION ALL
    SELECT
        rank,
        gap_id,
        depth,
        op_id,
        time_class,
        'stalled' AS reason,
        coalesce(blocked_until_ns, issued_ns) AS start_ns,
        running_ns AS end_ns
    FROM link
)

SELECT
    rank,
    gap_id,
    start_ns,
    end_ns,
    end_ns - start_ns AS dur_ns,
    depth,
    op_id,
    reason,
    time_class
FROM piece
WHERE end_ns > start_ns;
