-- view:       pair.part_delta
-- purpose:    Each part of a ledger a unit of work in A and in B: in the mean, and in the median window. Both add up to the step.
-- grain:      subject, ledger, part
-- depends-on: pair.part
-- materialise: no
-- since:      1
-- columns:
--   subject     BIGINT  -  Global rank; NULL for the run.
--   ledger      VARCHAR -  As in pair.part.
--   part        VARCHAR -  As in pair.part.
--   position    INTEGER -  Its place in the ledger.
--   a_mean      DOUBLE  ns Mean a unit of work in A; NULL unless known in every window.
--   b_mean      DOUBLE  ns The same in B.
--   delta       DOUBLE  ns b_mean - a_mean: the parts sum to mean_delta of pair.step_delta.
--   a_median    DOUBLE  ns In the median window of A; of an even number mean of the two in the middle.
--   b_median    DOUBLE  ns The same in B.
--   median_delta DOUBLE ns b_median - a_median: the parts sum to median_delta of pair.step_delta.
CREATE OR REPLACE VIEW pair.part_delta AS
WITH summed AS (
    SELECT
        side,
        subject,
        ledger,
        part,
        position,
        CASE WHEN count(part_ns) = count(*) THEN sum(part_ns) / sum(units) END AS mean,
        CASE WHEN count(part_ns) = count(*) THEN avg(part_ns / units) FILTER (WHERE is_middle) END AS median
    FROM pair.part
    GROUP BY side, subject, ledger, part, position
)

SELECT
    a.subject,
    a.ledger,
    a.part,
    a.position,
    a.mean AS a_mean,
    b.mean AS b_mean,
    b.mean - a.mean AS delta,
    a.median AS a_median,
    b.median AS b_median,
    b.median - a.median AS median_delta
FROM summed AS a
INNER JOIN summed AS b
    ON
        a.subject IS NOT DISTINCT FROM b.subject
        AND a.ledger = b.ledger
        AND a.part = b.part
        AND b.side = 'B'
WHERE a.side = 'A';
