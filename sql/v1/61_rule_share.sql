-- view:       v1.rule_share
-- purpose:    The classification rules that decided something, with the share of work volume of each.
-- grain:      rank, rule_id, time_class, op_class
-- depends-on: v1.kernel_rule, v1.kernel_inventory
-- materialise: no
-- since:      1
-- columns:
--   rank         BIGINT   -  Global rank.
--   rule_id      VARCHAR  -  Rule; also annotation and kind, which are not name rules.
--   pattern      VARCHAR  -  Pattern; NULL where the rule is not a name rule.
--   time_class   VARCHAR  -  Class it gives.
--   op_class     VARCHAR  -  Finer class it gives.
--   op_count     BIGINT   -  Ops decided.
--   volume_ns    BIGINT   ns Work volume decided.
--   volume_share DOUBLE   1  Share of the rank's work volume.
CREATE OR REPLACE VIEW v1.rule_share AS
SELECT
    i.rank,
    i.rule_id,
    any_value(r.pattern) AS pattern,
    i.time_class,
    i.op_class,
    sum(i.op_count)::BIGINT AS op_count,
    sum(i.volume_ns)::BIGINT AS volume_ns,
    sum(i.volume_share) AS volume_share
FROM v1.kernel_inventory AS i
LEFT JOIN v1.kernel_rule AS r ON i.rule_id = r.rule_id
GROUP BY i.rank, i.rule_id, i.time_class, i.op_class;
