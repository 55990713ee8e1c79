-- view:       v1.tool_quality
-- purpose:    Checks of how the capture was made: mode of the trace, CUDA graphs, hardware metrics.
-- grain:      rank, check_name
-- depends-on: v1.rank, v1.gpu_op, v1.api_call, v1.name, v1.diagnostic, v1.metric_sample
-- materialise: rank
-- since:      1
-- columns:
--   rank        BIGINT   -  Global rank.
--   check_name  VARCHAR  -  Stable name of the check.
--   status      VARCHAR  -  ok, info or warn.
--   detail      VARCHAR  -  What was seen, with counts.
--   forbids     VARCHAR  -  What cannot be said because of it; NULL when nothing.
CREATE OR REPLACE VIEW v1.tool_quality AS
WITH said AS (
    SELECT
        rank,
        bool_or(regexp_matches(text, '(?i)software[ -]instrumented|hardware trac\w* is not supported')) AS is_software,
        bool_or(regexp_matches(text, '(?i)hardware([ -]based)?( event)? trac') AND NOT regexp_matches(text, '(?i)not '))
            AS is_hardware,
        count(*) FILTER (WHERE regexp_matches(text, '(?i)GPU metrics.*skipping metric')) AS skipped_count,
        any_value(text) FILTER (
            WHERE regexp_matches(text, '(?i)GPU (metrics|performance)|counters?\b')
            AND regexp_matches(text, '(?i)ERR_NVGPUCTRPERM|privilege|permission|permitted|administrator')
        ) AS refusal
    FROM v1.diagnostic
    GROUP BY rank
),

graph AS (
    SELECT
        rank,
        count(*) FILTER (WHERE kind = 'graph') AS opaque_count,
        count(*) FILTER (WHERE graph_node_id > 0) AS node_count,
        count(DISTINCT correlation_id) FILTER (WHERE graph_node_id > 0) AS node_launch_count
    FROM v1.gpu_op
    GROUP BY rank
),

graph_call AS (
    SELECT
        a.rank,
        count(*) AS call_count
    FROM v1.api_call AS a
    INNER JOIN v1.name AS n ON a.rank = n.rank AND a.name_id = n.name_id
    WHERE regexp_matches(n.name, '^(cuda|cu|hip)GraphLaunch')
    GROUP BY a.rank
),

metric AS (
    SELECT
        rank,
        count(*) AS sample_count,
        count(DISTINCT name_id) AS name_count,
        count(DISTINCT ts_ns) AS instant_count,
        max(ts_ns) - min(ts_ns) AS span_ns
    FROM v1.metric_sample
    GROUP BY rank
)

SELECT
    r.rank,
    'trace_mode' AS check_name,
    'info' AS status,
    CASE
        WHEN s.is_software THEN 'kernels were traced by software instrumentation'
        WHEN s.is_hardware THEN 'kernels were traced by the hardware'
        ELSE 'the capture does not state whether kernels were traced by hardware or by software instrumentation'
    END AS detail,
    NULL AS forbids
FROM v1.rank AS r
LEFT JOIN said AS s ON r.rank = s.rank
WHERE r.source_format = 'nsys'
UNION ALL
SELECT
    r.rank,
    'cuda_graphs' AS check_name,
    CASE
        WHEN coalesce(g.opaque_count + g.node_count, 0) = 0 AND c.call_count > 0 THEN 'warn'
        WHEN g.opaque_count + g.node_count > 0 THEN 'info'
        ELSE 'ok'
    END AS status,
    CASE
        WHEN coalesce(g.opaque_count + g.node_count, 0) = 0 AND c.call_count > 0
            THEN c.call_count || ' launches of CUDA graphs, and no record of what they ran'
        WHEN coalesce(g.opaque_count + g.node_count, 0) = 0 THEN 'no launch of a CUDA graph'
        ELSE concat_ws(
            '; ',
            CASE
                WHEN g.opaque_count > 0 THEN g.opaque_count || ' launches of CUDA graphs are one opaque record each'
            END,
            CASE
                WHEN g.node_count > 0
                    THEN
                        printf(
                            '%d device ops are nodes of %d launches of CUDA graphs, traced one by one',
                            g.node_count, g.node_launch_count
                        )
            END
        )
    END AS detail,
    CASE
        WHEN coalesce(g.opaque_count + g.node_count, 0) = 0 AND c.call_count > 0
            THEN 'what the device did inside graphs'
        WHEN g.node_count > 0 THEN 'when the host launched a kernel of a graph: it launched the graph'
    END AS forbids
FROM v1.rank AS r
LEFT JOIN graph AS g ON r.rank = g.rank
LEFT JOIN graph_call AS c ON r.rank = c.rank
WHERE g.rank IS NOT NULL OR c.rank IS NOT NULL
UNION ALL
SELECT
    r.rank,
    'gpu_metrics' AS check_name,
    CASE WHEN s.refusal IS NOT NULL THEN 'warn' ELSE 'info' END AS status,
    CASE
        WHEN m.sample_count > 0
            THEN
                printf('%d hardware metrics at %d instants', m.name_count, m.instant_count)
                || CASE
                    WHEN m.instant_count > 1
                        THEN printf(', %.1f kHz', (m.instant_count - 1) * 1e6 / m.span_ns)
                    ELSE ''
                END
        ELSE 'no hardware metrics were sampled (`--gpu-metrics-devices`)'
    END
    || CASE
        WHEN s.skipped_count > 0 THEN printf('; the tool left %d metrics out', s.skipped_count) ELSE ''
    END
    || CASE WHEN s.refusal IS NOT NULL THEN '; refused: ' || left(s.refusal, 200) ELSE '' END AS detail,
    CASE
        WHEN m.sample_count IS NULL THEN 'how near kernels come to what the hardware can do'
        WHEN s.skipped_count > 0 THEN 'the metrics that were left out'
    END AS forbids
FROM v1.rank AS r
LEFT JOIN metric AS m ON r.rank = m.rank
LEFT JOIN said AS s ON r.rank = s.rank
WHERE r.source_format = 'nsys' OR m.rank IS NOT NULL;
