-- view:       pair.anchor
-- purpose:    Without steps: the kernel of a rank whose launches count the work of both captures.
-- grain:      rank
-- depends-on: pair.kernel, pair.shown
-- materialise: no
-- since:      1
-- columns:
--   rank      BIGINT  -  Global rank.
--   name      VARCHAR -  Of the kernels whose counts agree, the one with the most work volume.
--   a_count   BIGINT  -  Its launches in A.
--   b_count   BIGINT  -  Its launches in B.
--   agreement DOUBLE  -  Share of the work volume in kernels whose counts changed by the same factor, within 5 %.
CREATE OR REPLACE VIEW pair.anchor AS
WITH recurring AS (
    SELECT
        a.rank,
        a.name,
        a.op_count AS a_count,
        b.op_count AS b_count,
        b.op_count / a.op_count AS ratio,
        a.volume_ns + b.volume_ns AS volume_ns
    FROM pair.kernel AS a
    INNER JOIN pair.kernel AS b
        ON a.rank = b.rank AND a.name = b.name AND a.time_class = b.time_class AND a.op_class = b.op_class
    CROSS JOIN pair.shown AS s
    WHERE
        a.side = 'A' AND b.side = 'B' AND s.projection = 'capture'
        AND a.time_class IN ('compute', 'graph')
        AND a.op_count >= 10 AND b.op_count >= 10
),

ranked AS (
    SELECT
        *,
        sum(volume_ns) OVER (
            PARTITION BY rank ORDER BY ratio, name ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS up_to_ns,
        sum(volume_ns) OVER (PARTITION BY rank) AS total_ns
    FROM recurring
),

middle AS (
    SELECT
        rank,
        min(ratio) AS ratio
    FROM ranked
    WHERE up_to_ns >= 0.5 * total_ns
    GROUP BY rank
)

SELECT
    r.rank,
    arg_max(r.name, r.volume_ns) AS name,
    arg_max(r.a_count, r.volume_ns) AS a_count,
    arg_max(r.b_count, r.volume_ns) AS b_count,
    sum(r.volume_ns)::DOUBLE / any_value(r.total_ns) AS agreement
FROM ranked AS r
INNER JOIN middle AS m ON r.rank = m.rank
WHERE r.ratio BETWEEN m.ratio / 1.05 AND m.ratio * 1.05
GROUP BY r.rank;
