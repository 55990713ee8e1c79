-- view:       v1.range_summary
-- purpose:    Ranges by text: how often, how long on the host, how much device work they launched.
-- grain:      rank, kind, domain, name
-- depends-on: v1.range, v1.name, v1.op
-- materialise: no
-- since:      1
-- columns:
--   rank          BIGINT   -  Global rank.
--   kind          VARCHAR  -  push_pop, start_end, mark, user_annotation, cpu_op or gpu_user_annotation.
--   domain        VARCHAR  -  NVTX domain, or pytorch.
--   name          VARCHAR  -  Text.
--   range_count   BIGINT   -  Ranges.
--   open_count    BIGINT   -  Of these still open when the capture ended.
--   host_volume_ns BIGINT  ns Sum of durations.
--   median_ns     BIGINT   ns Median duration.
--   max_ns        BIGINT   ns Longest.
--   op_count      BIGINT   -  Device ops launched with one of these as innermost range.
--   op_volume_ns  BIGINT   ns Their work volume.
CREATE OR REPLACE VIEW v1.range_summary AS
WITH launched AS (
    SELECT
        o.rank,
        o.context_range_id AS range_id,
        count(*) AS op_count,
        sum(o.dur_ns) AS op_volume_ns
    FROM v1.op AS o
    WHERE o.context_range_id IS NOT NULL
    GROUP BY o.rank, o.context_range_id
),

named AS (
    SELECT
        r.rank,
        r.range_id,
        r.kind,
        r.domain,
        coalesce(n.name, '[unknown range]') AS name,
        CASE WHEN r.end_ns >= r.start_ns THEN r.end_ns - r.start_ns END AS dur_ns,
        r.end_ns IS NULL AS is_open
    FROM v1.range AS r
    LEFT JOIN v1.name AS n ON r.rank = n.rank AND r.name_id = n.name_id
)

SELECT
    n.rank,
    n.kind,
    n.domain,
    n.name,
    count(*) AS range_count,
    count(*) FILTER (WHERE n.is_open) AS open_count,
    sum(n.dur_ns)::BIGINT AS host_volume_ns,
    median(n.dur_ns)::BIGINT AS median_ns,
    max(n.dur_ns) AS max_ns,
    coalesce(sum(l.op_count), 0)::BIGINT AS op_count,
    coalesce(sum(l.op_volume_ns), 0)::BIGINT AS op_volume_ns
FROM named AS n
LEFT JOIN launched AS l ON n.rank = l.rank AND n.range_id = l.range_id
GROUP BY n.rank, n.kind, n.domain, n.name;
