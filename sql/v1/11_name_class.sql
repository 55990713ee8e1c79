-- view:       v1.name_class
-- purpose:    Class of each distinct device-op name by the first matching rule.
-- grain:      rank, name_id
-- depends-on: v1.gpu_op, v1.name, v1.kernel_rule
-- materialise: rank
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank.
--   name_id     BIGINT   -  Name.
--   name        VARCHAR  -  Kernel name.
--   rule_id     VARCHAR  -  Rule that matched.
--   time_class  VARCHAR  -  compute, communication or packing.
--   op_class    VARCHAR  -  Finer class.
CREATE OR REPLACE VIEW v1.name_class AS
-- Rules run over distinct kernel names, never over rows.
WITH used AS (
    SELECT DISTINCT
        g.rank,
        g.name_id
    FROM v1.gpu_op AS g
    WHERE g.kind = 'kernel'
)

SELECT
    u.rank,
    u.name_id,
    coalesce(n.name, '[unknown kernel]') AS name,
    r.rule_id,
    r.time_class,
    r.op_class
FROM used AS u
LEFT JOIN v1.name AS n ON u.rank = n.rank AND u.name_id = n.name_id
INNER JOIN v1.kernel_rule AS r ON lower(coalesce(n.name, '[unknown kernel]')) LIKE r.pattern ESCAPE '\'
QUALIFY row_number() OVER (PARTITION BY u.rank, u.name_id ORDER BY r.priority) = 1;
