-- view:       pair.charge_residual
-- purpose:    What nodes, ranges, kernel classes and kernels leave of the steps of the shown rank, from whole nanoseconds: 0 where every instant is charged once.
-- grain:      level
-- depends-on: pair.charge, pair.counted, pair.shown
-- materialise: no
-- since:      1
-- columns:
--   level      VARCHAR -  node, range, class or kernel.
--   a_residual DOUBLE  ns Step less what is charged a unit of work in A.
--   b_residual DOUBLE  ns The same in B.
--   residual   DOUBLE  ns b_residual - a_residual: what of the difference nothing is charged with.
CREATE OR REPLACE VIEW pair.charge_residual AS
WITH whole AS (
    SELECT
        c.side,
        sum(c.step_ns) AS step_ns,
        sum(c.units) AS units
    FROM pair.counted AS c
    INNER JOIN pair.shown AS s ON c.rank = s.rank
    GROUP BY c.side
),

charged AS (
    SELECT
        side,
        level,
        sum(compute_ns) + sum(wait_ns) AS charged_ns
    FROM pair.charge
    GROUP BY side, level
),

of_side AS (
    SELECT
        w.side,
        c.level,
        (w.step_ns - c.charged_ns) / w.units AS residual
    FROM whole AS w
    INNER JOIN charged AS c ON w.side = c.side
)

SELECT
    a.level,
    a.residual AS a_residual,
    b.residual AS b_residual,
    b.residual - a.residual AS residual
FROM of_side AS a
INNER JOIN of_side AS b ON a.level = b.level AND b.side = 'B'
WHERE a.side = 'A';
