// Attention over keys that are values too: the entry. What its parameters mean and how it is launched:
// spec/fmha_latent.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/fmha_latent/default
// templates/fmha_latent/kernel.cu
#include "fmha_latent/kernel.cuh"
#include "wgmma_shapes.cuh"

namespace tessera::fmha_latent {

inline constexpr Config kConfig{};

}  // namespace tessera::fmha_latent

using tessera::fmha_latent::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::fmha_latent::kThreads, 1)
    tessera_fmha_latent(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k, void* o, float* lse,
                        int batch, int heads_q, int heads_kv, int seqlen_q, int seqlen_k, float softmax_scale,
                        long long o_stride_head, long long o_stride_seqlen, long long o_stride_batch) {
  tessera::fmha_latent::kernel<kConfig>({.q = q,
                                         .k = k,
                                         .lse = lse,
                                         .o_rows = o,
                                         .batch = batch,
                                         .heads_q = heads_q,
                                         .heads_kv = heads_kv,
                                         .seqlen_q = seqlen_q,
                                         .seqlen_k = seqlen_k,
                                         .softmax_scale = softmax_scale,
                                         .o_stride_head = o_stride_head,
                                         .o_stride_seqlen = o_stride_seqlen,
                                         .o_stride_batch = o_stride_batch});
}
