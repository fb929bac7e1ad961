// Grids that run on threads of the host, and one that does not; what is printed must not depend on their number.
#include <cstdint>
#include <cstdio>
#include <vector>

#define REQUIRE(call)                                                        \
  do {                                                                       \
    if (const cudaError_t error = (call); error != cudaSuccess) {            \
      std::printf("%s: %s\n", #call, cudaGetErrorName(error)), std::exit(3); \
    }                                                                        \
  } while (0)

constexpr int kCtas = 600, kThreads = 128, kBins = 64;

__device__ std::uint32_t mix(std::uint32_t x) {
  for (int i = 0; i < 20; ++i) x = x * 1664525u + 1013904223u + (x >> 13);
  return x;
}

__global__ void fill(std::uint32_t* out) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  out[i] = mix(i);
  if (threadIdx.x == 0 && blockIdx.x % 97 == 5) printf("CTA %d of %d says %08x\n", blockIdx.x, gridDim.x, out[i]);
}

__global__ void count(const std::uint32_t* in, unsigned* bins, unsigned long long* sum) {
  __shared__ unsigned own[kBins];
  if (threadIdx.x < kBins) own[threadIdx.x] = 0;
  __syncthreads();
  const std::uint32_t value = in[blockIdx.x * kThreads + threadIdx.x];
  atomicAdd(&own[value % kBins], 1u);
  atomicAdd(sum, static_cast<unsigned long long>(value));
  __syncthreads();
  if (threadIdx.x < kBins) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

// Whoever comes last adds up: CTAs speak to each other.
__global__ void add_last(const std::uint32_t* in, std::uint32_t* sums, unsigned* arrived, std::uint32_t* total) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    std::uint32_t sum = 0;
    for (int i = 0; i < kThreads; ++i) sum += in[blockIdx.x * kThreads + i];
    sums[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicAdd(arrived, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  __threadfence();
  for (unsigned i = 0; i < gridDim.x; ++i) *total += static_cast<volatile std::uint32_t*>(sums)[i];
}

int main() {
  constexpr int kCount = kCtas * kThreads;
  std::uint32_t *values, *sums, *total;
  unsigned *bins, *arrived;
  unsigned long long* sum;
  REQUIRE(cudaMallocManaged(&values, kCount * sizeof(*values)));
  REQUIRE(cudaMallocManaged(&sums, kCtas * sizeof(*sums)));
  REQUIRE(cudaMallocManaged(&bins, kBins * sizeof(*bins)));
  REQUIRE(cudaMallocManaged(&total, sizeof(*total)));
  REQUIRE(cudaMallocManaged(&arrived, sizeof(*arrived)));
  REQUIRE(cudaMallocManaged(&sum, sizeof(*sum)));
  for (int i = 0; i < kBins; ++i) bins[i] = 0;
  *total = *arrived = 0, *sum = 0;
  fill<<<kCtas, kThreads>>>(values);
  count<<<kCtas, kThreads>>>(values, bins, sum);
  add_last<<<kCtas, kThreads>>>(values, sums, arrived, total);
  REQUIRE(cudaDeviceSynchronize());
  unsigned long long expected = 0;
  std::vector<unsigned> wanted(kBins, 0);
  for (int i = 0; i < kCount; ++i) {
    std::uint32_t x = i;
    for (int j = 0; j < 20; ++j) x = x * 1664525u + 1013904223u + (x >> 13);
    expected += x, ++wanted[x % kBins];
  }
  bool is_right = *sum == expected && *total == static_cast<std::uint32_t>(expected);
  for (int i = 0; i < kBins; ++i) is_right = is_right && bins[i] == wanted[i];
  std::printf("%s: %llu %u\n", is_right ? "right" : "WRONG", *sum, *total);
  return is_right ? 0 : 1;
}
