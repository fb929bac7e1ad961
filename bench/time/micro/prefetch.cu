// Bulk copies to the L2 alone (cp.async.bulk.prefetch): what the thread that asks takes, whether the copies of a ring
// beside it take longer, and what loads by lanes wait for what was asked for so. One JSON object a line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a prefetch.cu -o prefetch && ./prefetch > prefetch.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

constexpr int kSlots = 8, kSlotBytes = 16 * 1024;
unsigned char *g_from = nullptr, *g_other = nullptr;
long long* g_out = nullptr;

__device__ __forceinline__ void ask(const unsigned char* at, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
}

/// One thread asks for `count` rows of `bytes`, `pitch` apart, each CTA its own.
__global__ void asks(const unsigned char* from, int count, int bytes, long pitch, long long* out) {
  const unsigned char* at = from + blockIdx.x * count * pitch;
  for (int pass = 0; pass < 2; ++pass) {
    const long long t0 = now();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      ask(at, bytes);
      at += pitch;
    }
    const long long t1 = now();
    if (pass == 1 || count > 32) out[blockIdx.x] = t1 - t0;
    at = from + (gridDim.x + blockIdx.x) * count * pitch;
    const long long until = now() + 20000;
    while (now() < until) {
    }
  }
}

/// Lanes load 128 rows of 128 bytes, which were asked for so many cycles before, or not: cycles until all are there.
__global__ void loads(const unsigned char* from, long pitch, int ahead, long long* out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned char* rows = from + (blockIdx.x + 1) * 128 * pitch;
  if (threadIdx.x == 0 && ahead > 0) {
#pragma unroll 1
    for (int i = 0; i < 128; ++i) ask(rows + i * pitch, 128);
  }
  const unsigned first = *reinterpret_cast<const volatile unsigned*>(from + warp * 128);  // addresses are translated
  const long long until = now() + (ahead > 0 ? ahead : 4000) + (first == 0x1234567);
  while (now() < until) {
  }
  __syncthreads();
  const long long t0 = now();
  uint4 v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    v[i] = __ldcg(reinterpret_cast<const uint4*>(rows + (warp * 32 + i * 4 + lane / 8) * pitch) + lane % 8);
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  if (__syncthreads_or(sum == 0x12345678) == 2) out[0] = 0;
  const long long t1 = now();
  if (threadIdx.x == 0) out[blockIdx.x] = t1 - t0;
}

/// A ring of copies of 16 KiB from the L2, as fast as they come, and `asked` rows of 128 bytes beside each.
__global__ void ring(const unsigned char* from, int steps, int asked, const unsigned char* rows, long pitch,
                     long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 bars[kSlots];
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kSlots; ++i)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_of(bars + i)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  const unsigned char* row = rows + static_cast<long>(blockIdx.x) * steps * asked * pitch;
  const auto issue = [&](int i) {
    const int slot = i % kSlots;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_of(bars + slot)), "r"(kSlotBytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     smem_of(smem) + slot * kSlotBytes),
                 "l"(from + (i * 132 + blockIdx.x) % 512 * kSlotBytes), "r"(kSlotBytes), "r"(smem_of(bars + slot))
                 : "memory");
#pragma unroll 1
    for (int k = 0; k < asked; ++k) {
      ask(row, 128);
      row += pitch;
    }
  };
  for (int i = 0; i < kSlots; ++i) issue(i);
  const long long t0 = now();
#pragma unroll 1
  for (int i = 0; i < steps - kSlots; ++i) {
    wait(smem_of(bars + i % kSlots), i / kSlots & 1);
    issue(i + kSlots);
  }
  const long long t1 = now();
  for (int i = steps - kSlots; i < steps; ++i) wait(smem_of(bars + i % kSlots), i / kSlots & 1);
  out[blockIdx.x] = (t1 - t0) / (steps - kSlots);
}

double middle(int ctas) {
  CHECK(cudaDeviceSynchronize());
  std::vector<double> all;
  for (int i = 0; i < ctas; ++i) all.push_back(static_cast<double>(g_out[i]));
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}
void flush() {
  CHECK(cudaMemset(g_other, 1, 120 << 20));
  CHECK(cudaDeviceSynchronize());
}

}  // namespace

int main() {
  g_from = reinterpret_cast<unsigned char*>(cleared(2L << 30));
  g_other = reinterpret_cast<unsigned char*>(cleared(120 << 20));
  CHECK(cudaMallocManaged(&g_out, 8 * 1024));
  for (const int ctas : {1, 132})
    for (const int bytes : {64, 128, 256, 512})
      for (const int count : {8, 32, 128}) {
        flush();
        asks<<<ctas, 32>>>(g_from, count, bytes, 8192, g_out);
        const double cycles = middle(ctas);
        printf("{\"what\": \"asks\", \"ctas\": %d, \"bytes\": %d, \"count\": %d, \"cycles_of_one\": %.1f}\n", ctas,
               bytes, count, cycles / count);
        fflush(stdout);
      }
  for (const int ctas : {1, 132})
    for (const int ahead : {0, 500, 1000, 2000, 4000, 8000}) {
      flush();
      loads<<<ctas, 128>>>(g_from, 8192, ahead, g_out);
      printf("{\"what\": \"loads behind\", \"ctas\": %d, \"ahead\": %d, \"cycles\": %.0f}\n", ctas, ahead,
             middle(ctas));
      fflush(stdout);
    }
  CHECK(cudaFuncSetAttribute(ring, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  for (const int ctas : {1, 132})
    for (const int asked : {0, 1, 2, 4, 8, 16}) {
      const int steps = 72;
      for (int i = 0; i < 2; ++i) ring<<<ctas, 32, 200 * 1024>>>(g_from, steps, 0, g_from, 8192, g_out);
      ring<<<ctas, 32, 200 * 1024>>>(g_from, steps, asked, g_from + (16 << 20), 8192, g_out);
      printf("{\"what\": \"ring beside\", \"ctas\": %d, \"asked\": %d, \"cycles_of_step\": %.0f}\n", ctas, asked,
             middle(ctas));
      fflush(stdout);
    }
}
