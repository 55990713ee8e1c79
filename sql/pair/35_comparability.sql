-- view:       pair.comparability
-- purpose:    What A and B have in common and what not, and what each difference means for the comparison.
-- grain:      area, item
-- depends-on: pair.statement, pair.scope, pair.workload
-- materialise: no
-- since:      1
-- columns:
--   area           VARCHAR -  topology, steps, workload, capture, environment, declared or quality.
--   item           VARCHAR -  What is compared.
--   a_value        VARCHAR -  What A has; NULL where it is not known.
--   b_value        VARCHAR -  What B has.
--   verdict        VARCHAR -  same; unknown; differs: said; limits: detail cannot be said; forbids: no comparison.
--   is_confounding BOOLEAN -  The difference may itself make the step longer or shorter, whatever the program does.
--   detail         VARCHAR -  What follows from it; NULL where nothing does.
CREATE OR REPLACE VIEW pair.comparability AS
SELECT
    area,
    item,
    a_value,
    b_value,
    verdict,
    is_confounding,
    detail
FROM pair.statement
UNION ALL
SELECT
    area,
    item,
    a_value,
    b_value,
    verdict,
    is_confounding,
    detail
FROM pair.scope
UNION ALL
SELECT
    area,
    item,
    a_value,
    b_value,
    verdict,
    is_confounding,
    detail
FROM pair.workload;
