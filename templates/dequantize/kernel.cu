// Dequantisation on its own, with a Config that stands here. What its parameters mean: spec/dequantize.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/dequantize/kernel.cu
#include "dequantize/kernel.cuh"

namespace tessera::dequantize {

inline constexpr Config kConfig{.dtype = DType::bf16, .format = BlockFormat::nvfp4, .global_scale = GlobalScale::given};

}  // namespace tessera::dequantize

using tessera::dequantize::kConfig;

extern "C" __global__ void __launch_bounds__(kConfig.threads, tessera::dequantize::min_ctas(kConfig))
    tessera_dequantize(void* values, void* scales, void* y, float* global_scale, long long groups) {
  tessera::dequantize::kernel<kConfig>(values, scales, y, global_scale, groups, 0, 0);
}
