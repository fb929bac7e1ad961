// What a warp's own units do beside those of micro.cu: mma.sync by type, and stores to global memory by how many
// lines of 128 bytes their lanes touch. One JSON object a line on stdout; cycles are the multiprocessor's clock.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a warp.cu -o warp && ./warp > warp.jsonl
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "micro.cuh"

namespace {

enum class Type { bf16, f16_to_f16, tf32, e4m3, s8 };
const char* const kNames[] = {"bf16 m16n8k16", "f16 to f16 m16n8k16", "tf32 m16n8k8", "e4m3 m16n8k32", "s8 m16n8k32"};
const double kOperations[] = {4096, 4096, 2048, 8192, 8192};

template <Type T>
__device__ __forceinline__ void mma(unsigned (&d)[4], unsigned a, unsigned b) {
#define MMA(SHAPE, TYPES)                                                                                           \
  asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES " {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};" \
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                     \
               : "r"(a), "r"(b))
#define MMAF(SHAPE, TYPES)                                                                                          \
  asm volatile("mma.sync.aligned." SHAPE ".row.col." TYPES " {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};" \
               : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])                                                     \
               : "r"(a), "r"(b))
  auto& f = reinterpret_cast<float(&)[4]>(d);
  if constexpr (T == Type::bf16) MMAF("m16n8k16", "f32.bf16.bf16.f32");
  if constexpr (T == Type::tf32) MMAF("m16n8k8", "f32.tf32.tf32.f32");
  if constexpr (T == Type::e4m3) MMAF("m16n8k32", "f32.e4m3.e4m3.f32");
  if constexpr (T == Type::s8) MMA("m16n8k32", "s32.s8.s8.s32");
  if constexpr (T == Type::f16_to_f16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%2,%2,%2}, {%3,%3}, {%0,%1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a), "r"(b));
}

// kChains independent sums of each warp, `count` products each.
template <Type T, int kChains>
__global__ void products(long long* out, int count) {
  unsigned d[kChains][4] = {};
  const unsigned a = threadIdx.x >> 20, b = threadIdx.x >> 21;
  __syncthreads();
  const long long begin = now();
  for (int i = 0; i < count; ++i)
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) mma<T>(d[chain], a, b);
  __syncthreads();
  const long long end = now();
  unsigned sum = 0;
  for (auto& one : d) sum += one[0] ^ one[1] ^ one[2] ^ one[3];
  if (threadIdx.x == 0) out[0] = end - begin;
  if (sum == 0x12345678) out[1] = 1;
}

template <class K>
double cycles(K kernel, long long* out, int threads) {
  long long t[2] = {};
  for (int i = 0; i < 2; ++i) {
    kernel<<<1, threads>>>(out, 100 + 400 * i);
    CHECK(cudaDeviceSynchronize());
    kernel<<<1, threads>>>(out, 100 + 400 * i);
    CHECK(cudaDeviceSynchronize());
    t[i] = out[0];
  }
  return (t[1] - t[0]) / 400.0;
}

template <Type T>
void measure_products(long long* out) {
  const int type = static_cast<int>(T);
  const double latency = cycles(products<T, 1>, out, 32);
  for (const int warps : {4, 8, 16}) {
    const double each = cycles(products<T, 8>, out, warps * 32) / 8;  // of all warps, one product each
    printf("{\"what\": \"mma.sync\", \"form\": \"%s\", \"warps\": %d, \"latency\": %.2f, \"flop_per_clock\": %.1f}\n",
           kNames[type], warps, latency, kOperations[type] * warps / each);
  }
}

// Lanes of a warp touch `lines` lines; each warp its own, all of them few.
template <class T>
__global__ void stores(long long* out, T* memory, int lines, int count) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int per_line = 32 / lines;
  volatile T* const at = memory + (static_cast<long>(warp) * lines + lane / per_line) * (128 / sizeof(T)) +
                         lane % per_line % (128 / sizeof(T));
  for (int warm = 0; warm < 2; ++warm) {
    __syncthreads();
    const long long begin = now();
    for (int i = 0; i < count; ++i) *at = T{};
    __syncthreads();
    if (threadIdx.x == 0) out[0] = now() - begin;
  }
}

template <class T>
void measure_stores(long long* out, T* memory, int warps) {
  for (const int lines : {1, 2, 4, 8, 16, 32}) {
    double t[2];
    for (int i = 0; i < 2; ++i) {
      stores<T><<<1, warps * 32>>>(out, memory, lines, 256 + 1024 * i);
      CHECK(cudaDeviceSynchronize());
      t[i] = static_cast<double>(out[0]);
    }
    printf(
        "{\"what\": \"global store\", \"bytes_of_lane\": %d, \"lines\": %d, \"warps\": %d, "
        "\"cycles_per_warp_instruction\": %.2f}\n",
        static_cast<int>(sizeof(T)), lines, warps, (t[1] - t[0]) / 1024 / warps);
  }
}

}  // namespace

int main() {
  long long* out = nullptr;
  void* memory = nullptr;
  CHECK(cudaMallocManaged(&out, 64));
  CHECK(cudaMalloc(&memory, 1 << 20));
  CHECK(cudaMemset(memory, 0, 1 << 20));
  measure_products<Type::bf16>(out);
  measure_products<Type::f16_to_f16>(out);
  measure_products<Type::tf32>(out);
  measure_products<Type::e4m3>(out);
  measure_products<Type::s8>(out);
  measure_stores(out, static_cast<unsigned short*>(memory), 8);
  measure_stores(out, static_cast<unsigned*>(memory), 8);
}
