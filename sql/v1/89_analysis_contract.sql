-- view:       v1.analysis_contract
-- purpose:    What must be known of a run to say things of it: as the captures state it, else as `gapscope.toml` declares it, and what is limited where neither does. Nothing is taken from a file name.
-- grain:      item
-- depends-on: v1.rank, v1.declared, v1.declared_part, v1.tool_quality, v1.step, v1.perturbation, v1.fsdp_label, v1.copy_summary, v1.part_span
-- materialise: run
-- since:      1
-- columns:
--   ordinal       INTEGER -  Order of the items.
--   item          VARCHAR -  Item; of a declared one the key in [run].
--   value         VARCHAR -  Value as text; NULL where it is unknown.
--   source        VARCHAR -  trace or declared; NULL where it is unknown.
--   limits        VARCHAR -  What cannot be said without it; NULL where it is known.
--   contradiction VARCHAR -  How what is declared disagrees with the capture or with itself; NULL where it does not.
CREATE OR REPLACE VIEW v1.analysis_contract AS
WITH item (ordinal, item, limits) AS (
    VALUES
    (1, 'ranks', 'anything'),
    (2, 'world_size', 'how much of the job was captured'),
    (3, 'hosts', 'which ranks share a host'),
    (4, 'devices', 'peaks of the hardware'),
    (5, 'tool', 'what this kind of capture lacks'),
    (6, 'cuda_driver', 'comparisons with other runs'),
    (7, 'framework', 'settings by name'),
    (8, 'framework_revision', 'rules and settings as this version has them'),
    (9, 'container', 'comparisons with other runs'),
    (10, 'source', 'causes in code: only phenomena are named'),
    (11, 'cuda_graphs', 'whether the host launches kernels singly'),
    (12, 'model', 'model FLOPs utilization'),
    (13, 'precision', 'model FLOPs utilization: the peak is unknown'),
    (14, 'sequence_length', 'tokens per second and model FLOPs utilization'),
    (15, 'micro_batch', 'work per launch, and whether a larger micro-batch is left to try'),
    (16, 'global_batch', 'tokens per second and model FLOPs utilization'),
    (17, 'tensor_parallel', 'which collectives are tensor-parallel'),
    (18, 'pipeline_parallel', 'whether ranks are of different stages'),
    (19, 'virtual_pipeline', 'the pipeline bubble'),
    (20, 'context_parallel', 'which collectives are context-parallel'),
    (21, 'data_parallel', 'which collectives are data-parallel'),
    (22, 'expert_parallel', 'which collectives are of experts'),
    (23, 'expert_tensor_parallel', 'which collectives are of experts'),
    (24, 'stages', 'comparisons of ranks: these may be of different stages'),
    (25, 'step', 'times per step'),
    (26, 'steady_steps', 'that the steps that count are steady ones: only boundary steps are left out'),
    (27, 'reference_step_ms', 'step times of an unprofiled run: whether profiling slowed this one is unknown')
),

declared AS (
    SELECT
        item,
        value
    FROM v1.declared
    WHERE section = 'run'
),

captured AS (
    SELECT
        count(*) AS rank_count,
        CASE
            WHEN count(*) > 16 THEN count(*) || ' ranks' ELSE string_agg(rank::VARCHAR, ', ' ORDER BY rank)
        END AS ranks,
        max(rank) AS highest,
        max(world_size) AS world_size,
        string_agg(DISTINCT hostname, ', ' ORDER BY hostname) AS hosts,
        string_agg(DISTINCT device_name, ', ' ORDER BY device_name) AS devices,
        string_agg(
            DISTINCT concat_ws(' ', source_format, tool_version), ', '
            ORDER BY concat_ws(' ', source_format, tool_version)
        ) AS tool,
        string_agg(DISTINCT cuda_driver, ', ' ORDER BY cuda_driver) AS cuda_driver
    FROM v1.rank
),

graphs AS (
    SELECT bool_or(status <> 'ok') AS has_graphs
    FROM v1.tool_quality
    WHERE check_name = 'cuda_graphs'
),

stepped AS (
    SELECT
        string_agg(DISTINCT source, ', ' ORDER BY source) AS sources,
        max(step_id) + 1 AS step_count
    FROM v1.step
),

seen AS (
    SELECT
        unnest(['ranks', 'world_size', 'hosts', 'devices', 'tool', 'cuda_driver', 'cuda_graphs', 'step']) AS item,
        unnest(
            [
                c.ranks, c.world_size::VARCHAR, c.hosts, c.devices, c.tool, c.cuda_driver, g.has_graphs::VARCHAR,
                s.step_count || ' steps from ' || s.sources
            ]
        ) AS value
    FROM captured AS c
    CROSS JOIN graphs AS g
    CROSS JOIN stepped AS s
),

-- Stages are known where there is one, or where that of each rank is said.
staged AS (
    SELECT
        CASE
            WHEN count(p.part) = count(*) AND bool_and(p.source <> 'unknown stage')
                THEN
                    CASE
                        WHEN count(*) > 16 THEN count(DISTINCT p.part) || ' parts'
                        ELSE string_agg('rank ' || p.rank || ': ' || p.part, ', ' ORDER BY p.rank)
                    END
            WHEN any_value(d.value) = '1' THEN 'one stage'
        END AS value
    FROM v1.declared_part AS p
    LEFT JOIN declared AS d ON d.item = 'pipeline_parallel'
),

factors AS (
    SELECT
        c.world_size,
        d.world_size AS declared_world,
        coalesce(c.world_size, d.world_size) AS world,
        d.dense,
        d.expert,
        d.dense_count
    FROM captured AS c
    CROSS JOIN (
        SELECT
            max(value) FILTER (WHERE item = 'world_size')::BIGINT AS world_size,
            coalesce(product(try_cast(value AS BIGINT)) FILTER (
                WHERE item IN ('tensor_parallel', 'context_parallel', 'data_parallel', 'pipeline_parallel')
            ), 1)::BIGINT AS dense,
            coalesce(product(try_cast(value AS BIGINT)) FILTER (
                WHERE item IN ('expert_tensor_parallel', 'expert_parallel', 'pipeline_parallel')
            ), 1)::BIGINT AS expert,
            count(*) FILTER (
                WHERE item IN ('tensor_parallel', 'context_parallel', 'data_parallel', 'pipeline_parallel')
            ) AS dense_count
        FROM declared
    ) AS d
),

-- Copies faster than declared links and memory allow. Small ones inside a device may never leave its caches.
too_fast AS (
    SELECT
        string_agg(
            printf('%s of [device] is %s, copies %s reach %.1f GB/s', item, value, copy_kind, gb_s), ', '
            ORDER BY item, copy_kind
        ) AS said
    FROM (
        SELECT
            d.item,
            d.value,
            c.copy_kind,
            max(c.bytes_per_ns) AS gb_s
        FROM v1.copy_summary AS c
        INNER JOIN v1.declared AS d
            ON
                d.section = 'device'
                AND d.item = CASE
                    WHEN regexp_matches(c.copy_kind, '(HtoD|DtoH)$') THEN 'host_link_gb_s'
                    WHEN c.copy_kind = 'PtoP' THEN 'peer_link_gb_s'
                    WHEN c.copy_kind = 'DtoD' AND c.bytes > 67108864 * c.op_count THEN 'memory_gb_s'
                END
        GROUP BY d.item, d.value, c.copy_kind
    ) AS reached
    WHERE gb_s > 1.05 * value::DOUBLE / CASE WHEN copy_kind = 'DtoD' THEN 2 ELSE 1 END
),

-- Blocks that FSDP labels number: where just one sequence of modules is numbered, and none of its numbers is left out.
numbered AS (
    SELECT DISTINCT
        regexp_extract(unit, '^(.*)\.\d+$', 1) AS sequence,
        regexp_extract(unit, '\d+$')::BIGINT AS number
    FROM v1.fsdp_label
    WHERE regexp_full_match(unit, '[\w.]+\.\d{1,9}')
),

blocks AS (
    SELECT count(*) AS block_count
    FROM numbered
    HAVING count(DISTINCT sequence) = 1 AND max(number) + 1 = count(*)
),

contradicted AS (
    SELECT
        'world_size' AS item,
        'declared ' || f.declared_world || ', the captures state ' || f.world_size AS said
    FROM factors AS f
    WHERE f.declared_world <> f.world_size
    UNION ALL
    SELECT
        'ranks' AS item,
        'rank ' || c.highest || ' of a world of ' || f.world AS said
    FROM factors AS f
    CROSS JOIN captured AS c
    WHERE c.highest >= f.world
    UNION ALL
    -- Fewer blocks may be those of one stage.
    SELECT
        'model' AS item,
        printf('layers of [model] is %d, FSDP labels number %d blocks', l.value::BIGINT, b.block_count) AS said
    FROM blocks AS b
    INNER JOIN v1.declared AS l ON l.section = 'model' AND l.item = 'layers'
    LEFT JOIN declared AS p ON p.item = 'pipeline_parallel'
    CROSS JOIN captured AS c
    WHERE
        b.block_count > l.value::BIGINT
        OR (
            b.block_count < l.value::BIGINT
            AND (p.value = '1' OR (p.value IS NULL AND c.rank_count = c.world_size))
        )
    UNION ALL
    SELECT
        'data_parallel' AS item,
        printf('tensor, context, data and pipeline parallel make %d ranks of a world of %d', f.dense, f.world) AS said
    FROM factors AS f
    WHERE f.world % f.dense <> 0 OR (f.dense_count = 4 AND f.dense <> f.world)
    UNION ALL
    SELECT
        'expert_parallel' AS item,
        printf('expert, expert tensor and pipeline parallel make %d ranks of a world of %d', f.expert, f.world) AS said
    FROM factors AS f
    WHERE f.world % f.expert <> 0
    UNION ALL
    SELECT
        'cuda_graphs' AS item,
        CASE
            WHEN g.has_graphs THEN 'declared off, the captures hold launches of CUDA graphs'
            ELSE 'declared on, the captures hold no launch of a CUDA graph'
        END AS said
    FROM graphs AS g
    INNER JOIN declared AS d ON d.item = 'cuda_graphs' AND d.value <> g.has_graphs::VARCHAR
    UNION ALL
    SELECT
        'steady_steps' AS item,
        'declared ' || d.value || ', the captures hold step_id ' || concat_ws(' to ', 0, nullif(s.step_count - 1, 0))
        || ': these count from 0, whatever numbers labels have' AS said
    FROM stepped AS s
    INNER JOIN declared AS d ON d.item = 'steady_steps'
    WHERE split_part(d.value, ':', 1)::BIGINT >= s.step_count
    UNION ALL
    SELECT
        'stages' AS item,
        string_agg(printf('%s of [parts] names rank %d', s.part, s.last_rank), ', ' ORDER BY s.part, s.last_rank)
        || ' of a world of ' || any_value(f.world) AS said
    FROM v1.part_span AS s
    INNER JOIN factors AS f ON s.last_rank >= f.world
    HAVING count(*) > 0
    UNION ALL
    SELECT
        'devices' AS item,
        said
    FROM too_fast
    UNION ALL
    SELECT
        'reference_step_ms' AS item,
        concat_ws(
            '; ',
            'profiled steps of rank ' || min(rank) FILTER (WHERE verdict = 'faster')
            || ' are faster: these are no steps of one run',
            'profiled steps of rank ' || min(rank) FILTER (WHERE verdict = 'implausible')
            || ' take more than ten times as long: the unit is ms'
        ) AS said
    FROM v1.perturbation
    WHERE verdict IN ('faster', 'implausible')
    HAVING count(*) > 0
)

SELECT
    i.ordinal,
    i.item,
    coalesce(s.value, d.value, p.value) AS value,
    CASE
        WHEN s.value IS NOT NULL THEN 'trace'
        WHEN coalesce(d.value, p.value) IS NOT NULL THEN 'declared'
    END AS source,
    CASE WHEN coalesce(s.value, d.value, p.value) IS NULL THEN i.limits END AS limits,
    c.said AS contradiction
FROM item AS i
LEFT JOIN seen AS s ON i.item = s.item
LEFT JOIN declared AS d ON i.item = d.item
LEFT JOIN staged AS p ON i.item = 'stages'
LEFT JOIN contradicted AS c ON i.item = c.item;
