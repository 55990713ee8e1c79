-- view:       v1.cuda_gpu_mem_time_sum
-- purpose:    Copies and memsets by operation as `nsys stats --report cuda_gpu_mem_time_sum` counts them.
-- grain:      rank, operation
-- depends-on: v1.gpu_op
-- materialise: no
-- since:      1
-- columns:
--   rank         BIGINT  -  Global rank.
--   time_percent DOUBLE  %  Time (%): total_ns of the rank's whole.
--   total_ns     BIGINT  ns Total Time (ns): sum of durations.
--   op_count     BIGINT  -  Count.
--   avg          DOUBLE  ns Avg (ns).
--   med          DOUBLE  ns Med (ns).
--   min_ns       BIGINT  ns Min (ns).
--   max_ns       BIGINT  ns Max (ns).
--   stddev       DOUBLE  ns StdDev (ns), of a sample; 0 for one.
--   operation    VARCHAR -  Operation, named as nsys does.
CREATE OR REPLACE VIEW v1.cuda_gpu_mem_time_sum AS
WITH direction (copy_kind, label) AS (
    VALUES
    ('HtoD', 'Host-to-Device'),
    ('DtoH', 'Device-to-Host'),
    ('HtoA', 'Host-to-Array'),
    ('AtoH', 'Array-to-Host'),
    ('AtoA', 'Array-to-Array'),
    ('AtoD', 'Array-to-Device'),
    ('DtoA', 'Device-to-Array'),
    ('DtoD', 'Device-to-Device'),
    ('HtoH', 'Host-to-Host'),
    ('PtoP', 'Peer-to-Peer'),
    ('UVM HtoD', 'Unified Host-to-Device'),
    ('UVM DtoH', 'Unified Device-to-Host'),
    ('UVM DtoD', 'Unified Device-to-Device')
),

timed AS (
    SELECT
        o.rank,
        CASE
            WHEN o.kind = 'memset' THEN '[CUDA memset]'
            ELSE '[CUDA memcpy ' || coalesce(d.label, 'Unknown') || ']'
        END AS operation,
        o.end_ns - o.start_ns AS dur_ns
    FROM v1.gpu_op AS o
    LEFT JOIN direction AS d ON o.copy_kind = d.copy_kind
    WHERE o.kind IN ('memcpy', 'memset') AND o.end_ns >= o.start_ns
)

SELECT
    rank,
    100.0 * sum(dur_ns) / nullif(sum(sum(dur_ns)) OVER (PARTITION BY rank), 0) AS time_percent,
    sum(dur_ns)::BIGINT AS total_ns,
    count(*) AS op_count,
    avg(dur_ns) AS avg,
    median(dur_ns) AS med,
    min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns,
    coalesce(stddev_samp(dur_ns), 0) AS stddev,
    operation
FROM timed
GROUP BY rank, operation;
