"""Kernels of a transformer as PyTorch launches them on an H200: names and shares of time."""

from __future__ import annotations

# (name, share of the segment's time); a share of None is a memset of about 1.5 us.
Kernels = tuple[tuple[str, float | None], ...]

_AT = "void at::native::"
_MEMSET: tuple[str, None] = ("Memset (Device)", None)
_LAYER_NORM = f"{_AT}(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
_LAYER_NORM_GRAD = f"{_AT}(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float>"
_GAMMA_BETA = f"{_AT}(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>"
_ADD = f"{_AT}vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>"
_GELU = f"{_AT}vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl>"
_GELU_GRAD = f"{_AT}vectorized_elementwise_kernel<8, at::native::GeluBackwardCUDAKernelImpl>"
_FILL = f"{_AT}vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"
_CAST = f"{_AT}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"
_FOREACH = (
    f"{_AT}(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)"
)
_ADAM = f"{_FOREACH}::FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"

FORWARD: Kernels = (
    (_LAYER_NORM, 255),
    _MEMSET,
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN", 790),
    _MEMSET,
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", 450),
    _MEMSET,
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN", 290),
    (_ADD, 100),
    (_LAYER_NORM, 255),
    _MEMSET,
    ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT", 1125),
    (_GELU, 560),
    _MEMSET,
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN", 1100),
    (_ADD, 103),
)

# Begins with a memset: what ends a gap is then not a kernel of a compute class.
BACKWARD: Kernels = (
    _MEMSET,
    ("nvjet_sm90_tst_192x128_64x5_1x4_h_bz_coopB_NTT", 1726),
    _MEMSET,
    ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", 1200),
    (_GELU_GRAD, 788),
    _MEMSET,
    ("nvjet_sm90_tst_128x192_64x5_4x1_v_bz_coopB_NTN", 1391),
    _MEMSET,
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNN", 1008),
    (_LAYER_NORM_GRAD, 200),
    (_GAMMA_BETA, 250),
    (_ADD, 100),
    ("nvjet_sm90_tst_128x160_64x5_4x1_v_bz_NTT", 280),
    _MEMSET,
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNN", 290),
    _MEMSET,
    ("void cudnn::fusion::compute_dot_do_o_specialized<true, 128>", 123),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128", 1230),
    ("void cudnn::fusion::convert_dq_to_16bits<true>", 105),
    (f"{_AT}(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4>", 1215),
    (f"{_AT}elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast>", 972),
    _MEMSET,
    ("nvjet_sm90_tst_128x160_64x5_4x2_h_bz_NTT", 835),
    _MEMSET,
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNN", 800),
    (_LAYER_NORM_GRAD, 200),
    (_GAMMA_BETA, 230),
    (_ADD, 82),
)

EMBEDDING: Kernels = ((f"{_AT}vectorized_gather_kernel<16, long>", 1),)
EMBEDDING_BACKWARD: Kernels = (
    ("void (anonymous namespace)::elementwise_kernel_with_index<int>", 5),
    _MEMSET,
    ("void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortHistogramKernel", 20),
    ("void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel", 50),
    (f"{_AT}(anonymous namespace)::compute_grad_weight<c10::BFloat16>", 245),
    (f"{_AT}(anonymous namespace)::sum_and_scatter<c10::BFloat16, long>", 180),
)
HEAD: Kernels = (
    _MEMSET,
    ("nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_TNN", 2520),
    (_CAST, 2490),
    (f"{_AT}(anonymous namespace)::cunn_SoftMaxForwardReg<float, float, float>", 3070),
    (f"{_AT}(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>", 88),
)
LOSS_BACKWARD: Kernels = (
    (_FILL, 674),
    (f"{_AT}(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float>", 55),
    (f"{_AT}(anonymous namespace)::cunn_SoftMaxBackwardSmem<4, float, float, float>", 2366),
    (f"{_AT}vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>", 729),
)
HEAD_BACKWARD: Kernels = (
    _MEMSET,
    ("nvjet_sm90_tst_128x160_64x5_4x1_v_bz_NTT", 2630),
    _MEMSET,
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNN", 2195),
)
OPTIMIZER: Kernels = ((_ADAM, 287), (_ADAM, 193), (_ADAM, 57))

ACCUMULATE = _ADD
COPY_IN = f"{_FOREACH}::TensorListMetadata<2>, CopyFunctor<c10::BFloat16, float, 2, 1, 1>>"
COPY_OUT = "at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**, long*)"
CHUNK_CAT = "void at::native::detail::chunk_cat_cuda_kernel<char, char>(char**, char*, long*)"
POST = _CAST
COPY = "Memcpy HtoD (Pinned -> Device)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

MEMSET_NS = 1_500
COPY_NS = 4_000
