// Product with 4-bit weights: the entry. What its parameters mean and how it is launched: spec/gemm_weights.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/gemm_weights/default
// templates/gemm_weights/kernel.cu
#include "gemm_weights/kernel.cuh"
#include "wgmma_shapes.cuh"

namespace tessera::gemm_weights {

inline constexpr Config kConfig{};

}  // namespace tessera::gemm_weights

using tessera::gemm_weights::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::gemm_weights::num_threads(kConfig), 1)
    tessera_gemm_weights(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap d, void* b,
                         void* d_pointer, int m, int n, int k, int l, long long ldd, long long d_stride_l,
                         float alpha) {
  tessera::gemm_weights::kernel<kConfig>(
      {a, d, b, d_pointer, nullptr, nullptr, nullptr, nullptr, m, n, k, l, ldd, d_stride_l, 0, 0, alpha, 0.0f});
}
