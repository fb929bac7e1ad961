// Kernels of LeoYangXY/learn-cuda-cute-triton, each launched as its file does: -DSOURCE='"file"', -DFORM of those
// below. x, y and z are the arguments; a has x times y numbers, b y times z, c as many as the largest.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "launches.cuh"

#define main main_of_theirs
#include SOURCE
#undef main

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  launches::repeat = atoi(argv[1]);
  const int x = launches::argument(argc, argv, 0, 1), y = launches::argument(argc, argv, 1, 1),
            z = launches::argument(argc, argv, 2, 1);
  const long first = long{x} * y, second = long{y} * z, third = std::max({first, second, long{x} * z});
  float *a = launches::numbers<float>(first, 1), *b = launches::numbers<float>(second, 2),
        *c = launches::zeros<float>(third);
  const auto launch = [&] {
#if FORM == 0
    naive_transpose<<<dim3(x / 16, y / 16), dim3(16, 16)>>>(c, a, x, y);
#elif FORM == 1
    mat_transpose_shared_kernel<<<dim3(y / 32, x / 32), dim3(32, 32)>>>(c, a, x, y);
#elif FORM == 2
    mat_transpose_shared_kernel_padding<<<dim3(y / 32, x / 32), dim3(32, 32)>>>(c, a, x, y);
#elif FORM == 3
    softmax_kernel<<<x, 1024>>>(a, c, x, y);
#elif FORM == 4
    online_softmax_kernel<<<x, 1024>>>(a, c, x, y);
#elif FORM == 5
    sgemm_sliced_k_f32_kernel<32, 32, 32, 4, 4><<<dim3(z / 32, x / 32), dim3(8, 8)>>>(a, b, c, x, z, y);
#elif FORM == 6
    sgemm_sliced_k_f32x4_padding_kernel<32, 32, 32, 4, 4><<<dim3(z / 32, x / 32), dim3(8, 8)>>>(a, b, c, x, z, y);
#elif FORM == 7
    sgemv_128_kernel<4><<<x / 4, 128>>>(a, b, c, x, y);
#elif FORM == 8
    eltwise_add_vector<<<x * y / 1024, 256>>>(a, b, c, x * y);
#else
    layer_norm_float4_kernel<256><<<x, y / 4>>>(a, c, 1.0f, 0.0f, x, y);
#endif
  };
  return launches::time("learn-cuda-cute-triton", argc, argv, launch);
}
