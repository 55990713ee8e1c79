-- view:       v1.kernel_inventory
-- purpose:    Device ops of a rank by name: work volume, counts and the rule that classed them.
-- grain:      rank, name, time_class, op_class, rule_id
-- depends-on: v1.op
-- materialise: rank
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank.
--   name        VARCHAR  -  Kernel or copy name.
--   kind        VARCHAR  -  kernel, memcpy, memset or graph.
--   time_class  VARCHAR  -  Class.
--   op_class    VARCHAR  -  Finer class.
--   rule_id     VARCHAR  -  Rule that decided.
--   op_count    BIGINT   -  Ops.
--   volume_ns   BIGINT   ns Work volume: sum of durations, overlap counted twice.
--   min_ns      BIGINT   ns Shortest.
--   median_ns   BIGINT   ns Median.
--   max_ns      BIGINT   ns Longest.
--   volume_share DOUBLE  1  Share of the rank's work volume.
CREATE OR REPLACE VIEW v1.kernel_inventory AS
SELECT
    o.rank,
    o.name,
    any_value(o.kind) AS kind,
    o.time_class,
    o.op_class,
    o.rule_id,
    count(*) AS op_count,
    sum(o.dur_ns)::BIGINT AS volume_ns,
    min(o.dur_ns) AS min_ns,
    median(o.dur_ns)::BIGINT AS median_ns,
    max(o.dur_ns) AS max_ns,
    sum(o.dur_ns) / sum(sum(o.dur_ns)) OVER (PARTITION BY o.rank) AS volume_share
FROM v1.op AS o
GROUP BY o.rank, o.name, o.time_class, o.op_class, o.rule_id;
