-- view:       pair.step_delta
-- purpose:    The step of each rank and of the run in A and in B: medians, means, ranges.
-- grain:      subject
-- depends-on: pair.part
-- materialise: no
-- since:      1
-- columns:
--   subject      BIGINT  -  Global rank; NULL for the run, whose step is the longest over the compared ranks.
--   a_count      BIGINT  -  Windows of A.
--   b_count      BIGINT  -  Windows of B.
--   a_median     DOUBLE  ns Median a unit of work; of an even number the mean of the two in the middle.
--   b_median     DOUBLE  ns The same in B.
--   median_delta DOUBLE  ns b_median - a_median.
--   a_mean       DOUBLE  ns Mean a unit of work.
--   b_mean       DOUBLE  ns The same in B.
--   mean_delta   DOUBLE  ns b_mean - a_mean: what the parts of a ledger sum to.
--   a_min        DOUBLE  ns Shortest a unit of work.
--   a_max        DOUBLE  ns Longest.
--   b_min        DOUBLE  ns Shortest in B.
--   b_max        DOUBLE  ns Longest in B.
--   a_ranks      VARCHAR -  Ranks that the windows of A come from.
--   b_ranks      VARCHAR -  Ranks that the windows of B come from.
CREATE OR REPLACE VIEW pair.step_delta AS
WITH of_side AS (
    SELECT
        side,
        subject,
        count(*) AS windows,
        quantile_cont(step_ns / units, 0.5) AS median,
        sum(step_ns) / sum(units) AS mean,
        min(step_ns / units) AS shortest,
        max(step_ns / units) AS longest,
        string_agg(DISTINCT rank::VARCHAR, ', ' ORDER BY rank::VARCHAR) AS ranks
    FROM pair.part
    WHERE ledger = 'split' AND part = 'compute'
    GROUP BY side, subject
)

SELECT
    a.subject,
    a.windows AS a_count,
    b.windows AS b_count,
    a.median AS a_median,
    b.median AS b_median,
    b.median - a.median AS median_delta,
    a.mean AS a_mean,
    b.mean AS b_mean,
    b.mean - a.mean AS mean_delta,
    a.shortest AS a_min,
    a.longest AS a_max,
    b.shortest AS b_min,
    b.longest AS b_max,
    a.ranks AS a_ranks,
    b.ranks AS b_ranks
FROM of_side AS a
INNER JOIN of_side AS b ON a.subject IS NOT DISTINCT FROM b.subject AND b.side = 'B'
WHERE a.side = 'A';
