-- view:       v1.cuda_api_sum
-- purpose:    CUDA API calls by function as `nsys stats --report cuda_api_sum` counts them, all threads together; version suffixes are removed from names, also where nsys leaves them.
-- grain:      rank, name
-- depends-on: v1.api_call, v1.name
-- materialise: no
-- since:      1
-- columns:
--   rank         BIGINT  -  Global rank.
--   time_percent DOUBLE  %  Time (%): total_ns of the rank's whole.
--   total_ns     BIGINT  ns Total Time (ns): sum of durations.
--   num_calls    BIGINT  -  Num Calls.
--   avg          DOUBLE  ns Avg (ns).
--   med          DOUBLE  ns Med (ns).
--   min_ns       BIGINT  ns Min (ns).
--   max_ns       BIGINT  ns Max (ns).
--   stddev       DOUBLE  ns StdDev (ns), of a sample; 0 for one.
--   name         VARCHAR -  Name.
CREATE OR REPLACE VIEW v1.cuda_api_sum AS
WITH timed AS (
    SELECT
        o.rank,
        coalesce(n.name, '[unknown call]') AS name,
        o.end_ns - o.start_ns AS dur_ns
    FROM v1.api_call AS o
    LEFT JOIN v1.name AS n ON o.rank = n.rank AND o.name_id = n.name_id
    WHERE o.end_ns >= o.start_ns
)

SELECT
    rank,
    100.0 * sum(dur_ns) / nullif(sum(sum(dur_ns)) OVER (PARTITION BY rank), 0) AS time_percent,
    sum(dur_ns)::BIGINT AS total_ns,
    count(*) AS num_calls,
    avg(dur_ns) AS avg,
    median(dur_ns) AS med,
    min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns,
    coalesce(stddev_samp(dur_ns), 0) AS stddev,
    name
FROM timed
GROUP BY rank, name;
