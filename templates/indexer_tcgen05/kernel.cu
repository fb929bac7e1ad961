// An indexer's scores on tcgen05 on their own, with a Config that stands here. What its parameters mean:
// spec/indexer.h.
// Alone: nvcc -std=c++20 -arch=sm_100a -cubin -I templates templates/indexer_tcgen05/kernel.cu
#include "indexer_tcgen05/kernel.cuh"

namespace tessera::indexer_tcgen05 {

inline constexpr Config kConfig{.mma_kind = MmaKind::tcgen05_f16, .stages = 8};

}  // namespace tessera::indexer_tcgen05

using tessera::indexer_tcgen05::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::indexer::threads(kConfig), tessera::indexer::min_ctas(kConfig))
    tessera_indexer_tcgen05(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap weights,
                            const __grid_constant__ TensorMap keys, const __grid_constant__ TensorMap scales,
                            const int* first, const int* last, void* scores, long long scores_stride_m,
                            long long table_stride, int m, int n, int columns, int max_pages) {
  tessera::indexer_tcgen05::kernel<kConfig>(
      {q, weights, keys, scales, q, first, last, scores, scores_stride_m, table_stride, m, n, columns, max_pages});
}
