// What a small kernel's time is made of: a launch, first copies, waits and stores, one more each time, the L2
// overwritten before. One JSON object a line: microseconds between two events, and from the first CTA's start to the
// last one's end by the GPU's timer. Runs on the emulator's clock too (`tessera emulate --time h200 -- ./small`), so
// that a step that the model has wrong shows.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=[sm_90a,compute_90a] small.cu -o small && ./small > small.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "micro.cuh"

namespace {

constexpr int kSmem = 200 * 1024, kThreads = 384, kPiece = 16384;

/// Of a CTA: `rounds` times `copies` bulk loads of 16 KiB of its own and a wait; then `stores` bulk stores of 16 KiB,
/// or `words` plain stores of 16 bytes by each thread; `plain` loads of 16 bytes by each thread, which wait for each
/// other.
struct What {
  int rounds, copies, stores, words, plain;
};

__global__ void __launch_bounds__(kThreads) probe(What what, const unsigned char* from, unsigned char* to, U64* times) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 word;
  const U64 begin = nanoseconds();
  const unsigned bar = smem_of(&word), data = smem_of(smem);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  }
  __syncthreads();
  const unsigned char* at = from + static_cast<U64>(blockIdx.x) * kPiece * 32;
  if (what.rounds > 0) {
    for (int round = 0; round < what.rounds; ++round) {
      if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(kPiece * what.copies)
                     : "memory");
        for (int i = 0; i < what.copies; ++i, at += kPiece)
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                           data + i * kPiece),
                       "l"(at), "r"(kPiece), "r"(bar)
                       : "memory");
      }
      wait(bar, round & 1);
    }
  }
  unsigned sum = 0;
  for (int i = 0; i < what.plain; ++i) {
    uint4 v;
    asm volatile(
        "ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from + static_cast<U64>(blockIdx.x) * kPiece * 32 + threadIdx.x * 16 + i * kThreads * 16 + sum % 2));
    sum += v.x & 2;
  }
  unsigned char* const out = to + static_cast<U64>(blockIdx.x) * kPiece * 8;
  if (threadIdx.x == 0 && what.stores > 0) {
    for (int i = 0; i < what.stores; ++i)
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + i * kPiece),
                   "r"(data + i * kPiece), "r"(kPiece)
                   : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  for (int i = 0; i < what.words; ++i)
    asm volatile("st.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(out + threadIdx.x * 16 + i * kThreads * 16), "r"(sum)
                 : "memory");
  if (times != nullptr && threadIdx.x == 0) {
    times[2 * blockIdx.x] = begin;
    times[2 * blockIdx.x + 1] = nanoseconds();
  }
}

}  // namespace

int main() {
  cudaDeviceProp device{};
  CHECK(cudaGetDeviceProperties(&device, 0));
  const int sms = device.multiProcessorCount;
  unsigned char *from = nullptr, *to = nullptr, *other = nullptr;
  U64* times = nullptr;
  constexpr long kOther = 256L << 20;
  CHECK(cudaMalloc(&from, 132L * kPiece * 32));
  CHECK(cudaMalloc(&to, 132L * kPiece * 8));
  CHECK(cudaMalloc(&other, kOther));
  CHECK(cudaMalloc(&times, 2 * 132 * sizeof(U64)));
  CHECK(cudaMemset(from, 0, 132L * kPiece * 32));
  CHECK(cudaFuncSetAttribute(probe, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  const What all[] = {{0, 0, 0, 0, 0}, {1, 1, 0, 0, 0}, {1, 4, 0, 0, 0},  {2, 1, 0, 0, 0}, {4, 1, 0, 0, 0},
                      {4, 4, 0, 0, 0}, {8, 4, 0, 0, 0}, {0, 0, 1, 0, 0},  {0, 0, 4, 0, 0}, {0, 0, 8, 0, 0},
                      {0, 0, 0, 1, 0}, {0, 0, 0, 4, 0}, {0, 0, 0, 10, 0}, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 2},
                      {0, 0, 0, 0, 4}, {1, 4, 4, 0, 0}, {8, 4, 4, 0, 0},  {8, 4, 0, 10, 0}};
  for (const What& what : all)
    for (const bool is_timed : {false, true}) {
      std::vector<float> us, inside;
      for (int i = 0; i < 21; ++i) {
        CHECK(cudaMemset(other, i, kOther));
        CHECK(cudaEventRecord(a));
        probe<<<sms, kThreads, kSmem>>>(what, from, to, is_timed ? times : nullptr);
        CHECK(cudaEventRecord(b));
        CHECK(cudaEventSynchronize(b));
        float ms = 0;
        CHECK(cudaEventElapsedTime(&ms, a, b));
        us.push_back(ms * 1000);
        if (!is_timed) continue;
        U64 host[2 * 132];
        CHECK(cudaMemcpy(host, times, sizeof host, cudaMemcpyDeviceToHost));
        U64 first = host[0], last = 0;
        for (int s = 0; s < std::min(sms, 132); ++s)
          first = std::min(first, host[2 * s]), last = std::max(last, host[2 * s + 1]);
        inside.push_back(static_cast<float>(last - first) / 1000);
      }
      std::sort(us.begin(), us.end());
      std::sort(inside.begin(), inside.end());
      printf(
          "{\"what\": \"small kernel\", \"rounds\": %d, \"copies\": %d, \"stores\": %d, \"words\": %d, \"plain\": %d, "
          "\"timer\": %d, \"us\": %.2f, \"inside_us\": %.2f}\n",
          what.rounds, what.copies, what.stores, what.words, what.plain, is_timed ? 1 : 0, us[us.size() / 2],
          is_timed ? inside[inside.size() / 2] : 0.f);
      fflush(stdout);
    }
}
