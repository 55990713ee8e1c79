-- view:       pair.restriction
-- purpose:    What the capture of a run forbids to say, check by check.
-- grain:      check_name
-- depends-on: v1.capture_quality
-- materialise: side
-- since:      1
-- columns:
--   check_name VARCHAR -  Stable name of the check.
--   detail     VARCHAR -  What was seen, on the lowest rank that has it.
--   forbids    VARCHAR -  What cannot be said because of it.
CREATE OR REPLACE VIEW pair.restriction AS
SELECT
    check_name,
    arg_min(detail, coalesce(rank, -1)) AS detail,
    arg_min(forbids, coalesce(rank, -1)) AS forbids
FROM v1.capture_quality
WHERE forbids IS NOT NULL
GROUP BY check_name;
