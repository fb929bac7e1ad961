// What instructions take that are not in a loop: straight code of 16 to 128 KiB, its first execution in a launch and
// the next one, by warps of a sub-core; instructions whose predicate is false; constants that are loaded (LDC), which
// the assembler makes of parameters that a predicated or a 64-bit instruction wants in registers. Cycles are those of
// the CTA's slowest warp by its own clock. One JSON object a line.
//
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a code.cu -o code && ./code > code.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

enum class What { fma, alu, mixed, off_fma, off_alu, off_load, off_constant };

__constant__ int g_table[2048];

template <What kWhat>
__device__ __forceinline__ void one(int i, float (&f)[8], unsigned (&u)[8], unsigned p, const unsigned* from,
                                    U64 constants) {
  const int k = i % 8;
  if constexpr (kWhat == What::fma) asm volatile("fma.rn.f32 %0, %0, %0, %1;" : "+f"(f[k]) : "f"(f[(k + 1) % 8]));
  if constexpr (kWhat == What::alu) asm volatile("xor.b32 %0, %0, %1;" : "+r"(u[k]) : "r"(u[(k + 1) % 8]));
  if constexpr (kWhat == What::mixed) {
    if (i % 2 == 0)
      asm volatile("fma.rn.f32 %0, %0, %0, %1;" : "+f"(f[k]) : "f"(f[(k + 1) % 8]));
    else
      asm volatile("xor.b32 %0, %0, %1;" : "+r"(u[k]) : "r"(u[(k + 1) % 8]));
  }
  if constexpr (kWhat == What::off_fma)
    asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %2, 0;\n@q fma.rn.f32 %0, %0, %0, %1;\n}"
                 : "+f"(f[k])
                 : "f"(f[(k + 1) % 8]), "r"(p));
  if constexpr (kWhat == What::off_alu)
    asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %2, 0;\n@q xor.b32 %0, %0, %1;\n}"
                 : "+r"(u[k])
                 : "r"(u[(k + 1) % 8]), "r"(p));
  if constexpr (kWhat == What::off_load)
    asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %2, 0;\n@q ld.global.cg.u32 %0, [%1];\n}"
                 : "+r"(u[k])
                 : "l"(from + 32 * k), "r"(p));
  if constexpr (kWhat == What::off_constant)
    asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %2, 0;\n@q ld.const.u32 %0, [%1];\n}"
                 : "+r"(u[k])
                 : "l"(constants + 4 * i), "r"(p));
}

template <What kWhat, int kCount>
__global__ void __launch_bounds__(1024) straight(long long* out, unsigned p, const unsigned* from, int passes) {
  float f[8];
  unsigned u[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) f[i] = static_cast<float>(threadIdx.x * 0 + p), u[i] = p;
  long long first = 0, second = 0;
  const U64 constants = static_cast<U64>(__cvta_generic_to_constant(g_table)) + 4 * (p + threadIdx.x / 1024);
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    __syncthreads();
    const long long begin = clock64();
#pragma unroll
    for (int i = 0; i < kCount; ++i) one<kWhat>(i, f, u, p, from, constants);
    asm volatile("" ::"f"(f[0]), "r"(u[0]) : "memory");
    const long long took = clock64() - begin;
    if (pass == 0) first = took;
    second = took;
  }
  float sum = 0;
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += f[i], all += u[i];
  if (sum == 12345.0f || all == 0x12345) out[0] = 1;
  if (threadIdx.x % 32 == 0) {
    const int at = 2 * (blockIdx.x * 32 + threadIdx.x / 32) + 16;
    out[at] = first, out[at + 1] = second;
  }
}

// Chains: each load's index is the one before's value.
__global__ void chain_of_constants(long long* out, int start) {
  int i = start;
  const long long begin = clock64();
#pragma unroll
  for (int k = 0; k < 64; ++k) i = g_table[i];
  const long long took = clock64() - begin;
  out[threadIdx.x == 0 ? 0 : 1] = took + (i == 77 ? 1 : 0);
}

unsigned char* g_flush = nullptr;
long long* g_out = nullptr;
constexpr size_t kFlush = 256u << 20;

template <What kWhat, int kCount>
void show(const char* name, unsigned p = 0) {
  for (const int ctas : {1, 132})
    for (const int warps : {4, 8, 16, 32}) {
      std::vector<double> firsts, nexts;
      for (int round = 0; round < 9; ++round) {
        CHECK(cudaMemset(g_flush, round, kFlush));
        straight<kWhat, kCount><<<ctas, 32 * warps>>>(g_out, p, reinterpret_cast<const unsigned*>(g_flush), 3);
        std::vector<long long> host(16 + 2 * 32 * ctas);
        CHECK(cudaMemcpy(host.data(), g_out, host.size() * 8, cudaMemcpyDeviceToHost));
        double first = 0, next = 0;
        for (int c = 0; c < ctas; ++c) {
          long long f = 0, n = 0;
          for (int w = 0; w < warps; ++w) {
            f = std::max(f, host[16 + 2 * (32 * c + w)]);
            n = std::max(n, host[16 + 2 * (32 * c + w) + 1]);
          }
          first += static_cast<double>(f) / ctas, next += static_cast<double>(n) / ctas;
        }
        firsts.push_back(first), nexts.push_back(next);
      }
      std::sort(firsts.begin(), firsts.end()), std::sort(nexts.begin(), nexts.end());
      printf(
          "{\"code\": \"%s\", \"predicate\": %u, \"instructions\": %d, \"ctas\": %d, \"warps\": %d, \"first\": %.0f, "
          "\"again\": %.0f, "
          "\"first_each\": %.3f, \"again_each\": %.3f, \"least_first\": %.0f, \"most_first\": %.0f}\n",
          name, p, kCount, ctas, warps, firsts[4], nexts[4], firsts[4] / kCount / (warps / 4),
          nexts[4] / kCount / (warps / 4), firsts.front(), firsts.back());
      fflush(stdout);
    }
}

}  // namespace

int main() {
  CHECK(cudaMalloc(&g_flush, kFlush));
  CHECK(cudaMalloc(&g_out, 1 << 20));
  int table[256];
  for (int i = 0; i < 256; ++i) table[i] = (i + 1) % 64;
  CHECK(cudaMemcpyToSymbol(g_table, table, sizeof table));
  for (int threads : {1, 32}) {
    chain_of_constants<<<1, threads>>>(g_out, 0);
    chain_of_constants<<<1, threads>>>(g_out, 0);
    long long took[2];
    CHECK(cudaMemcpy(took, g_out, 16, cudaMemcpyDeviceToHost));
    printf("{\"chain_of_constants\": %d, \"cycles\": %.2f}\n", threads, static_cast<double>(took[0]) / 64);
  }
  show<What::fma, 64>("fma");
  show<What::fma, 512>("fma");
  show<What::fma, 1024>("fma");
  show<What::fma, 2048>("fma");
  show<What::fma, 8192>("fma");
  show<What::alu, 1024>("alu");
  show<What::mixed, 1024>("mixed");
  show<What::off_fma, 512>("off_fma");
  show<What::off_alu, 512>("off_alu");
  show<What::off_load, 512>("off_load");
  show<What::off_fma, 512>("off_fma", 1);
  show<What::off_alu, 512>("off_alu", 1);
  show<What::off_constant, 512>("off_constant");
  show<What::off_constant, 512>("off_constant", 1);
  CHECK(cudaDeviceSynchronize());
}
