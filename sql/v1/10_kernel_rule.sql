-- view:       v1.kernel_rule
-- purpose:    Ordered rules that give a device op its class from its name; the first match counts.
-- grain:      rule_id
-- depends-on: -
-- materialise: no
-- since:      1
-- columns:
--   rule_id     VARCHAR  -  Stable name of the rule.
--   priority    INTEGER  -  Rules are tried in this order.
--   pattern     VARCHAR  -  LIKE pattern on the lower-case kernel name.
--   time_class  VARCHAR  -  compute, communication or packing.
--   op_class    VARCHAR  -  Finer class within time_class.
CREATE OR REPLACE VIEW v1.kernel_rule AS
SELECT
    rule_id,
    (row_number() OVER ())::INTEGER AS priority,
    pattern,
    time_class,
    op_class
FROM (
    VALUES
    -- Communication first: a fused communication kernel may carry a compute word in its name.
    ('nccl', '%nccl%', 'communication', 'nccl'),
    ('nvshmem', '%nvshmem%', 'communication', 'nvshmem'),
    ('deep_ep', '%deep_ep%', 'communication', 'deep_ep'),
    ('deepep', '%deepep%', 'communication', 'deep_ep'),
    ('hybrid_ep', '%hybrid_ep%', 'communication', 'hybrid_ep'),
    ('rdma', '%rdma%', 'communication', 'transport'),
    ('mscclpp', '%mscclpp%', 'communication', 'transport'),
    ('custom_all_reduce', '%cross_device_reduce%', 'communication', 'transport'),
    ('one_shot', '%one_shot_all_reduce%', 'communication', 'transport'),
    ('two_shot', '%two_shot_all_reduce%', 'communication', 'transport'),
    ('multimem', '%multimem_%', 'communication', 'transport'),
    -- Packing by a name that is used for nothing else. Generic copies need an annotation (v1.op).
    ('fsdp_copy_out', '%split_with_sizes_copy%', 'packing', 'copy_out'),
    ('fsdp_chunk_cat', '%chunk_cat%', 'packing', 'chunk_cat'),
    ('moe_permute', '%moe_permute%', 'packing', 'permute'),
    ('moe_unpermute', '%moe_unpermute%', 'packing', 'permute'),
    ('permute_kernel', '%permute_kernel%', 'packing', 'permute'),
    ('attention_flash', '%flash%', 'compute', 'attention'),
    ('attention_fmha', '%fmha%', 'compute', 'attention'),
    ('attention_sdpa', '%sdpa%', 'compute', 'attention'),
    ('attention_word', '%attention%', 'compute', 'attention'),
    ('attention_cudnn_dot', '%compute_dot_do_o%', 'compute', 'attention'),
    ('attention_cudnn_dq', '%convert_dq%', 'compute', 'attention'),
    ('attention_paged', '%paged_attn%', 'compute', 'attention'),
    ('optimizer_adam', '%adam%', 'compute', 'optimizer'),
    ('optimizer_fused', '%fusedoptimizer%', 'compute', 'optimizer'),
    ('optimizer_sgd', '%sgd%', 'compute', 'optimizer'),
    ('optimizer_lamb', '%lamb\_%', 'compute', 'optimizer'),
    ('optimizer_lamb_functor', '%lambfunctor%', 'compute', 'optimizer'),
    ('optimizer_muon', '%muon%', 'compute', 'optimizer'),
    ('gemm_word', '%gemm%', 'compute', 'gemm'),
    ('gemm_nvjet', '%nvjet%', 'compute', 'gemm'),
    ('gemm_cutlass', '%cutlass%', 'compute', 'gemm'),
    ('gemm_cijk', 'cijk_%', 'compute', 'gemm'),
    ('gemm_gemv', '%gemv%', 'compute', 'gemm'),
    ('gemm_matmul', '%matmul%', 'compute', 'gemm'),
    ('gemm_mm', 'triton%\_mm\_%', 'compute', 'gemm'),
    ('gemm_conv', '%conv%fprop%', 'compute', 'gemm'),
    ('gemm_dgrad', '%dgrad%', 'compute', 'gemm'),
    ('gemm_wgrad', '%wgrad%', 'compute', 'gemm'),
    ('gemm_implicit', '%implicit_convolve%', 'compute', 'gemm'),
    ('norm_layer', '%layer_norm%', 'compute', 'norm'),
    ('norm_layernorm', '%layernorm%', 'compute', 'norm'),
    ('norm_gamma_beta', '%gammabeta%', 'compute', 'norm'),
    ('norm_rms', '%rmsnorm%', 'compute', 'norm'),
    ('norm_rms2', '%rms_norm%', 'compute', 'norm'),
    ('norm_batch', '%batch_norm%', 'compute', 'norm'),
    ('norm_bn', '%batchnorm%', 'compute', 'norm'),
    ('norm_group', '%group_norm%', 'compute', 'norm'),
    ('norm_bn_fw', '%bn_fw%', 'compute', 'norm'),
    ('norm_bn_bw', '%bn_bw%', 'compute', 'norm'),
    ('embedding_word', '%embedding%', 'compute', 'embedding'),
    ('embedding_gather', '%vectorized_gather%', 'compute', 'embedding'),
    ('embedding_index', '%index_select%', 'compute', 'embedding'),
    ('embedding_grad', '%compute_grad_weight%', 'compute', 'embedding'),
    ('embedding_scatter', '%sum_and_scatter%', 'compute', 'embedding'),
    ('embedding_segment', '%partial%segment%', 'compute', 'embedding'),
    ('reduction_softmax', '%softmax%', 'compute', 'reduction'),
    ('reduction_reduce', '%reduce%', 'compute', 'reduction'),
    ('reduction_sort', '%sort%', 'compute', 'reduction'),
    ('reduction_scan', '%scan%', 'compute', 'reduction'),
    ('reduction_topk', '%topk%', 'compute', 'reduction'),
    ('reduction_triton', 'triton_red_%', 'compute', 'reduction'),
    ('reduction_triton_persistent', 'triton_per_%', 'compute', 'reduction'),
    ('elementwise_word', '%elementwise%', 'compute', 'elementwise'),
    ('elementwise_foreach', '%multi_tensor_apply%', 'compute', 'elementwise'),
    ('elementwise_triton', 'triton_poi_%', 'compute', 'elementwise'),
    ('elementwise_cat', '%catarray%', 'compute', 'elementwise'),
    ('elementwise_fill', '%fill%', 'compute', 'elementwise'),
    ('elementwise_copy', '%copy_kernel%', 'compute', 'elementwise'),
    ('unmatched', '%', 'compute', 'other')
) AS rules (rule_id, pattern, time_class, op_class);
