// The last step of attention_quantize on its own, with a Config that stands here. What its parameters mean:
// spec/attention_quantize.h. Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates
// templates/attention_quantize/kernel.cu
#include "attention_quantize/kernel.cuh"

namespace tessera::attention_quantize {

inline constexpr Config kConfig{.head_dim = 128, .conversion = Conversion::software};

}  // namespace tessera::attention_quantize

using tessera::attention_quantize::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::attention_quantize::kThreads,
                                             tessera::attention_quantize::kMinCtas)
    tessera_attention_quantize(const __grid_constant__ tessera::attention_quantize::Params params) {
  tessera::attention_quantize::quantize_kernel<kConfig>(params);
}
