// Matrix product: the entry. What its parameters mean and how it is launched: spec/gemm.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/gemm/default templates/gemm/kernel.cu
#include "gemm/kernel.cuh"
#include "wgmma_shapes.cuh"

namespace tessera::gemm {

inline constexpr Config kConfig{};

}  // namespace tessera::gemm

using tessera::gemm::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::gemm::num_threads(kConfig), 1)
    tessera_gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                 const __grid_constant__ TensorMap d, void* d_pointer, int m, int n, int k, int l, long long ldd,
                 long long d_stride_l, float alpha) {
  tessera::gemm::kernel<kConfig>(
      {a, b, d, d_pointer, nullptr, nullptr, nullptr, nullptr, {}, {}, m, n, k, l, ldd, d_stride_l, 0, 0, alpha, 0.0f});
}
