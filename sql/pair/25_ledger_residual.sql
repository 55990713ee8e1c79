-- view:       pair.ledger_residual
-- purpose:    What the parts of a ledger leave of the step a unit of work: 0 where they sum to it, from whole nanoseconds.
-- grain:      subject, ledger
-- depends-on: pair.part
-- materialise: no
-- since:      1
-- columns:
--   subject     BIGINT  -  Global rank; NULL for the run.
--   ledger      VARCHAR -  As in pair.part.
--   a_residual  DOUBLE  ns Step less parts in A; NULL where the ledger is not known.
--   b_residual  DOUBLE  ns The same in B.
--   residual    DOUBLE  ns b_residual - a_residual: what the ledger leaves of the difference of means.
--   median_residual DOUBLE ns The same of the difference of medians.
CREATE OR REPLACE VIEW pair.ledger_residual AS
WITH of_window AS (
    SELECT
        side,
        subject,
        ledger,
        step_number,
        any_value(units) AS units,
        bool_and(is_middle) AS is_middle,
        any_value(step_ns) AS step_ns,
        CASE WHEN count(part_ns) = count(*) THEN sum(part_ns) END AS parts_ns
    FROM pair.part
    GROUP BY side, subject, ledger, step_number
),

of_side AS (
    SELECT
        side,
        subject,
        ledger,
        CASE WHEN count(parts_ns) = count(*) THEN (sum(step_ns) - sum(parts_ns)) / sum(units) END AS residual,
        CASE
            WHEN count(parts_ns) = count(*) THEN avg((step_ns - parts_ns) / units) FILTER (WHERE is_middle)
        END AS median_residual
    FROM of_window
    GROUP BY side, subject, ledger
)

SELECT
    a.subject,
    a.ledger,
    a.residual AS a_residual,
    b.residual AS b_residual,
    b.residual - a.residual AS residual,
    b.median_residual - a.median_residual AS median_residual
FROM of_side AS a
INNER JOIN of_side AS b
    ON a.subject IS NOT DISTINCT FROM b.subject AND a.ledger = b.ledger AND b.side = 'B'
WHERE a.side = 'A';
