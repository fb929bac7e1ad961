// What a tensor core takes of wgmmas that differ, as attention has them: short ones with both operands in shared memory
// (Q K), then longer ones with A in registers (P V), by one to three warpgroups; and what a softmax's instructions take
// beside them. One JSON object a line, as micro.cu.
//
//   python3 forms.py > wgmma_forms.h
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a mix.cu -o mix && ./mix > mix.jsonl
#include <cuda_runtime.h>

#include <cstdio>

#include "micro.cuh"
#include "wgmma_forms.h"

namespace {

constexpr int kSmem = 192 * 1024, kRounds = 64;

__device__ void fill_shared(unsigned base) {
  for (int i = threadIdx.x * 4; i < kSmem; i += blockDim.x * 4)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + i), "r"(0x3F803F80 ^ (mix(i) & 0x00400040)) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
}

template <class F>
__device__ __forceinline__ void clear(typename F::C (&d)[F::kCount]) {
  for (int i = 0; i < F::kCount; ++i) d[i] = 0;
}
template <class F>
__device__ __forceinline__ float sum_of(typename F::C (&d)[F::kCount]) {
  float sum = 0;
  for (int i = 0; i < F::kCount; ++i) {
    F::pin(d[i]);
    sum += d[i];
  }
  return sum;
}

/// Each warpgroup: kShort of S and kLong of L, a group each, in turn; the next ones are issued before the last are
/// over.
template <class S, class L, int kShort, int kLong>
__global__ void __launch_bounds__(384) in_turn(long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = smem_of(smem);
  fill_shared(base);
  const int group = static_cast<int>(threadIdx.x) / 128;
  typename S::C s[S::kCount];
  typename L::C l[L::kCount];
  clear<S>(s), clear<L>(l);
  unsigned a[4] = {0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
  const U64 q = descriptor(base + group * 16384), k = descriptor(base + 65536), v = descriptor(base + 98304);
  long long t0 = 0;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    if (round == 4) t0 = now();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kShort; ++i) S::issue(s, a, q + i % 4 * 2, k + i % 4 * 2 + i / 4 * 256);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kLong; ++i) L::issue(l, a, q, v + i % 4 * 2 + i / 4 * 256);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  const long long t1 = now();
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  const float sum = sum_of<S>(s) + sum_of<L>(l);
  if (threadIdx.x % 128 == 0) out[group * 2] = t1 - t0, out[group * 2 + 1] = sum != 0;
}

/// One warpgroup has S alone, the others L alone: cycles of one of each while both work.
template <class S, class L>
__global__ void __launch_bounds__(384) apart(int more_short, int more_long, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = smem_of(smem);
  fill_shared(base);
  const int group = static_cast<int>(threadIdx.x) / 128;
  unsigned a[4] = {0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
  const U64 q = descriptor(base + group * 16384), k = descriptor(base + 65536);
  long long t0 = 0, t1 = 0;
  float sum = 0;
  const auto chain = [&](auto form, int rounds) {
    using F = decltype(form);
    typename F::C d[F::kCount];
    clear<F>(d);
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < 4; ++i) F::issue(d, a, q + i * 2, k + i * 2);
      asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (round == 3) t0 = now();
      if (round == kRounds - 1) t1 = now();
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    sum = sum_of<F>(d);
  };
  if (group == 0)
    chain(S{}, kRounds + more_short);
  else
    chain(L{}, kRounds + more_long);
  if (threadIdx.x % 128 == 0) out[group * 2] = t1 - t0, out[group * 2 + 1] = sum != 0;
}

/// Of 16 scores: the largest, arguments, exponentials, their sum, packed.
__device__ __forceinline__ void softmax(float (&x)[32], float (&m)[4], float (&sum)[4], unsigned (&p)[16],
                                        float scale) {
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("max.f32 %0, %0, %1;" : "+f"(m[i % 4]) : "f"(x[i]));
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i]) : "f"(scale), "f"(m[i % 4]));
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("add.f32 %0, %0, %1;" : "+f"(sum[i % 4]) : "f"(x[i]));
#pragma unroll
  for (int i = 0; i < 16; ++i)
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p[i]) : "f"(x[2 * i]), "f"(x[2 * i + 1]));
}

enum Work { of_softmax, of_scaling };

template <class F, Work kWork>
__global__ void __launch_bounds__(384) beside(int multipliers, int workers, int more, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = smem_of(smem);
  fill_shared(base);
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group < multipliers) {
    typename F::C d[F::kCount];
    clear<F>(d);
    unsigned a[4] = {0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
    const U64 q = descriptor(base + group * 16384), k = descriptor(base + 65536);
    long long t0 = 0;
#pragma unroll 1
    for (int round = 0; round < kRounds + more; ++round) {
      if (round == 4) t0 = now();
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < 4; ++i) F::issue(d, a, q + i * 2, k + i * 2);
      asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    const long long t1 = now();
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const float sum = sum_of<F>(d);
    if (threadIdx.x == 0) out[0] = t1 - t0, out[4] = sum != 0;
  } else if (group < multipliers + workers) {
    float x[32], m[4] = {0, 0, 0, 0}, sum[4] = {0, 0, 0, 0}, scale = 0.5f;
    unsigned p[16] = {};
    for (int i = 0; i < 32; ++i) x[i] = 0.5f + static_cast<float>(threadIdx.x) * 1e-3f;
    long long t0 = 0;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      if (round == 4) t0 = now();
      if constexpr (kWork == of_softmax) {
        softmax(x, m, sum, p, scale);
      } else {
#pragma unroll
        for (int i = 0; i < 32; ++i) asm volatile("mul.f32 %0, %0, %1;" : "+f"(x[i]) : "f"(scale));
#pragma unroll
        for (int i = 0; i < 32; ++i) asm volatile("mul.f32 %0, %0, %1;" : "+f"(x[i]) : "f"(scale));
      }
    }
    const long long t1 = now();
    float all = m[0] + m[1] + m[2] + m[3] + sum[0] + sum[1] + sum[2] + sum[3];
    for (int i = 0; i < 32; ++i) all += x[i];
    for (int i = 0; i < 16; ++i) all += static_cast<float>(p[i]);
    if (threadIdx.x % 128 == 0) out[1] = t1 - t0, out[5] = all != 0;
  }
  __syncthreads();
}

long long* g_out = nullptr;

template <class K, class... A>
void launch(K kernel, int block, A... args) {
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  for (int pass = 0; pass < 2; ++pass) {  // the first one loads the code
    kernel<<<1, block, kSmem>>>(args..., g_out);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
  }
}

template <class S, class L, int kShort, int kLong>
void time_in_turn() {
  for (const int groups : {1, 2, 3}) {
    launch(in_turn<S, L, kShort, kLong>, 128 * groups);
    printf(
        "{\"what\": \"wgmmas in turn\", \"short\": \"%s\", \"long\": \"%s\", \"of_short\": %d, \"of_long\": %d, "
        "\"warpgroups\": %d, \"cycles_of_round\": %.1f}\n",
        S::kName, L::kName, kShort, kLong, groups, static_cast<double>(g_out[0]) / (kRounds - 4) / groups);
  }
  fflush(stdout);
}

template <class S, class L>
void time_apart() {
  for (const int groups : {2, 3}) {
    launch(apart<S, L>, 128 * groups, 0, 16 * kRounds);
    const double of_short = static_cast<double>(g_out[0]) / (kRounds - 4) / 4;
    launch(apart<S, L>, 128 * groups, 16 * kRounds, 0);
    const double of_long = static_cast<double>(g_out[2]) / (kRounds - 4) / 4;
    printf(
        "{\"what\": \"wgmmas apart\", \"short\": \"%s\", \"long\": \"%s\", \"warpgroups\": %d, \"cycles_of_short\": "
        "%.1f, \"cycles_of_long\": %.1f}\n",
        S::kName, L::kName, groups, of_short, of_long);
  }
  fflush(stdout);
}

template <class F, Work kWork>
void time_beside() {
  for (const int multipliers : {0, 1, 2})
    for (int workers = 1; workers + multipliers <= 3; ++workers) {
      launch(beside<F, kWork>, 384, multipliers, workers, 40 * kRounds);
      const double work = static_cast<double>(g_out[1]) / (kRounds - 4);
      printf(
          "{\"what\": \"softmax beside wgmma\", \"form\": \"%s\", \"work\": \"%s\", \"multiply\": %d, \"workers\": %d, "
          "\"cycles_of_work\": %.1f}\n",
          F::kName, kWork == of_softmax ? "softmax of 32 scores" : "64 products", multipliers, workers, work);
    }
  fflush(stdout);
}

}  // namespace

int main() {
  CHECK(cudaMallocManaged(&g_out, 4096));
  time_in_turn<bf16_SS_32, bf16_RS_64, 4, 2>();
  time_in_turn<bf16_SS_64, bf16_RS_64, 4, 4>();
  time_in_turn<bf16_SS_128, bf16_RS_64, 4, 8>();
  time_in_turn<bf16_SS_32, bf16_RS_128, 8, 2>();
  time_in_turn<bf16_SS_64, bf16_RS_128, 8, 4>();
  time_in_turn<bf16_SS_96, bf16_RS_128, 8, 6>();
  time_in_turn<bf16_SS_128, bf16_RS_128, 8, 8>();
  time_in_turn<bf16_SS_32, bf16_RS_192, 12, 2>();
  time_in_turn<bf16_SS_64, bf16_RS_192, 12, 4>();
  time_in_turn<bf16_SS_32, bf16_SS_128, 8, 2>();
  time_apart<bf16_SS_32, bf16_RS_64>();
  time_apart<bf16_SS_32, bf16_RS_128>();
  time_apart<bf16_SS_64, bf16_RS_128>();
  time_apart<bf16_SS_128, bf16_RS_128>();
  time_beside<bf16_SS_64, of_softmax>();
  time_beside<bf16_SS_128, of_softmax>();
  time_beside<bf16_RS_128, of_softmax>();
  time_beside<bf16_SS_128, of_scaling>();
  time_beside<bf16_RS_128, of_scaling>();
  return 0;
}
