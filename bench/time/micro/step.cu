// What a step of attention takes of one multiprocessor where nothing is copied: S = Q K^T, the softmax of the scores,
// O += P V, by one to four warpgroups, alone and in turns; and each stage of a softmax beside warpgroups that multiply,
// as the compiler orders its instructions. One JSON object a line, as micro.cu.
//
//   python3 forms.py > wgmma_forms.h
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a step.cu -o step && ./step > step.jsonl
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

#include "micro.cuh"
#include "wgmma_forms.h"

namespace {

constexpr int kSmem = 200 * 1024;

__device__ void fill_shared(unsigned base) {
  for (int i = threadIdx.x * 4; i < kSmem; i += blockDim.x * 4)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + i), "r"(0x3C003C00 ^ (mix(i) & 0x80008000)) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
}
template <int kCount>
__device__ __forceinline__ void pin_all(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ unsigned pack2(float lo, float hi) {
  unsigned d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}

template <int kCount>
__device__ __forceinline__ void maxima(const float (&s)[kCount], float scale, float (&max)[2]) {
  float partial[4] = {s[0], s[2], s[4], s[6]};
#pragma unroll
  for (int v = 1; v < kCount; ++v) partial[v / 2 % 4] = fmaxf(partial[v / 2 % 4], s[v]);
  max[0] = fmaxf(partial[0], partial[2]) * scale;
  max[1] = fmaxf(partial[1], partial[3]) * scale;
}
template <int kCount>
__device__ __forceinline__ void exponentials(float (&s)[kCount], float scale, const float (&reference)[2],
                                             float (&rows)[2]) {
  float sum[4] = {rows[0], rows[1], 0.0f, 0.0f};
#pragma unroll
  for (int v = 0; v < kCount; ++v) {
    s[v] = ex2(fmaf(s[v], scale, -reference[v / 2 % 2]));
    sum[v / 2 % 4] += s[v];
  }
  rows[0] = sum[0] + sum[2];
  rows[1] = sum[1] + sum[3];
}
template <int kCount>
__device__ __forceinline__ void pack_all(unsigned (&p)[kCount / 2], const float (&s)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) p[i] = pack2(s[2 * i], s[2 * i + 1]);
}

// --- stages of a softmax beside products
// ------------------------------------------------------------------------------
enum Stage { of_maxima, of_exponentials, of_packing, of_all };
constexpr const char* kStages[] = {"maxima", "exponentials and sums", "packing", "softmax"};
constexpr int kScores = 64, kRounds = 40, kProducts = 160000;

template <class F, Stage kStage>
__global__ void __launch_bounds__(512) stage(int multipliers, int workers, float scale, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ volatile unsigned progress[2];
  const unsigned base = smem_of(smem);
  if (threadIdx.x == 0) progress[0] = 0, progress[1] = 0;
  fill_shared(base);
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group < multipliers) {
    typename F::C d[F::kCount];
#pragma unroll
    for (int i = 0; i < F::kCount; ++i) d[i] = 0;
    unsigned a[4] = {0x3F803F80, 0x3F803F80, 0x3F803F80, 0x3F803F80};
#pragma unroll
    for (unsigned& one : a) asm volatile("" : "+r"(one));
    const U64 q = descriptor(base + group * 16384), k = descriptor(base + 65536);
    unsigned count = 0;
#pragma unroll 1
    for (unsigned round = 0; round < kProducts / F::kN; ++round) {  // longer than the workers take
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < 4; ++i) F::issue(d, a, q + i * 2, k + i * 2);
      asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
      count += 4;
      if (threadIdx.x % 128 == 0) progress[group] = count;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    pin_all(d);
    float sum = 0;
    for (int i = 0; i < F::kCount; ++i) sum += d[i];
    if (threadIdx.x % 128 == 0) out[8 + group] = sum != 0;
  } else if (group < multipliers + workers) {
    float x[kScores], max[2] = {0, 0}, reference[2] = {scale, scale}, rows[2] = {0, 0}, most[4] = {};
    unsigned p[kScores / 2] = {}, bits = 0;
#pragma unroll
    for (int i = 0; i < kScores; ++i) x[i] = static_cast<float>(threadIdx.x + i) * 1e-3f;
    long long t0 = 0, t1 = 0;
    unsigned n0 = 0, n1 = 0;
#pragma unroll 1
    for (int round = 0; round < kRounds + 24; ++round) {
      if (round == 8) t0 = now(), n0 = progress[0] + progress[1];
      if (round == kRounds + 8) t1 = now(), n1 = progress[0] + progress[1];
      pin_all(x);
      if (kStage == of_maxima || kStage == of_all) {
        float partial[4] = {most[0], most[1], most[2], most[3]};
        if (kStage == of_all) partial[0] = x[0], partial[1] = x[2], partial[2] = x[4], partial[3] = x[6];
#pragma unroll
        for (int v = 0; v < kScores; ++v) partial[v / 2 % 4] = fmaxf(partial[v / 2 % 4], x[v]);
        if (kStage == of_maxima)
          for (int i = 0; i < 4; ++i) most[i] = partial[i];
        if (kStage == of_all)
          max[0] = fmaxf(partial[0], partial[2]) * scale, max[1] = fmaxf(partial[1], partial[3]) * scale;
        if (kStage == of_all && __any_sync(0xffffffff, max[0] > reference[0] + 8.0f || max[1] > reference[1] + 8.0f))
          reference[0] = max[0], reference[1] = max[1];
      }
      if (kStage == of_exponentials || kStage == of_all) exponentials(x, scale, reference, rows);
      if (kStage == of_packing || kStage == of_all) {
        pin_all(x);
        pack_all(p, x);
#pragma unroll
        for (int i = 0; i < kScores / 2; ++i) x[2 * i] = __uint_as_float(p[i]);  // the next round's
      }
    }
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) bits ^= p[i];
    float all = most[0] + most[1] + most[2] + most[3] + max[0] + max[1] + rows[0] + rows[1] + static_cast<float>(bits);
    for (int i = 0; i < kScores; ++i) all += x[i];
    const int worker = group - multipliers;
    if (threadIdx.x % 128 == 0) out[worker] = t1 - t0, out[4 + worker] = n1 - n0, out[10 + worker] = all != 0;
  }
  __syncthreads();
}

// --- steps
// --------------------------------------------------------------------------------------------------------------
template <class S, class L, int kGroups, bool kTurns>
__global__ void __launch_bounds__(128 * kGroups) steps(int rounds, float scale, long long* out) {
  constexpr int kHead = L::kN, kKeys = S::kN, kOfScores = kHead / 16, kOfOutput = kKeys / 16;
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = smem_of(smem);
  fill_shared(base);
  const int group = static_cast<int>(threadIdx.x) / 128;
  typename S::C s[S::kCount];
  typename L::C o[L::kCount];
#pragma unroll
  for (int i = 0; i < S::kCount; ++i) s[i] = 0;
#pragma unroll
  for (int i = 0; i < L::kCount; ++i) o[i] = 0;
  unsigned p[S::kCount / 2] = {};
  const unsigned none[4] = {};
  float reference[2] = {1, 1}, rows[2] = {0, 0};
  const U64 q = descriptor(base + group * 8192), k = descriptor(base + 65536), v = descriptor(base + 131072);
  long long t0 = 0;
  if (kTurns && group == kGroups - 1) asm volatile("bar.arrive 1, 256;" ::: "memory");
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    if (round == 16) t0 = now();
    if constexpr (kTurns) asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kOfScores; ++i) S::issue(s, none, q + i % 4 * 2 + i / 4 * 512, k + i % 4 * 2 + i / 4 * 512);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kOfOutput; ++i) {
      const unsigned a[4] = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
      L::issue(o, a, q, v + i % 4 * 2 + i / 4 * 512);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if constexpr (kTurns) asm volatile("bar.arrive %0, 256;" ::"r"((group + 1) % kGroups + 1) : "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    pin_all(s);
    float max[2];
    maxima(s, scale, max);
    if (__any_sync(0xffffffff, max[0] > reference[0] + 8.0f || max[1] > reference[1] + 8.0f))
      reference[0] = fmaxf(reference[0], max[0]), reference[1] = fmaxf(reference[1], max[1]);
    exponentials(s, scale, reference, rows);
    pin_all(s);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    pack_all(p, s);
#pragma unroll
    for (int i = 0; i < S::kCount / 2; ++i) asm volatile("" : "+r"(p[i])::"memory");
  }
  const long long t1 = now();
  if (kTurns && group == 0) asm volatile("bar.sync 1, 256;" ::: "memory");
  pin_all(o);
  float sum = rows[0] + rows[1];
  for (int i = 0; i < L::kCount; ++i) sum += o[i];
  for (int i = 0; i < S::kCount; ++i) sum += s[i];
  if (threadIdx.x % 128 == 0) out[group * 2] = t1 - t0, out[group * 2 + 1] = sum != 0;
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

template <class F, Stage kStage>
void time_stage() {
  for (const int multipliers : {0, 1, 2})
    for (int workers = 1; workers + multipliers <= 4 && workers < 4; ++workers) {
      memset(g_out, 0, 256);
      launch(stage<F, kStage>, 512, multipliers, workers, 1e-3f);
      const double cycles = static_cast<double>(g_out[0]) / kRounds, wgmmas = static_cast<double>(g_out[4]);
      printf(
          "{\"what\": \"stage beside wgmma\", \"form\": \"%s\", \"stage\": \"%s\", \"scores\": %d, \"multiply\": %d, "
          "\"workers\": %d, \"cycles_of_stage\": %.1f, \"cycles_of_second\": %.1f, \"cycles_of_third\": %.1f, "
          "\"cycles_of_wgmma\": %.2f}\n",
          F::kName, kStages[kStage], kScores, multipliers, workers, cycles, static_cast<double>(g_out[1]) / kRounds,
          static_cast<double>(g_out[2]) / kRounds, wgmmas > 0 ? static_cast<double>(g_out[0]) / wgmmas : 0.);
      fflush(stdout);
    }
}
template <class F>
void time_stages() {
  time_stage<F, of_maxima>();
  time_stage<F, of_exponentials>();
  time_stage<F, of_packing>();
  time_stage<F, of_all>();
}

template <class S, class L, int kGroups, bool kTurns>
void time_steps(int rounds) {
  launch(steps<S, L, kGroups, kTurns>, 128 * kGroups, rounds, 1e-3f);
  printf(
      "{\"what\": \"steps\", \"keys\": %d, \"head_dim\": %d, \"warpgroups\": %d, \"turns\": %d, \"cycles_of_step\": "
      "%.1f}\n",
      S::kN, L::kN, kGroups, kTurns ? 1 : 0, static_cast<double>(g_out[0]) / (rounds - 16));
  fflush(stdout);
}
template <class S, class L, int kMost>
void time_groups(int rounds) {
  time_steps<S, L, 1, false>(rounds);
  if constexpr (kMost > 1) time_steps<S, L, 2, false>(rounds), time_steps<S, L, 2, true>(rounds);
  if constexpr (kMost > 2) time_steps<S, L, 3, false>(rounds), time_steps<S, L, 3, true>(rounds);
  if constexpr (kMost > 3) time_steps<S, L, 4, false>(rounds), time_steps<S, L, 4, true>(rounds);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(cudaMallocManaged(&g_out, 4096));
  const bool is_short = argc > 1;
  const int rounds = is_short ? 32 : 80;
  time_groups<bf16_SS_32, bf16_RS_64, 4>(rounds);
  time_groups<bf16_SS_64, bf16_RS_64, 4>(rounds);
  time_groups<bf16_SS_96, bf16_RS_64, 3>(rounds);
  time_groups<bf16_SS_128, bf16_RS_64, 3>(rounds);
  time_groups<bf16_SS_32, bf16_RS_128, 3>(rounds);
  time_groups<bf16_SS_64, bf16_RS_128, 3>(rounds);
  time_groups<bf16_SS_80, bf16_RS_128, 3>(rounds);
  time_groups<bf16_SS_128, bf16_RS_128, 2>(rounds);
  time_groups<bf16_SS_32, bf16_RS_192, 2>(rounds);
  time_groups<bf16_SS_64, bf16_RS_192, 2>(rounds);
  time_groups<bf16_SS_128, bf16_RS_192, 1>(rounds);
  time_stages<bf16_SS_128>();
  time_stages<bf16_RS_128>();
  if (is_short) return 0;
  time_stages<bf16_SS_64>();
  time_stages<bf16_RS_64>();
  return 0;
}
