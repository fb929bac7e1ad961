// The product of a matrix and a vector on its own, with a Config that stands here. Its parameters: spec/gemv.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/gemv/kernel.cu
#include "gemv/kernel.cuh"

namespace tessera::gemv {

inline constexpr Config kConfig{.dtype = DType::f16, .scale_form = ScaleForm::plain};

}  // namespace tessera::gemv

using tessera::gemv::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::gemv::kNumThreads, tessera::gemv::min_ctas(kConfig))
    tessera_gemv(void* a, void* sfa, void* b, void* sfb, void* c, float* a_global_scale, float* b_global_scale, int m,
                 int k, long long b_stride, long long sfb_stride, float alpha) {
  tessera::gemv::kernel<kConfig>(
      {a, sfa, b, sfb, c, a_global_scale, b_global_scale, m, k, b_stride, sfb_stride, alpha});
}
