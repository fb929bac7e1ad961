// The packing of weights on its own, with a Config that stands here. Its parameters: spec/pack_weights.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/pack_weights/kernel.cu
#include "pack_weights/kernel.cuh"

namespace tessera::pack_weights {

inline constexpr Config kConfig{.format = WeightFormat::mxfp4};

}  // namespace tessera::pack_weights

using tessera::pack_weights::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::pack_weights::kNumThreads)
    tessera_pack_weights(void* values, void* scales, void* packed, int n, int k) {
  tessera::pack_weights::kernel<kConfig>(values, scales, nullptr, packed, n, k);
}
