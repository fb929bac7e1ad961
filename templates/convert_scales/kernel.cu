// The conversion of scales on its own, with the checked-in Config. What its parameters mean: spec/convert_scales.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/convert_scales/default
//        templates/convert_scales/kernel.cu
#include "config.cuh"
#include "convert_scales/kernel.cuh"

using tessera::convert_scales::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::convert_scales::kNumThreads)
    tessera_convert_scales(void* from, void* to, int rows, int blocks) {
  tessera::convert_scales::kernel<kConfig>(from, to, rows, blocks);
}
