// copy2d on its own, with the checked-in Config. A generated kernel is the same but for config.cuh and the entry's
// name.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates -I templates/copy2d/default templates/copy2d/kernel.cu
#include "config.cuh"
#include "copy2d/kernel.cuh"

using tessera::copy2d::kConfig;
using tessera::ptx::TensorMap;

extern "C" __global__ void __launch_bounds__(tessera::copy2d::kNumThreads)
    tessera_copy2d(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap y, int tiles0, int tiles1,
                   int tiles2, int tiles3) {
  tessera::copy2d::kernel<kConfig>(x, y, tiles0, tiles1, tiles2, tiles3);
}
