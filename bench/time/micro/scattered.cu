// What copies of 4 bytes by lanes (cp.async) take whose lanes lie so many bytes apart, of lines that the L1 has, by one
// warp and by four warps of four sub-cores: cycles from one instruction of a warp to its next.
#include <cstdio>

#include "micro.cuh"

namespace {

constexpr int kTurns = 256;

__global__ void __launch_bounds__(128) scattered(const char* from, int apart, long long* out) {
  __shared__ unsigned to[4][32][8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const char* const own = from + static_cast<long>(warp) * 32 * apart + static_cast<long>(lane) * apart;
  const unsigned place = smem_of(&to[warp][lane][0]);
  long long cycles = 0;
  for (int pass = 0; pass < 3; ++pass) {
    __syncthreads();
    const long long begin = now();
#pragma unroll 8
    for (int i = 0; i < kTurns; ++i) {
      const char* const at = own + i % 8 * 4;
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place + i % 8 * 4), "l"(at) : "memory");
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    cycles = now() - begin;
  }
  if (threadIdx.x == 0) out[0] = cycles;
}

void measure(const char* from, long long* out) {
  for (const int warps : {1, 4})
    for (const int apart : {4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256}) {
      scattered<<<1, 32 * warps>>>(from, apart, out);
      CHECK(cudaDeviceSynchronize());
      printf("{\"what\": \"scattered\", \"by\": \"cp.async.ca\", \"warps\": %d, \"apart\": %d, \"cycles\": %.2f}\n",
             warps, apart, static_cast<double>(out[0]) / kTurns);
    }
}

}  // namespace

int main() {
  char* from = nullptr;
  long long* out = nullptr;
  CHECK(cudaMalloc(&from, 1 << 20));
  CHECK(cudaMemset(from, 0, 1 << 20));
  CHECK(cudaMallocManaged(&out, 4096));
  measure(from, out);
  return 0;
}
