-- view:       pair.overlap
-- purpose:    How much of the work volume is in kernels that both runs launch equally often a unit of work, and on equal sizes.
-- grain:      rank
-- depends-on: pair.kernel, pair.counted, pair.fact
-- materialise: no
-- since:      1
-- columns:
--   rank         BIGINT  -  Global rank.
--   is_by_name   BOOLEAN -  Kernels are told by name; else, where tools spell names differently, by class.
--   same_share   DOUBLE  -  Share of the volume, communication left out, with launches within 1 %.
--   sized_share  DOUBLE  -  Of that, share with as many thread blocks within 1 %; NULL where no grids are known.
--   example      VARCHAR -  Of the others, the one with the most volume.
--   a_launches   DOUBLE  -  Launches of the example a unit of work in A; 0 where A has none.
--   b_launches   DOUBLE  -  The same in B.
--   sized_example VARCHAR -  Of those on other sizes, the one with the most volume.
--   a_blocks     DOUBLE  -  Thread blocks of it a unit of work in A.
--   b_blocks     DOUBLE  -  The same in B.
CREATE OR REPLACE VIEW pair.overlap AS
WITH unit AS (
    SELECT
        side,
        rank,
        sum(units) AS units
    FROM pair.counted
    GROUP BY side, rank
),

-- Tools demangle C++ names in their own ways.
naming AS (
    SELECT count(DISTINCT value) < 2 AS is_by_name
    FROM pair.fact
    WHERE area = 'capture' AND item = 'source'
),

of_side AS (
    SELECT
        k.side,
        k.rank,
        n.is_by_name,
        CASE WHEN n.is_by_name THEN k.name ELSE k.op_class END AS kernel,
        sum(k.op_count) / any_value(u.units) AS launches,
        CASE WHEN count(k.blocks) = count(*) THEN sum(k.blocks) / any_value(u.units) END AS blocks,
        sum(k.volume_ns) / any_value(u.units) AS volume
    FROM pair.kernel AS k
    INNER JOIN unit AS u ON k.side = u.side AND k.rank = u.rank
    CROSS JOIN naming AS n
    WHERE k.time_class <> 'communication'
    GROUP BY k.side, k.rank, n.is_by_name, kernel
),

paired AS (
    SELECT
        coalesce(a.rank, b.rank) AS rank,
        coalesce(a.is_by_name, b.is_by_name) AS is_by_name,
        coalesce(a.kernel, b.kernel) AS kernel,
        coalesce(a.launches, 0) AS a_launches,
        coalesce(b.launches, 0) AS b_launches,
        a.blocks AS a_blocks,
        b.blocks AS b_blocks,
        coalesce(a.volume, 0) + coalesce(b.volume, 0) AS volume
    FROM (
        SELECT *
        FROM of_side
        WHERE side = 'A'
    ) AS a
    FULL JOIN (
        SELECT *
        FROM of_side
        WHERE side = 'B'
    ) AS b
        ON a.rank = b.rank AND a.kernel = b.kernel
),

judged AS (
    SELECT
        *,
        least(a_launches, b_launches) >= 0.99 * greatest(a_launches, b_launches) AS is_same,
        least(a_blocks, b_blocks) >= 0.99 * greatest(a_blocks, b_blocks) AS is_sized
    FROM paired
)

SELECT
    rank,
    bool_and(is_by_name) AS is_by_name,
    coalesce(sum(volume) FILTER (WHERE is_same), 0) / sum(volume) AS same_share,
    coalesce(sum(volume) FILTER (WHERE is_same AND is_sized), 0)
    / nullif(sum(volume) FILTER (WHERE is_same AND is_sized IS NOT NULL), 0) AS sized_share,
    arg_max(kernel, volume) FILTER (WHERE NOT is_same) AS example,
    arg_max(a_launches, volume) FILTER (WHERE NOT is_same) AS a_launches,
    arg_max(b_launches, volume) FILTER (WHERE NOT is_same) AS b_launches,
    arg_max(kernel, volume) FILTER (WHERE is_same AND NOT is_sized) AS sized_example,
    arg_max(a_blocks, volume) FILTER (WHERE is_same AND NOT is_sized) AS a_blocks,
    arg_max(b_blocks, volume) FILTER (WHERE is_same AND NOT is_sized) AS b_blocks
FROM judged
GROUP BY rank
HAVING sum(volume) > 0;
