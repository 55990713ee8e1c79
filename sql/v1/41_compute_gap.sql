-- view:       v1.compute_gap
-- purpose:    Every maximal interval of a rank without a compute op, with the op that ends it and why it did not start.
-- grain:      rank, gap_id
-- depends-on: v1.device_op, v1.binding_producer, v1.step_window
-- materialise: rank
-- since:      1
-- columns:
--   rank              BIGINT   -  Global rank.
--   gap_id            BIGINT   -  Number of the gap in time order, from 0.
--   start_ns          BIGINT   ns End of all compute before it; the first gap starts with the capture.
--   end_ns            BIGINT   ns Start of the op that ends it; the last gap ends with the capture.
--   op_id             BIGINT   -  Compute op that ends it; NULL for the last gap.
--   issued_ns         BIGINT   ns When that op was issued; NULL when its launch is not captured.
--   starved_until_ns  BIGINT   ns Launch-starved up to here.
--   blocked_until_ns  BIGINT   ns Blocking from there to here; dependency-stalled from here to end_ns.
--   producer_op_id    BIGINT   -  Op credited with the blocking part; NULL when there is none.
--   producer_class    VARCHAR  -  Its time class.
--   unresolved_waits  INTEGER  -  Stream waits before the op whose producer is unknown.
CREATE OR REPLACE VIEW v1.compute_gap AS
WITH extent AS (
    SELECT
        rank,
        min(start_ns) AS first_ns,
        max(end_ns) AS last_ns
    FROM v1.step_window
    GROUP BY rank
),

compute AS (
    SELECT
        o.rank,
        o.op_id,
        o.start_ns,
        o.issued_ns,
        max(o.end_ns) OVER (
            PARTITION BY o.rank
            ORDER BY o.start_ns, o.op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS compute_until_ns
    FROM v1.device_op AS o
    WHERE o.time_class IN ('compute', 'graph')
),

gap AS (
    SELECT
        c.rank,
        coalesce(c.compute_until_ns, e.first_ns) AS start_ns,
        c.start_ns AS end_ns,
        c.op_id,
        c.issued_ns
    FROM compute AS c
    INNER JOIN extent AS e ON c.rank = e.rank
    WHERE c.start_ns > coalesce(c.compute_until_ns, e.first_ns)
),

last_gap AS (
    SELECT
        e.rank,
        coalesce(max(o.end_ns), e.first_ns) AS start_ns,
        e.last_ns AS end_ns
    FROM extent AS e
    LEFT JOIN v1.device_op AS o ON e.rank = o.rank AND o.time_class IN ('compute', 'graph')
    GROUP BY e.rank, e.first_ns, e.last_ns
    HAVING e.last_ns > coalesce(max(o.end_ns), e.first_ns)
),

explained AS (
    SELECT
        g.rank,
        g.start_ns,
        g.end_ns,
        g.op_id,
        g.issued_ns,
        least(greatest(coalesce(g.issued_ns, g.start_ns), g.start_ns), g.end_ns) AS starved_until_ns,
        p.producer_op_id,
        p.producer_end_ns,
        p.unresolved_waits
    FROM gap AS g
    LEFT JOIN v1.binding_producer AS p ON g.rank = p.rank AND g.op_id = p.op_id
    UNION ALL
    SELECT
        rank,
        start_ns,
        end_ns,
        NULL AS op_id,
        NULL AS issued_ns,
        start_ns AS starved_until_ns,
        NULL AS producer_op_id,
        NULL AS producer_end_ns,
        NULL AS unresolved_waits
    FROM last_gap
),

split AS (
    SELECT
        *,
        greatest(
            starved_until_ns, least(coalesce(producer_end_ns, starved_until_ns), end_ns)
        ) AS blocked_until_ns
    FROM explained
)

SELECT
    s.rank,
    (row_number() OVER (PARTITION BY s.rank ORDER BY s.start_ns) - 1)::BIGINT AS gap_id,
    s.start_ns,
    s.end_ns,
    s.op_id,
    s.issued_ns,
    s.starved_until_ns,
    s.blocked_until_ns,
    CASE WHEN s.blocked_until_ns > s.starved_until_ns THEN s.producer_op_id END AS producer_op_id,
    CASE WHEN s.blocked_until_ns > s.starved_until_ns THEN o.time_class END AS producer_class,
    s.unresolved_waits
FROM split AS s
LEFT JOIN v1.device_op AS o ON s.rank = o.rank AND s.producer_op_id = o.op_id;
