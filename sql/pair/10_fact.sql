-- view:       pair.fact
-- purpose:    What a run states about its topology, its capture, its environment and its declared work, in words.
-- grain:      area, item
-- depends-on: v1.rank, v1.rank_part, v1.environment, v1.run_option, v1.step, v1.gpu_op, v1.event_record, v1.stream_wait, v1.metric_sample
-- materialise: side
-- since:      1
-- columns:
--   area   VARCHAR -  topology, capture, environment or declared.
--   item   VARCHAR -  What is stated.
--   value  VARCHAR -  Its value; values that differ between ranks one after the other. What is unknown has no row.
CREATE OR REPLACE VIEW pair.fact AS
WITH graph AS (
    SELECT
        bool_or(kind = 'graph') AS is_opaque,
        bool_or(graph_node_id IS NOT NULL) AS is_traced
    FROM v1.gpu_op
    WHERE kind = 'graph' OR graph_node_id IS NOT NULL
),

recorded AS (
    SELECT
        (SELECT count(*) FROM v1.event_record) AS records,
        (SELECT count(*) FROM v1.stream_wait) AS waits,
        (SELECT count(*) FROM v1.metric_sample) AS samples
),

-- A rank numbers its GPU only where the capture names it.
shared AS (
    SELECT count(*) AS ranks
    FROM (
        SELECT
            rank,
            count(*) OVER (PARTITION BY device_uuid) AS users
        FROM v1.rank
        WHERE device_uuid IS NOT NULL
    ) AS device
    WHERE users > 1
),

part AS (
    SELECT
        part,
        count(*) AS ranks
    FROM v1.rank_part
    GROUP BY part
),

option AS (
    SELECT
        name,
        value,
        name IN ('run', 'fsdp2') AS is_table
    FROM v1.run_option
    WHERE name <> 'parts'
),

stated AS (
    SELECT
        'topology' AS area,
        'world size' AS item,
        world_size::VARCHAR AS value
    FROM v1.rank
    UNION ALL
    SELECT
        'topology' AS area,
        'GPU' AS item,
        device_name AS value
    FROM v1.rank
    UNION ALL
    SELECT
        'topology' AS area,
        'hosts' AS item,
        nullif(count(DISTINCT hostname), 0)::VARCHAR AS value
    FROM v1.rank
    UNION ALL
    SELECT
        'topology' AS area,
        'ranks that share a GPU' AS item,
        CASE WHEN (SELECT count(r.device_uuid) = count(*) FROM v1.rank AS r) THEN ranks::VARCHAR END AS value
    FROM shared
    UNION ALL
    SELECT
        'topology' AS area,
        'parts' AS item,
        string_agg(part || ' of ' || ranks, ', ' ORDER BY part) AS value
    FROM part
    UNION ALL
    SELECT
        'capture' AS area,
        'source' AS item,
        source_format AS value
    FROM v1.rank
    UNION ALL
    SELECT
        'capture' AS area,
        'captures' AS item,
        count(DISTINCT source_digest)
        || ' of digest '
        || left(md5(string_agg(DISTINCT source_digest, ',' ORDER BY source_digest)), 12) AS value
    FROM v1.rank
    HAVING count(source_digest) = count(*)
    UNION ALL
    SELECT
        'capture' AS area,
        'tool' AS item,
        tool_version AS value
    FROM v1.rank
    UNION ALL
    SELECT
        'capture' AS area,
        'CUDA driver' AS item,
        cuda_driver::VARCHAR AS value
    FROM v1.rank
    UNION ALL
    SELECT
        'capture' AS area,
        'CUDA runtime' AS item,
        cuda_runtime::VARCHAR AS value
    FROM v1.rank
    UNION ALL
    SELECT
        'capture' AS area,
        'NCCL' AS item,
        nccl_version AS value
    FROM v1.rank
    UNION ALL
    SELECT
        'capture' AS area,
        'event edges' AS item,
        CASE
            WHEN records > 0 AND waits > 0 THEN 'records and waits'
            WHEN waits > 0 THEN 'waits without records'
            WHEN records > 0 THEN 'records without waits'
            ELSE 'none'
        END AS value
    FROM recorded
    UNION ALL
    SELECT
        'capture' AS area,
        'metric sampling' AS item,
        CASE WHEN samples > 0 THEN 'on' ELSE 'none recorded' END AS value
    FROM recorded
    UNION ALL
    SELECT
        'capture' AS area,
        'CUDA graphs' AS item,
        CASE
            WHEN is_opaque THEN 'one record a graph'
            WHEN is_traced THEN 'node by node'
            ELSE 'none recorded'
        END AS value
    FROM graph
    UNION ALL
    SELECT
        'capture' AS area,
        'steps from' AS item,
        source AS value
    FROM v1.step
    UNION ALL
    -- Numbers of a process say nothing about how it runs.
    SELECT
        'environment' AS area,
        name AS item,
        value
    FROM v1.environment
    WHERE name NOT LIKE '%RANK' AND name NOT LIKE '%PROCID'
    UNION ALL
    SELECT
        'declared' AS area,
        name AS item,
        value
    FROM option
    WHERE NOT is_table
    UNION ALL
    SELECT
        'declared' AS area,
        o.name || '.' || e.key AS item,
        e.value ->> '$' AS value
    FROM option AS o
    -- Other options are no JSON, and may be read before they are left out.
    CROSS JOIN json_each(CASE WHEN o.is_table THEN o.value ELSE '{}' END::JSON) AS e
)

SELECT
    area,
    item,
    string_agg(DISTINCT value, ', ' ORDER BY value) AS value
FROM stated
WHERE value IS NOT NULL AND value <> ''
GROUP BY area, item;
