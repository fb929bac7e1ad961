// The merge of parts of attention on its own, with a Config that stands here. What its parameters mean: spec/merge.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/merge/kernel.cu
#include "merge/kernel.cuh"

namespace tessera::merge {

inline constexpr Config kConfig{.head_dim_v = 128, .dtype = DType::bf16, .sink = Sink::per_head};

}  // namespace tessera::merge

using tessera::merge::kConfig;

extern "C" __global__ void __launch_bounds__(kConfig.threads, tessera::merge::min_ctas(kConfig))
    tessera_merge(void* o_parts, float* lse_parts, void* o, float* lse, float* sink, int parts, int rows, int heads_q,
                  int seqlen_q, long long o_parts_stride_part, long long o_parts_stride_batch,
                  long long o_parts_stride_seqlen, long long o_parts_stride_head, long long lse_parts_stride_part,
                  long long lse_parts_stride_batch, long long lse_parts_stride_head, long long o_stride_batch,
                  long long o_stride_seqlen, long long o_stride_head) {
  tessera::merge::kernel<kConfig>({o_parts, lse_parts, o, lse, sink, parts, rows, heads_q, seqlen_q,
                                   o_parts_stride_part, o_parts_stride_batch, o_parts_stride_seqlen,
                                   o_parts_stride_head, lse_parts_stride_part, lse_parts_stride_batch,
                                   lse_parts_stride_head, o_stride_batch, o_stride_seqlen, o_stride_head});
}
