// Quantisation on its own, with the checked-in Config. What its parameters mean: spec/quantize.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/quantize/default templates/quantize/kernel.cu
#include "config.cuh"
#include "quantize/kernel.cuh"

using tessera::quantize::kConfig;

extern "C" __global__ void __launch_bounds__(kConfig.threads, tessera::quantize::min_ctas(kConfig))
    tessera_quantize(void* x, void* values, void* scales, float* global_scale, long long groups, int rows, int k) {
  tessera::quantize::kernel<kConfig>(x, values, scales, global_scale, nullptr, groups, rows, k);
}
