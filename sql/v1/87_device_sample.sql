-- view:       v1.device_sample
-- purpose:    Samples of hardware metrics of the device that each rank ran on, on the rank's own clock, whichever capture holds them.
-- grain:      rank, ts_ns, name_id
-- depends-on: v1.metric_sample, v1.sample_source
-- materialise: no
-- since:      1
-- columns:
--   rank        BIGINT  -  Global rank whose device it is.
--   source_rank BIGINT  -  Rank in whose capture the sample is; its v1.name has the metric.
--   ts_ns       BIGINT  ns Time of the sample on the clock of `rank`.
--   name_id     BIGINT  -  Metric name with its unit, as the tool names it.
--   value       DOUBLE  -  Value as the tool gives it.
CREATE OR REPLACE VIEW v1.device_sample AS
SELECT
    s.rank,
    s.source_rank,
    m.ts_ns + s.offset_ns AS ts_ns,
    m.name_id,
    m.value
FROM v1.metric_sample AS m
INNER JOIN v1.sample_source AS s
    ON
        m.rank = s.source_rank
        AND m.device IS NOT DISTINCT FROM s.device
        AND m.device_uuid IS NOT DISTINCT FROM s.device_uuid
WHERE s.offset_ns IS NOT NULL;
