-- view:       v1.api_summary
-- purpose:    CUDA API calls by function and thread.
-- grain:      rank, tid, name
-- depends-on: v1.api_call, v1.name
-- materialise: no
-- since:      1
-- columns:
--   rank         BIGINT   -  Global rank.
--   tid          BIGINT   -  Calling thread.
--   name         VARCHAR  -  Function.
--   domain       VARCHAR  -  runtime or driver.
--   call_count   BIGINT   -  Calls.
--   volume_ns    BIGINT   ns Sum of call durations (calls of one thread may nest).
--   median_ns    BIGINT   ns Median.
--   max_ns       BIGINT   ns Longest.
--   failed_count BIGINT   -  Calls with a non-zero return code; NULL when the source carries none.
CREATE OR REPLACE VIEW v1.api_summary AS
SELECT
    a.rank,
    a.tid,
    coalesce(n.name, '[unknown call]') AS name,
    any_value(a.domain) AS domain,
    count(*) AS call_count,
    sum(a.end_ns - a.start_ns) FILTER (WHERE a.end_ns >= a.start_ns)::BIGINT AS volume_ns,
    median(a.end_ns - a.start_ns) FILTER (WHERE a.end_ns >= a.start_ns)::BIGINT AS median_ns,
    max(a.end_ns - a.start_ns) FILTER (WHERE a.end_ns >= a.start_ns) AS max_ns,
    CASE
        WHEN count(a.return_code) > 0 THEN count(*) FILTER (WHERE a.return_code <> 0)
    END AS failed_count
FROM v1.api_call AS a
LEFT JOIN v1.name AS n ON a.rank = n.rank AND a.name_id = n.name_id
GROUP BY a.rank, a.tid, coalesce(n.name, '[unknown call]');
