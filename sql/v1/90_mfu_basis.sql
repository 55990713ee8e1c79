-- view:       v1.mfu_basis
-- purpose:    What model FLOP utilisation rests on: work of a step, devices and their peak, or why it cannot be stated.
-- grain:      basis
-- depends-on: v1.declared, v1.rank, v1.model_flops, v1.gpu_peak, v1.analysis_contract
-- materialise: no
-- since:      1
-- columns:
--   basis                 VARCHAR -       declared: the one row.
--   step_tokens           DOUBLE  -       Tokens of a step over all ranks: global batch times sequence length.
--   device_count          BIGINT  -       Devices that share the work: the world size.
--   device_name           VARCHAR -       Device model; NULL where ranks differ.
--   matrix_precision      VARCHAR -       Precision of the matrix products, as the peak is listed: MX formats by their bits.
--   peak_tflops           DOUBLE  TFLOP/s Dense peak of one device.
--   peak_source           VARCHAR -       declared, or the product in v1.gpu_peak.
--   token_flops           DOUBLE  FLOP    Forward and backward of one token, attention over the whole sequence.
--   token_causal_flops    DOUBLE  FLOP    The same with the half of attention that a causal mask leaves; NULL unless one is declared.
--   token_recomputed_flops DOUBLE FLOP    What recomputing adds to token_flops; NULL where it is not declared.
--   parameters            DOUBLE  -       Weights that a token is multiplied with: a check of the declared shapes.
--   missing               VARCHAR -       What has to be declared first; NULL when nothing.
--   contradicted          VARCHAR -       What of it the captures contradict, and how; NULL when nothing.
CREATE OR REPLACE VIEW v1.mfu_basis AS
WITH said AS (
    SELECT
        max(value) FILTER (WHERE section = 'run' AND item = 'sequence_length')::DOUBLE AS sequence_length,
        max(value) FILTER (WHERE section = 'run' AND item = 'global_batch')::DOUBLE AS global_batch,
        max(value) FILTER (WHERE section = 'run' AND item = 'world_size')::BIGINT AS world_size,
        max(value) FILTER (WHERE section = 'run' AND item = 'precision') AS precision,
        max(value) FILTER (WHERE section = 'model' AND item = 'peak_tflops')::DOUBLE AS peak_tflops,
        count(*) FILTER (WHERE section = 'model') AS key_count
    FROM v1.declared
),

-- What each transformer needs; other keys have a meaning when they are left out.
needed AS (
    SELECT string_agg(n.item, ', ' ORDER BY n.place) AS absent
    FROM (
        VALUES
        (1, 'layers'), (2, 'hidden'), (3, 'heads'), (4, 'ffn_hidden'), (5, 'gated'), (6, 'vocab'),
        (7, 'experts_per_token')
    ) AS n (place, item)
    WHERE
        NOT EXISTS (
            SELECT 1 FROM v1.declared AS d
            WHERE d.section = 'model' AND d.item = n.item
        )
        AND (
            n.item <> 'experts_per_token'
            OR EXISTS (
                SELECT 1 FROM v1.declared AS d
                WHERE d.section = 'model' AND d.item = 'experts'
            )
        )
),

device AS (
    SELECT
        max(world_size) AS world_size,
        CASE WHEN count(DISTINCT device_name) = 1 THEN min(device_name) END AS device_name,
        count(device_uuid) > count(DISTINCT device_uuid) AS is_shared
    FROM v1.rank
),

work AS (
    SELECT
        sum(forward_flops + backward_flops) AS token_flops,
        CASE WHEN count(*) = count(causal_flops) THEN sum(3 * causal_flops) END AS token_causal_flops,
        CASE WHEN count(*) = count(recomputed_flops) THEN sum(recomputed_flops) END AS token_recomputed_flops,
        sum(parameters) AS parameters
    FROM v1.model_flops
),

known AS (
    SELECT
        s.sequence_length * s.global_batch AS step_tokens,
        coalesce(s.world_size, d.world_size) AS device_count,
        d.device_name,
        CASE
            WHEN s.precision = 'mxfp8' THEN 'fp8'
            WHEN s.precision IN ('nvfp4', 'mxfp4') THEN 'fp4'
            ELSE s.precision
        END AS matrix_precision,
        s.peak_tflops AS declared_peak,
        d.is_shared,
        s.key_count,
        n.absent,
        s.sequence_length,
        s.global_batch,
        w.*
    FROM said AS s
    CROSS JOIN device AS d
    CROSS JOIN needed AS n
    CROSS JOIN work AS w
),

peak AS (
    SELECT
        k.*,
        g.gpu,
        g.peak_tflops AS listed_peak
    FROM known AS k
    LEFT JOIN v1.gpu_peak AS g
        ON regexp_matches(k.device_name, g.pattern) AND k.matrix_precision = g.precision
    QUALIFY row_number() OVER (ORDER BY g.place) = 1
)

SELECT
    'declared' AS basis,
    step_tokens,
    device_count,
    device_name,
    matrix_precision,
    coalesce(declared_peak, listed_peak) AS peak_tflops,
    CASE WHEN declared_peak IS NOT NULL THEN 'declared' ELSE gpu END AS peak_source,
    token_flops,
    token_causal_flops,
    token_recomputed_flops,
    parameters,
    nullif(concat_ws(
        '; ',
        CASE
            WHEN token_flops IS NULL AND key_count = 0 THEN '[model]: the shapes of the model, or flops_per_token'
            WHEN token_flops IS NULL AND absent <> '' THEN '[model] ' || absent
        END,
        CASE WHEN sequence_length IS NULL THEN '[run] sequence_length' END,
        CASE WHEN global_batch IS NULL THEN '[run] global_batch' END,
        CASE WHEN device_count IS NULL THEN '[run] world_size' END,
        CASE WHEN matrix_precision IS NULL AND declared_peak IS NULL THEN '[run] precision' END,
        CASE
            WHEN coalesce(declared_peak, listed_peak) IS NULL AND matrix_precision IS NOT NULL
                THEN
                    '[model] peak_tflops: none is listed for '
                    || coalesce(device_name, 'these devices') || ' at ' || matrix_precision
        END,
        CASE WHEN is_shared THEN 'a device for each rank: here ranks share one' END
    ), '') AS missing,
    (
        SELECT string_agg(a.item || ': ' || a.contradiction, '; ' ORDER BY a.ordinal)
        FROM v1.analysis_contract AS a
        WHERE
            a.contradiction IS NOT NULL
            AND a.item IN ('ranks', 'world_size', 'model', 'precision', 'sequence_length', 'global_batch')
    ) AS contradicted
FROM peak;
