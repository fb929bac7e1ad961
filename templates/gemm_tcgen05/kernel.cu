// The kernel as it compiles by itself: nvcc -std=c++20 -arch=sm_100a -cubin -I templates
// templates/gemm_tcgen05/kernel.cu
#include "gemm_tcgen05/kernel.cuh"

namespace tessera::gemm_tcgen05 {

inline constexpr Config kConfig{};

}  // namespace tessera::gemm_tcgen05

using tessera::gemm_tcgen05::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::gemm_tcgen05::num_threads(kConfig), 1)
    tessera_gemm_tcgen05(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                         const __grid_constant__ TensorMap d, void* d_pointer, int m, int n, int k, int l,
                         long long ldd, long long d_stride_l, float alpha) {
  tessera::gemm_tcgen05::kernel<kConfig>(
      {a,       b,       b,       a, b, b, d, d_pointer, nullptr,    nullptr, nullptr, nullptr, nullptr,
       nullptr, nullptr, nullptr, m, n, k, l, ldd,       d_stride_l, 0,       0,       alpha,   0.0f});
}
