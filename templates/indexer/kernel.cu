// An indexer's scores on their own, with a Config that stands here. What its parameters mean: spec/indexer.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/indexer/default templates/indexer/kernel.cu
#include "indexer/kernel.cuh"
#include "wgmma_shapes.cuh"

namespace tessera::indexer {

inline constexpr Config kConfig{};

}  // namespace tessera::indexer

using tessera::indexer::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::indexer::threads(kConfig), tessera::indexer::min_ctas(kConfig))
    tessera_indexer(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap weights,
                    const __grid_constant__ TensorMap keys, const __grid_constant__ TensorMap scales, const int* first,
                    const int* last, void* scores, long long scores_stride_m, long long table_stride, int m, int n,
                    int columns, int max_pages) {
  tessera::indexer::kernel<kConfig>(
      {q, weights, keys, scales, q, first, last, scores, scores_stride_m, table_stride, m, n, columns, max_pages});
}
