-- view:       v1.step_mfu
-- purpose:    Model and hardware FLOP utilisation of each step on each rank, for the declared model and batch.
-- grain:      rank, step_id
-- depends-on: v1.step_budget, v1.mfu_basis
-- materialise: no
-- since:      1
-- columns:
--   rank         BIGINT  -    Global rank.
--   step_id      BIGINT  -    Step, device projection.
--   step_ns      BIGINT  ns   Its length on this rank.
--   is_boundary  BOOLEAN -    Stays out of medians and verdicts.
--   model_flops  DOUBLE  FLOP Work of the step over all devices, attention over the whole sequence.
--   mfu          DOUBLE  1    model_flops over what the peak of all devices allows in that time.
--   causal_mfu   DOUBLE  1    The same with the half of attention that a causal mask leaves; NULL unless one is declared.
--   hfu          DOUBLE  1    mfu with the work that recomputing adds; NULL where it is not declared.
CREATE OR REPLACE VIEW v1.step_mfu AS
WITH measured AS (
    SELECT
        b.rank,
        b.step_id,
        b.step_ns,
        b.is_boundary,
        m.step_tokens,
        m.token_flops,
        m.token_causal_flops,
        m.token_recomputed_flops,
        -- TFLOP/s times ns is a thousand FLOP.
        m.device_count * m.peak_tflops * 1000 * b.step_ns AS peak_flops
    FROM v1.step_budget AS b
    CROSS JOIN v1.mfu_basis AS m
    WHERE b.projection = 'device' AND b.step_ns > 0 AND m.missing IS NULL AND m.contradicted IS NULL
)

SELECT
    rank,
    step_id,
    step_ns,
    is_boundary,
    step_tokens * token_flops AS model_flops,
    step_tokens * token_flops / peak_flops AS mfu,
    step_tokens * token_causal_flops / peak_flops AS causal_mfu,
    step_tokens * (token_flops + token_recomputed_flops) / peak_flops AS hfu
FROM measured;
