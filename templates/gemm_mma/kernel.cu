// Matrix product by mma.sync: the entry. What its parameters mean and how it is launched: spec/gemm_mma.h.
// Alone: nvcc -std=c++20 -arch=sm_120a -cubin -I templates templates/gemm_mma/kernel.cu
#include "gemm_mma/kernel.cuh"

namespace tessera::gemm_mma {

inline constexpr Config kConfig{};

}  // namespace tessera::gemm_mma

using tessera::gemm_mma::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::gemm_mma::num_threads(kConfig), 1)
    tessera_gemm_mma(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                     const __grid_constant__ TensorMap d, void* d_pointer, int m, int n, int k, int l, long long ldd,
                     long long d_stride_l, float alpha) {
  // There are no scales: these are never read.
  tessera::gemm_mma::kernel<kConfig>(
      {a,       b,       b,       a, b, b, d, d_pointer, nullptr,    nullptr, nullptr, nullptr, nullptr,
       nullptr, nullptr, nullptr, m, n, k, l, ldd,       d_stride_l, 0,       0,       alpha,   0.0f});
}
