-- view:       pair.charge_delta
-- purpose:    What is charged to each node, range, kernel class and kernel of the shown rank a unit of work, in A and in B.
-- grain:      level, label, op_class
-- depends-on: pair.charge, pair.counted, pair.shown
-- materialise: no
-- since:      1
-- columns:
--   level      VARCHAR -  node, range, class or kernel; each sums to the difference of the step.
--   label         VARCHAR -  The node, ...; NULL for time that belongs to none.
--   op_class      VARCHAR -  Class of the kernel; NULL in other groupings.
--   a_mean        DOUBLE  ns Mean in A; NULL where A never has it.
--   b_mean        DOUBLE  ns Mean in B; NULL where B never has it.
--   delta         DOUBLE  ns B less A; what a side never has counts as 0.
--   compute_delta DOUBLE  ns Of this: it computes.
--   wait_delta    DOUBLE  ns Of this: nothing computes until it does.
CREATE OR REPLACE VIEW pair.charge_delta AS
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
        c.side,
        c.level,
        c.label,
        c.op_class,
        sum(c.compute_ns) / any_value(u.units) AS compute,
        sum(c.wait_ns) / any_value(u.units) AS waiting
    FROM pair.charge AS c
    INNER JOIN unit AS u ON c.side = u.side
    GROUP BY c.side, c.level, c.label, c.op_class
)

SELECT
    coalesce(a.level, b.level) AS level,
    coalesce(a.label, b.label) AS label,
    coalesce(a.op_class, b.op_class) AS op_class,
    a.compute + a.waiting AS a_mean,
    b.compute + b.waiting AS b_mean,
    coalesce(b.compute + b.waiting, 0) - coalesce(a.compute + a.waiting, 0) AS delta,
    coalesce(b.compute, 0) - coalesce(a.compute, 0) AS compute_delta,
    coalesce(b.waiting, 0) - coalesce(a.waiting, 0) AS wait_delta
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
    ON
        a.level = b.level
        AND a.label IS NOT DISTINCT FROM b.label
        AND a.op_class IS NOT DISTINCT FROM b.op_class;
