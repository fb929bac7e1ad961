// What a warp's loads wait beside copies: each load when the last one is there, while another thread of the
// multiprocessor has bulk copies under way, so many at once, of the L2 or of memory; or has none. One JSON object a
// line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a lanes.cu -o lanes && ./lanes > lanes.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

constexpr int kPiece = 16384, kMostSlots = 12, kLoads = 400;
constexpr unsigned kWords = 1 << 20;  // of the chain: 4 MiB, which the L2 has

/// `chain` has the number of the next word in each word.
__global__ void __launch_bounds__(64)
    loads(const unsigned char* from, std::size_t span, int slots, const unsigned* chain, U64* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 full[kMostSlots];
  __shared__ volatile int is_over;
  if (threadIdx.x == 0) {
    is_over = 0;
    for (int i = 0; i < slots; ++i)
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_of(&full[i])) : "memory");
  }
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    std::size_t at = std::size_t{blockIdx.x} * kPiece % span;
    int slot = 0, parity = 1, copies = 0;
    long long t0 = now();
    for (; is_over == 0 && slots > 0; ++copies) {
      const unsigned bar = smem_of(&full[slot]);
      if (copies >= slots) wait(bar, parity);
      if (copies == slots) t0 = now();
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(kPiece) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       smem_of(smem) + slot * kPiece),
                   "l"(from + at), "r"(kPiece), "r"(bar)
                   : "memory");
      at += std::size_t{gridDim.x} * kPiece;
      if (at >= span) at = std::size_t{blockIdx.x} * kPiece % span;
      if (++slot == slots) slot = 0, parity ^= 1;
    }
    out[2 * blockIdx.x + 1] = copies > slots ? U64(copies - slots) * kPiece * 1000 / U64(now() - t0) : 0;
    for (int i = 0; i < slots && copies >= slots; ++i) {  // none is under way when the CTA ends
      wait(smem_of(&full[slot]), parity);
      if (++slot == slots) slot = 0, parity ^= 1;
    }
  } else if (threadIdx.x == 32) {
    const long long until = now() + 20000;  // copies are under way
    while (now() < until) {
    }
    unsigned at = blockIdx.x * 7919 % kWords;
    const long long t0 = now();
    for (int i = 0; i < kLoads; ++i) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(chain + at) : "memory");
    out[2 * blockIdx.x] = now() - t0 + (at == kWords);
    is_over = 1;
  }
}

}  // namespace

int main() {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  unsigned char* memory = nullptr;
  unsigned* chain = nullptr;
  U64* out = nullptr;
  CHECK(cudaMalloc(&memory, kBytes));
  CHECK(cudaMemset(memory, 0, kBytes));
  std::vector<unsigned> next(kWords);
  for (unsigned i = 0; i < kWords; ++i) next[i] = (i + 40503 * 8) % kWords;
  CHECK(cudaMalloc(&chain, kWords * 4));
  CHECK(cudaMemcpy(chain, next.data(), kWords * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMallocManaged(&out, 1 << 20));
  CHECK(cudaFuncSetAttribute(loads, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSlots * kPiece));
  for (const int ctas : {1, 132})
    for (const std::size_t megabytes : {8, 1024})
      for (const int slots : {0, 1, 2, 4, 8, 12}) {
        for (int pass = 0; pass < 2; ++pass) {
          loads<<<ctas, 64, kMostSlots * kPiece>>>(memory, megabytes << 20, slots, chain, out);
          CHECK(cudaDeviceSynchronize());
        }
        std::vector<U64> cycles, rates;
        for (int i = 0; i < ctas; ++i) cycles.push_back(out[2 * i]), rates.push_back(out[2 * i + 1]);
        std::sort(cycles.begin(), cycles.end()), std::sort(rates.begin(), rates.end());
        printf(
            "{\"what\": \"loads beside copies\", \"ctas\": %d, \"megabytes\": %zu, \"copies_under_way\": %d, "
            "\"cycles_of_load\": %.1f, \"bytes_per_clock_copied\": %.1f}\n",
            ctas, megabytes, slots, static_cast<double>(cycles[ctas / 2]) / kLoads,
            static_cast<double>(rates[ctas / 2]) / 1000);
        fflush(stdout);
      }
}
