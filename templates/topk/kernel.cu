// topk on its own, with a Config that stands here. What the entry's parameters mean: spec/topk.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/topk/kernel.cu
#include "topk/kernel.cuh"

namespace tessera::topk {

inline constexpr Config kConfig{};

}  // namespace tessera::topk

using tessera::topk::kConfig;

extern "C" __global__ void __launch_bounds__(kConfig.threads, tessera::topk::min_ctas(kConfig))
    tessera_topk(const void* scores, long long scores_stride_m, int* indices, long long indices_stride_m, int n) {
  tessera::topk::kernel<kConfig>({scores, scores_stride_m, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr,
                                  indices, indices_stride_m, nullptr, 0, nullptr, n, 0, 0, 0});
}
