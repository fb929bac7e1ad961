// mHC's product on its own, with a Config that stands here. What its parameters mean: spec/mhc_product.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/mhc_product/kernel.cu
#include "mhc_product/kernel.cuh"

namespace tessera::mhc_product {

inline constexpr Config kConfig{};

}  // namespace tessera::mhc_product

using tessera::mhc_product::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::mhc_product::threads(kConfig),
                                             tessera::mhc_product::min_ctas(kConfig))
    tessera_mhc_product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d,
                        long long d_stride_m, long long d_stride_split, float* sum_squares,
                        long long sum_squares_stride_split, int m, int k) {
  tessera::mhc_product::kernel<kConfig>(
      {a, b, d, d_stride_m, d_stride_split, sum_squares, sum_squares_stride_split, m, k});
}
