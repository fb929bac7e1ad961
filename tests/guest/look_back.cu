// A scan of tiles by decoupled look-back, as CUB's: a tile's state and its value are one access of two words, which the
// next tiles poll. By the memory model that is two accesses; by hardware one. With an argument every thread of a CTA
// polls a state of its own.
#include <cuda_runtime.h>

#include <cstdio>

constexpr int kTiles = 40, kThreads = 32;
enum : unsigned { kNothing = 0, kSum = 1, kAll = 2 };

__device__ uint2 states[kTiles];

__device__ void write(uint2* to, unsigned state, unsigned value) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(state), "r"(value) : "memory");
}
__device__ uint2 read(const uint2* from) {
  uint2 got;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(got.x), "=r"(got.y) : "l"(from) : "memory");
  return got;
}

__global__ void scan(const unsigned* in, unsigned* out) {
  const unsigned tile = blockIdx.x, lane = threadIdx.x;
  unsigned sum = in[tile * kThreads + lane];
  for (unsigned step = 1; step < kThreads; step *= 2) {
    const unsigned before = __shfl_up_sync(0xFFFFFFFF, sum, step);
    if (lane >= step) sum += before;
  }
  unsigned before = 0;
  if (lane == kThreads - 1) {
    write(&states[tile], tile == 0 ? kAll : kSum, sum);
    for (int other = static_cast<int>(tile) - 1; other >= 0; --other) {
      uint2 state;
      do state = read(&states[other]);
      while (state.x == kNothing);
      before += state.y;
      if (state.x == kAll) break;
    }
    if (tile != 0) write(&states[tile], kAll, before + sum);
  }
  before = __shfl_sync(0xFFFFFFFF, before, kThreads - 1);
  out[tile * kThreads + lane] = before + sum;
}

int main() {
  constexpr int kCount = kTiles * kThreads;
  unsigned in[kCount], out[kCount], *device_in = nullptr, *device_out = nullptr;
  for (unsigned i = 0; i < kCount; ++i) in[i] = i * 7 % 13 + 1;
  cudaMalloc(&device_in, sizeof(in));
  cudaMalloc(&device_out, sizeof(out));
  cudaMemcpy(device_in, in, sizeof(in), cudaMemcpyHostToDevice);
  scan<<<kTiles, kThreads>>>(device_in, device_out);
  cudaMemcpy(out, device_out, sizeof(out), cudaMemcpyDeviceToHost);
  unsigned sum = 0;
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += out[i] != (sum += in[i]);
  std::printf("%d sums of %d are wrong\n", wrong, kCount);
  return wrong == 0 ? 0 : 1;
}
