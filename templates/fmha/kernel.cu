// Fused attention forward: the entry. What its parameters mean and how it is launched: spec/fmha.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/fmha/default templates/fmha/kernel.cu
#include "config.cuh"
#include "fmha/kernel.cuh"
#include "wgmma_shapes.cuh"

using tessera::fmha::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::fmha::num_threads(kConfig), tessera::fmha::ctas_per_sm(kConfig))
    tessera_fmha(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                 const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap o, float* lse, int batch,
                 int heads_q, int heads_kv, int seqlen_q, int seqlen_k, float softmax_scale) {
  tessera::fmha::kernel<kConfig>(
      {q, k, v, o, lse, nullptr, nullptr, batch, heads_q, heads_kv, seqlen_q, seqlen_k, softmax_scale});
}
