// Fused attention forward: the entry. What its parameters mean and how it is launched: spec/fmha.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/fmha/default templates/fmha/kernel.cu
#include "fmha/kernel.cuh"
#include "spec/fmha_tiles.h"
#include "wgmma_shapes.cuh"

namespace tessera::fmha {

inline constexpr Config kConfig = default_config({});

}  // namespace tessera::fmha

using tessera::fmha::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::fmha::num_threads(kConfig), tessera::fmha::ctas_per_sm(kConfig))
    tessera_fmha(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                 const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o, float* lse, int batch,
                 int heads_q, int heads_kv, int seqlen_q, int seqlen_k, float softmax_scale) {
  tessera::fmha::kernel<kConfig>({.q = q,
                                  .k = k,
                                  .v = v,
                                  .o = o,
                                  .lse = lse,
                                  .batch = batch,
                                  .heads_q = heads_q,
                                  .heads_kv = heads_kv,
                                  .seqlen_q = seqlen_q,
                                  .seqlen_k = seqlen_k,
                                  .softmax_scale = softmax_scale});
}
