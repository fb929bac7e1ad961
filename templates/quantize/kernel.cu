// Quantisation on its own, with a Config that stands here. What its parameters mean: spec/quantize.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/quantize/kernel.cu
#include "quantize/kernel.cuh"

namespace tessera::quantize {

inline constexpr Config kConfig{.dtype = DType::bf16, .format = BlockFormat::nvfp4, .global_scale = GlobalScale::given};

}  // namespace tessera::quantize

using tessera::quantize::kConfig;

extern "C" __global__ void __launch_bounds__(kConfig.threads, tessera::quantize::min_ctas(kConfig))
    tessera_quantize(void* x, void* values, void* scales, float* global_scale, long long groups, int rows, int k) {
  tessera::quantize::kernel<kConfig>(x, values, scales, global_scale, nullptr, groups, rows, k);
}
