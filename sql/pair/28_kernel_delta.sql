-- view:       pair.kernel_delta
-- purpose:    Launches and work volume of each device op of the shown rank a unit of work, in A and in B; volume counts overlap twice.
-- grain:      name, time_class, op_class
-- depends-on: pair.kernel, pair.counted, pair.shown
-- materialise: no
-- since:      1
-- columns:
--   name         VARCHAR -  Kernel or copy.
--   time_class   VARCHAR -  Its time class.
--   op_class     VARCHAR -  Its finer class.
--   a_launches   DOUBLE  -  Launches a unit of work in A; NULL where A never has it.
--   b_launches   DOUBLE  -  The same in B.
--   a_volume     DOUBLE  ns Work volume a unit of work in A.
--   b_volume     DOUBLE  ns The same in B.
--   volume_delta DOUBLE  ns B less A; what a side never has counts as 0.
CREATE OR REPLACE VIEW pair.kernel_delta AS
WITH unit AS (
    SELECT
        c.side,
        sum(c.units) AS units
    FROM pair.counted AS c
    INNER JOIN pair.shown AS s ON c.rank = s.rank
    GROUP BY c.side
),

of_side AS (
    SELECT
        k.side,
        k.name,
        k.time_class,
        k.op_class,
        sum(k.op_count) / any_value(u.units) AS launches,
        sum(k.volume_ns) / any_value(u.units) AS volume
    FROM pair.kernel AS k
    INNER JOIN pair.shown AS s ON k.rank = s.rank
    INNER JOIN unit AS u ON k.side = u.side
    GROUP BY k.side, k.name, k.time_class, k.op_class
)

SELECT
    coalesce(a.name, b.name) AS name,
    coalesce(a.time_class, b.time_class) AS time_class,
    coalesce(a.op_class, b.op_class) AS op_class,
    a.launches AS a_launches,
    b.launches AS b_launches,
    a.volume AS a_volume,
    b.volume AS b_volume,
    coalesce(b.volume, 0) - coalesce(a.volume, 0) AS volume_delta
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
    ON a.name = b.name AND a.time_class = b.time_class AND a.op_class = b.op_class;
