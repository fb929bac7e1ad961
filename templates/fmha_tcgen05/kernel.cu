// Fused attention forward on tcgen05: the entry. What its parameters mean and how it is launched: spec/fmha_tcgen05.h.
// Alone: nvcc -std=c++20 -arch=sm_100a -cubin -I templates templates/fmha_tcgen05/kernel.cu
#include "fmha_tcgen05/kernel.cuh"
#include "spec/fmha_tcgen05_tiles.h"

namespace tessera::fmha_tcgen05 {

inline constexpr Config kConfig = default_config({});

}  // namespace tessera::fmha_tcgen05

using tessera::fmha_tcgen05::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::fmha_tcgen05::num_threads(kConfig), 1)
    tessera_fmha(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                 const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o, float* lse, int batch,
                 int heads_q, int heads_kv, int seqlen_q, int seqlen_k, float softmax_scale) {
  tessera::fmha_tcgen05::kernel<kConfig>({.q = q,
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
