// The conversion of scales on its own, with a Config that stands here. Its parameters: spec/convert_scales.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/convert_scales/kernel.cu
#include "convert_scales/kernel.cuh"

namespace tessera::convert_scales {

inline constexpr Config kConfig{.to = ScaleForm::tile};

}  // namespace tessera::convert_scales

using tessera::convert_scales::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::convert_scales::kNumThreads)
    tessera_convert_scales(void* from, void* to, int rows, int blocks) {
  tessera::convert_scales::kernel<kConfig>(from, to, rows, blocks);
}
