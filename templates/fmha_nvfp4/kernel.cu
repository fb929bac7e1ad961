// Attention of NVFP4 operands on its own, with a Config that stands here. What its parameters mean: spec/fmha_nvfp4.h.
// Alone: nvcc -std=c++20 -arch=sm_120a -cubin -I templates templates/fmha_nvfp4/kernel.cu
#include "fmha_nvfp4/kernel.cuh"

namespace tessera::fmha_nvfp4 {

inline constexpr Config kConfig{.facts = {.mask = Mask::causal}};

}  // namespace tessera::fmha_nvfp4

using tessera::fmha_nvfp4::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::fmha_nvfp4::num_threads(kConfig),
                                             tessera::fmha_nvfp4::ctas_per_sm(kConfig))
    tessera_fmha_nvfp4(void* q, void* k, void* v, float* delta_s, float* row_shift,
                       const __grid_constant__ tessera::ptx::TensorMap o, float* lse, int batch, int heads_q,
                       int heads_kv, int seqlen_q, int seqlen_k, float softmax_scale) {
  tessera::fmha_nvfp4::kernel<kConfig>({.q = q,
                                        .k = k,
                                        .v = v,
                                        .delta_s = delta_s,
                                        .row_shift = row_shift,
                                        .o = &o,
                                        .lse = lse,
                                        .batch = batch,
                                        .heads_q = heads_q,
                                        .heads_kv = heads_kv,
                                        .seqlen_q = seqlen_q,
                                        .seqlen_k = seqlen_k,
                                        .softmax_scale = softmax_scale});
}
