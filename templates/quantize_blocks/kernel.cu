// The kernel on its own, with a Config that stands here. Its parameters: spec/quantize_blocks.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/quantize_blocks/kernel.cu
#include "quantize_blocks/kernel.cuh"

namespace tessera::quantize_blocks {

inline constexpr Config kConfig{.scale_block = ScaleBlock::square};

}  // namespace tessera::quantize_blocks

using tessera::quantize_blocks::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::quantize_blocks::kNumThreads)
    tessera_quantize_blocks(void* x, void* values, void* factors, int rows, int k) {
  tessera::quantize_blocks::kernel<kConfig>(x, values, factors, rows, k);
}
