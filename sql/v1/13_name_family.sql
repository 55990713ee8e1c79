-- view:       v1.name_family
-- purpose:    Library or dispatcher, and role there, of each distinct name of communication and packing kernels.
-- grain:      rank, name_id
-- depends-on: v1.name_class, v1.communication_family
-- materialise: no
-- since:      1
-- columns:
--   rank     BIGINT   -  Global rank.
--   name_id  BIGINT   -  Name.
--   name     VARCHAR  -  Kernel name.
--   time_class VARCHAR - communication or packing.
--   family   VARCHAR  -  Library or dispatcher.
--   role     VARCHAR  -  transport, synchronization, routing, packing or control.
CREATE OR REPLACE VIEW v1.name_family AS
SELECT
    c.rank,
    c.name_id,
    c.name,
    c.time_class,
    f.family,
    CASE WHEN f.family_rule_id = 'unknown' AND c.time_class = 'packing' THEN 'packing' ELSE f.role END AS role
FROM v1.name_class AS c
INNER JOIN v1.communication_family AS f ON lower(c.name) LIKE f.pattern ESCAPE '\'
WHERE c.time_class IN ('communication', 'packing')
QUALIFY row_number() OVER (PARTITION BY c.rank, c.name_id ORDER BY f.priority) = 1;
