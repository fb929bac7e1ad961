// Dequantisation on its own, with the checked-in Config. What its parameters mean: spec/dequantize.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/dequantize/default
// templates/dequantize/kernel.cu
#include "config.cuh"
#include "dequantize/kernel.cuh"

using tessera::dequantize::kConfig;

extern "C" __global__ void __launch_bounds__(kConfig.threads, tessera::dequantize::min_ctas(kConfig))
    tessera_dequantize(void* values, void* scales, void* y, float* global_scale, long long groups) {
  tessera::dequantize::kernel<kConfig>(values, scales, y, global_scale, groups, 0, 0);
}
