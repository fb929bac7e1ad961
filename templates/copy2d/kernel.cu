// copy2d on its own, with a Config that stands here. A generated kernel is the same but for the Config, which comes in
// config.cuh, and the entry's name.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/copy2d/kernel.cu
#include "copy2d/kernel.cuh"

namespace tessera::copy2d {

inline constexpr Config kConfig{};

}  // namespace tessera::copy2d

using tessera::copy2d::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::copy2d::kNumThreads)
    tessera_copy2d(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap y, int tiles0, int tiles1,
                   int tiles2, int tiles3) {
  tessera::copy2d::kernel<kConfig>(x, y, tiles0, tiles1, tiles2, tiles3);
}
