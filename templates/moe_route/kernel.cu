// A router on its own, with a Config that stands here. What the parameters of its steps mean: spec/moe_route.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/moe_route/kernel.cu
#include "moe_route/kernel.cuh"

namespace tessera::moe_route {

inline constexpr Config kConfig{};

}  // namespace tessera::moe_route

using tessera::moe_route::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::moe_route::kThreads)
    tessera_moe_route(void* logits, long long logits_stride_m, int* topk_experts, float* topk_weights, int* groups,
                      int* counts, int* indices, float* row_weights, int* slots, int* workspace, float scale, int m,
                      int rows) {
  tessera::moe_route::route<kConfig>({logits, logits_stride_m, nullptr, topk_experts, topk_weights, groups, counts,
                                      indices, row_weights, slots, workspace, scale, m, rows});
}

extern "C" __global__ void __launch_bounds__(tessera::moe_route::kThreads)
    tessera_moe_route_lists(void* logits, long long logits_stride_m, int* topk_experts, float* topk_weights,
                            int* groups, int* counts, int* indices, float* row_weights, int* slots, int* workspace,
                            float scale, int m, int rows) {
  tessera::moe_route::list<kConfig>({logits, logits_stride_m, nullptr, topk_experts, topk_weights, groups, counts,
                                     indices, row_weights, slots, workspace, scale, m, rows});
}
