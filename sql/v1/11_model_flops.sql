-- view:       v1.model_flops
-- purpose:    Work of one token in each part of the declared transformer: what its shapes ask for, and what recomputing adds.
-- grain:      part
-- depends-on: v1.declared
-- materialise: no
-- since:      1
-- columns:
--   part              VARCHAR -    projections, attention, mlp, router, experts, shared_experts or logits; declared where flops_per_token is.
--   layer_count       BIGINT  -    Layers that have it; 1 for the logits.
--   parameters        DOUBLE  -    Weights that a token is multiplied with, in all these layers; 0 for attention.
--   forward_flops     DOUBLE  FLOP Forward, of one token, 2 a multiplication: attention over the whole sequence.
--   causal_flops      DOUBLE  FLOP The same where a causal mask halves attention; NULL unless one is declared.
--   backward_flops    DOUBLE  FLOP Backward: twice the forward.
--   recomputed_flops  DOUBLE  FLOP Forward that runs again in the backward, attention over the whole sequence; NULL where recomputing is not declared.
CREATE OR REPLACE VIEW v1.model_flops AS
-- Attention's context is the sequence; everything else asks only for the model.
WITH said AS (
    SELECT
        max(value) FILTER (WHERE section = 'run' AND item = 'sequence_length')::DOUBLE AS s,
        max(value) FILTER (WHERE section = 'model' AND item = 'layers')::BIGINT AS layer_count,
        max(value) FILTER (WHERE section = 'model' AND item = 'hidden')::DOUBLE AS h,
        max(value) FILTER (WHERE section = 'model' AND item = 'heads')::DOUBLE AS heads,
        max(value) FILTER (WHERE section = 'model' AND item = 'kv_heads')::DOUBLE AS kv_heads,
        max(value) FILTER (WHERE section = 'model' AND item = 'head_dim')::DOUBLE AS head_dim,
        max(value) FILTER (WHERE section = 'model' AND item = 'ffn_hidden')::DOUBLE AS ffn,
        max(value) FILTER (WHERE section = 'model' AND item = 'gated')::BOOLEAN AS is_gated,
        max(value) FILTER (WHERE section = 'model' AND item = 'vocab')::DOUBLE AS vocab,
        max(value) FILTER (WHERE section = 'model' AND item = 'experts')::DOUBLE AS experts,
        max(value) FILTER (WHERE section = 'model' AND item = 'experts_per_token')::DOUBLE AS top_k,
        max(value) FILTER (WHERE section = 'model' AND item = 'shared_experts')::DOUBLE AS shared,
        max(value) FILTER (WHERE section = 'model' AND item = 'moe_layers')::BIGINT AS moe_layers,
        max(value) FILTER (WHERE section = 'model' AND item = 'expert_ffn_hidden')::DOUBLE AS expert_ffn,
        max(value) FILTER (WHERE section = 'model' AND item = 'shared_expert_ffn_hidden')::DOUBLE AS shared_ffn,
        max(value) FILTER (WHERE section = 'model' AND item = 'causal')::BOOLEAN AS is_causal,
        max(value) FILTER (WHERE section = 'model' AND item = 'recompute') AS recompute,
        max(value) FILTER (WHERE section = 'model' AND item = 'flops_per_token')::DOUBLE AS flops_per_token
    FROM v1.declared
),

shape AS (
    SELECT
        *,
        coalesce(head_dim, h / heads) AS d,
        coalesce(kv_heads, heads) AS kv,
        CASE is_gated WHEN TRUE THEN 3 WHEN FALSE THEN 2 END AS matrices,
        CASE WHEN experts IS NULL THEN 0 ELSE coalesce(moe_layers, layer_count) END AS moe_count
    FROM said
),

work AS (
    SELECT
        p.part,
        p.layer_count,
        p.layer_count * p.weights AS parameters,
        p.layer_count * coalesce(p.pairs, p.weights) * 2 AS forward_flops,
        s.is_causal,
        s.recompute
    FROM shape AS s
    CROSS JOIN
        LATERAL (
            VALUES
            -- Query and output have all heads, key and value those that are shared.
            ('projections', s.layer_count, s.h * s.d * (2 * s.heads + 2 * s.kv), NULL),
            -- Scores and the weighted sum: each token against every one of the sequence.
            ('attention', s.layer_count, 0, 2 * s.s * s.heads * s.d),
            ('mlp', s.layer_count - s.moe_count, s.h * s.ffn * s.matrices, NULL),
            ('router', s.moe_count, s.h * s.experts, NULL),
            ('experts', s.moe_count, s.top_k * s.h * coalesce(s.expert_ffn, s.ffn) * s.matrices, NULL),
            (
                'shared_experts',
                s.moe_count,
                s.shared * s.h * coalesce(s.shared_ffn, s.expert_ffn, s.ffn) * s.matrices,
                NULL
            ),
            ('logits', 1, s.h * s.vocab, NULL)
        ) AS p (part, layer_count, weights, pairs)
    WHERE p.layer_count > 0 AND NOT (p.part = 'shared_experts' AND s.shared IS NULL)
)

SELECT
    part,
    layer_count::BIGINT AS layer_count,
    parameters::DOUBLE AS parameters,
    forward_flops::DOUBLE AS forward_flops,
    CASE
        WHEN is_causal THEN forward_flops / CASE WHEN part = 'attention' THEN 2 ELSE 1 END
    END::DOUBLE AS causal_flops,
    2 * forward_flops::DOUBLE AS backward_flops,
    -- Full: every layer runs again, the logits do not. Selective: what keeps no activations of attention.
    CASE
        WHEN recompute = 'none' THEN 0
        WHEN recompute = 'selective' AND part <> 'attention' THEN 0
        WHEN recompute = 'full' AND part = 'logits' THEN 0
        WHEN recompute IS NOT NULL THEN forward_flops
    END::DOUBLE AS recomputed_flops
FROM work
-- One unknown size, and the sum would be a part of it.
WHERE (SELECT bool_and(w.forward_flops IS NOT NULL) FROM work AS w)
UNION ALL
SELECT
    'declared' AS part,
    NULL AS layer_count,
    NULL AS parameters,
    flops_per_token / 3 AS forward_flops,
    NULL AS causal_flops,
    flops_per_token * 2 / 3 AS backward_flops,
    NULL AS recomputed_flops
FROM said
WHERE flops_per_token IS NOT NULL;
