-- view:       pair.traffic
-- purpose:    Collectives of each type a unit of work, in A and in B.
-- grain:      rank, type
-- depends-on: pair.collective, pair.counted
-- materialise: no
-- since:      1
-- columns:
--   rank       BIGINT  -  Global rank.
--   type       VARCHAR -  Kind of operation.
--   a_ops      DOUBLE  -  Communication kernels a unit of work in A; 0 without any.
--   b_ops      DOUBLE  -  The same in B.
--   a_bytes    DOUBLE  B  Bytes a unit of work in A; NULL where not known.
--   b_bytes    DOUBLE  B  The same in B.
--   is_same    BOOLEAN -  Counts are within 1 %, and bytes where both are known.
CREATE OR REPLACE VIEW pair.traffic AS
WITH unit AS (
    SELECT
        side,
        rank,
        sum(units) AS units
    FROM pair.counted
    GROUP BY side, rank
),

of_side AS (
    SELECT
        c.side,
        c.rank,
        c.type,
        c.op_count / u.units AS ops,
        c.bytes / u.units AS bytes
    FROM pair.collective AS c
    INNER JOIN unit AS u ON c.side = u.side AND c.rank = u.rank
),

paired AS (
    SELECT
        coalesce(a.rank, b.rank) AS rank,
        coalesce(a.type, b.type) AS type,
        coalesce(a.ops, 0) AS a_ops,
        coalesce(b.ops, 0) AS b_ops,
        a.bytes AS a_bytes,
        b.bytes AS b_bytes
    FROM (
        SELECT *
        FROM of_side
        WHERE side = 'A'
    ) AS a
    FULL JOIN (
        SELECT *
        FROM of_side
        WHERE side = 'B'
    ) AS b ON a.rank = b.rank AND a.type = b.type
)

SELECT
    rank,
    type,
    a_ops,
    b_ops,
    a_bytes,
    b_bytes,
    least(a_ops, b_ops) >= 0.99 * greatest(a_ops, b_ops)
    AND coalesce(least(a_bytes, b_bytes) >= 0.99 * greatest(a_bytes, b_bytes), TRUE) AS is_same
FROM paired;
