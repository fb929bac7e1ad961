// What registers cost that a thread does not have, and what a launch in few CTAs reads and writes: CTAs that load some
// words a thread, meet, and store them. One JSON object a line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a held.cu -o held && ./held > held.jsonl
//
// Each thread loads `words` bf16 values of two tensors, holds their sums as fp32 until all of the CTA have a sum of
// squares, then scales and stores them. us: the L2 overwritten before; us_warm: launches one after the other.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdio>

#include "micro.cuh"

namespace {

constexpr std::size_t kBytes = std::size_t{256} << 20;
uint4* g_a = nullptr;
uint4* g_b = nullptr;
uint4* g_to = nullptr;

template <int kThreads, int kPieces>
__global__ void __launch_bounds__(kThreads) held(const uint4* a, const uint4* b, uint4* to) {
  __shared__ float sums[32];
  const std::size_t first = std::size_t{blockIdx.x} * kThreads * kPieces + threadIdx.x;
  uint4 va[kPieces], vb[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) va[i] = a[first + i * kThreads];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) vb[i] = b[first + i * kThreads];
  float x[kPieces * 8], sum = 0;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const unsigned wa[] = {va[i].x, va[i].y, va[i].z, va[i].w}, wb[] = {vb[i].x, vb[i].y, vb[i].z, vb[i].w};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float p = __uint_as_float(e % 2 ? wa[e / 2] & 0xFFFF0000u : wa[e / 2] << 16);
      const float q = __uint_as_float(e % 2 ? wb[e / 2] & 0xFFFF0000u : wb[e / 2] << 16);
      x[8 * i + e] = p + q;
      sum = fmaf(x[8 * i + e], x[8 * i + e], sum);
    }
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float all = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) all += sums[i];
  const float factor = rsqrtf(all + 1);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    unsigned w[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(x[8 * i + 2 * e] * factor, x[8 * i + 2 * e + 1] * factor);
      w[e] = reinterpret_cast<const unsigned&>(pair);
    }
    to[first + i * kThreads] = make_uint4(w[0], w[1], w[2], w[3]);
  }
}

template <int kThreads, int kPieces>
void time_held() {
  cudaFuncAttributes has{};
  CHECK(cudaFuncGetAttributes(&has, held<kThreads, kPieces>));
  int per_sm = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, held<kThreads, kPieces>, kThreads, 0));
  for (const int ctas : {8, 16, 32, 64, 132, 264, 528}) {
    if (std::size_t{16} * kThreads * kPieces * ctas > kBytes) continue;
    const auto run = [&] { held<kThreads, kPieces><<<ctas, kThreads>>>(g_a, g_b, g_to); };
    const double cold = median_us(7, true, run), warm = median_us(7, false, run);
    printf(
        "{\"what\": \"held\", \"threads\": %d, \"words\": %d, \"registers\": %d, \"local_bytes\": %d, \"ctas_per_sm\": "
        "%d, "
        "\"ctas\": %d, \"us\": %.2f, \"us_warm\": %.2f}\n",
        kThreads, kPieces * 8, has.numRegs, static_cast<int>(has.localSizeBytes), per_sm, ctas, cold, warm);
    fflush(stdout);
  }
}

}  // namespace

int main() {
  CHECK(cudaMalloc(&g_a, kBytes));
  CHECK(cudaMalloc(&g_b, kBytes));
  CHECK(cudaMalloc(&g_to, kBytes));
  CHECK(cudaMemset(g_a, 0, kBytes));
  CHECK(cudaMemset(g_b, 0, kBytes));
  time_held<1024, 2>();
  time_held<1024, 4>();
  time_held<1024, 5>();
  time_held<1024, 6>();
  time_held<1024, 7>();
  time_held<1024, 8>();
  time_held<512, 2>();
  time_held<512, 4>();
  time_held<512, 7>();
  time_held<512, 8>();
  time_held<512, 14>();
  time_held<256, 1>();
  time_held<256, 4>();
  time_held<256, 8>();
  time_held<256, 14>();
  time_held<64, 8>();
  time_held<128, 4>();
}
