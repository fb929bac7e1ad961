// A program as nvcc builds it, run by `tessera emulate -- PROGRAM`: each part of the runtime that is provided, checked
// by the program itself against what the host computes from the same random numbers.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

constexpr int kWidth = 37, kHeight = 5, kDepth = 3;

int failures = 0;
void check(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("wrong: %s (%s)\n", what, cudaGetErrorName(cudaPeekAtLastError()));
  ++failures;
}
std::mt19937& generator() {
  static std::mt19937 random(std::random_device{}());
  return random;
}
std::vector<int> numbers(std::size_t count) {
  std::vector<int> values(count);
  for (int& value : values) value = static_cast<int>(generator()() % 1000);
  return values;
}

__managed__ int counter = 5;
__device__ int table[4] = {1, 10, 100, 1000};
__constant__ int factor;

__global__ void scale(const int* in, int* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * factor + table[i % 4];
}
__global__ void add_one(int* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += 1;
}
__global__ void count_up() { atomicAdd_system(&counter, 1); }
__global__ void sum_all(const int* values, int* sums, int count) {
  extern __shared__ int own[];
  own[threadIdx.x] = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    own[threadIdx.x] += values[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) sum += own[i];
    sums[blockIdx.x] = sum;
  }
  cooperative_groups::this_grid().sync();
  if (blockIdx.x == 0 && threadIdx.x == 0)
    for (unsigned i = 1; i < gridDim.x; ++i) sums[0] += sums[i];
}
__global__ void with_heap(int* out) {
  int* own = static_cast<int*>(malloc(8 * sizeof(int)));
  for (int i = 0; i < 8; ++i) own[i] = i * static_cast<int>(threadIdx.x);
  out[threadIdx.x] = own[7];
  free(own);
  if (threadIdx.x == 3) printf("thread %d of the device speaks\n", static_cast<int>(threadIdx.x));
}

void symbols_and_launches() {
  const std::vector<int> in = numbers(1000);
  std::vector<int> out(in.size(), -1);
  int *from = nullptr, *to = nullptr;
  check(cudaMalloc(&from, in.size() * sizeof(int)) == cudaSuccess, "cudaMalloc");
  cudaMalloc(&to, in.size() * sizeof(int));
  const int seven = 7;
  check(cudaMemcpyToSymbol(factor, &seven, sizeof(int)) == cudaSuccess, "cudaMemcpyToSymbol");
  cudaMemcpy(from, in.data(), in.size() * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemset(to, 0xFF, in.size() * sizeof(int));
  scale<<<4, 256>>>(from, to, 1000);
  check(cudaMemcpy(out.data(), to, in.size() * sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess, "cudaMemcpy");
  const int tens[4] = {1, 10, 100, 1000};
  for (int i = 0; i < 1000; ++i) check(out[i] == in[i] * 7 + tens[i % 4], "scale");
  check(cudaMemcpy(out.data(), in.data(), 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue, "no device address");
  check(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess, "the last error");
  scale<<<1, 2048>>>(from, to, 1000);
  check(cudaGetLastError() == cudaErrorInvalidConfiguration, "too many threads");
  check(cudaFree(from) == cudaSuccess && cudaFree(from) == cudaErrorInvalidValue, "cudaFree twice");
  cudaGetLastError();
  cudaFree(to);
}

void memory_that_both_see() {
  count_up<<<2, 32>>>();
  cudaDeviceSynchronize();
  check(counter == 5 + 64, "a managed variable");
  int *managed = nullptr, *pinned = nullptr, *mapped = nullptr;
  check(cudaMallocManaged(&managed, 3000 * sizeof(int)) == cudaSuccess, "cudaMallocManaged");
  for (int i = 0; i < 3000; ++i) managed[i] = i;
  add_one<<<12, 256>>>(managed, 3000);
  cudaDeviceSynchronize();
  for (int i = 0; i < 3000; ++i) check(managed[i] == i + 1, "managed memory");
  check(cudaHostAlloc(&pinned, 100 * sizeof(int), cudaHostAllocMapped) == cudaSuccess, "cudaHostAlloc");
  for (int i = 0; i < 100; ++i) pinned[i] = i;
  cudaHostGetDevicePointer(&mapped, pinned, 0);
  check(mapped == pinned, "one address");
  add_one<<<1, 128>>>(mapped, 100);
  cudaDeviceSynchronize();
  for (int i = 0; i < 100; ++i) check(pinned[i] == i + 1, "pinned memory");
  std::vector<int> own = numbers(5000), before = own;
  check(cudaHostRegister(own.data(), own.size() * sizeof(int), cudaHostRegisterMapped) == cudaSuccess, "register");
  check(cudaHostGetDevicePointer(&mapped, own.data(), 0) == cudaSuccess, "its address");
  add_one<<<20, 256>>>(mapped, 5000);
  cudaDeviceSynchronize();
  for (int i = 0; i < 5000; ++i) check(own[i] == before[i] + 1, "registered memory");
  check(cudaHostUnregister(own.data()) == cudaSuccess, "cudaHostUnregister");
  own[0] = 3;
  check(own[0] == 3 && own[4999] == before[4999] + 1, "registered memory, given back");
  cudaFree(managed);
  cudaFreeHost(pinned);
}

void boxes() {
  const std::vector<int> in = numbers(kWidth * kHeight * kDepth);
  std::vector<int> out(in.size(), -1);
  cudaPitchedPtr on_device{};
  const cudaExtent extent = make_cudaExtent(kWidth * sizeof(int), kHeight, kDepth);
  check(cudaMalloc3D(&on_device, extent) == cudaSuccess && on_device.pitch > kWidth * sizeof(int), "cudaMalloc3D");
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(const_cast<int*>(in.data()), kWidth * sizeof(int), kWidth, kHeight);
  copy.dstPtr = on_device;
  copy.extent = extent;
  copy.kind = cudaMemcpyHostToDevice;
  check(cudaMemcpy3D(&copy) == cudaSuccess, "cudaMemcpy3D");
  cudaMemcpy3DParms back{};
  back.srcPtr = on_device;
  back.dstPtr = make_cudaPitchedPtr(out.data(), kWidth * sizeof(int), kWidth, kHeight);
  back.extent = extent;
  back.kind = cudaMemcpyDeviceToHost;
  check(cudaMemcpy3D(&back) == cudaSuccess && in == out, "there and back");
  cudaMemcpy2D(out.data(), kWidth * sizeof(int), static_cast<char*>(on_device.ptr) + on_device.pitch, on_device.pitch,
               kWidth * sizeof(int), 2, cudaMemcpyDeviceToHost);
  for (int i = 0; i < 2 * kWidth; ++i) check(out[i] == in[kWidth + i], "cudaMemcpy2D");
  cudaFree(on_device.ptr);
}

void streams_and_events() {
  cudaStream_t stream{};
  cudaEvent_t first{}, last{};
  check(cudaStreamCreate(&stream) == cudaSuccess, "cudaStreamCreate");
  cudaEventCreate(&first);
  cudaEventCreate(&last);
  int *values = nullptr, host[64];
  cudaMallocAsync(&values, sizeof(host), stream);
  cudaEventRecord(first, stream);
  cudaMemsetAsync(values, 0, sizeof(host), stream);
  for (int i = 0; i < 3; ++i) add_one<<<1, 64, 0, stream>>>(values, 64);
  cudaMemcpyAsync(host, values, sizeof(host), cudaMemcpyDeviceToHost, stream);
  int called = 0;
  cudaLaunchHostFunc(
      stream, [](void* data) { *static_cast<int*>(data) = 1; }, &called);
  cudaEventRecord(last, stream);
  check(cudaStreamSynchronize(stream) == cudaSuccess && called == 1, "a host function");
  for (const int value : host) check(value == 3, "work of a stream");
  float milliseconds = -1;
  check(cudaEventElapsedTime(&milliseconds, first, last) == cudaSuccess && milliseconds > 0, "time");
  cudaFreeAsync(values, stream);
  check(cudaStreamDestroy(stream) == cudaSuccess, "cudaStreamDestroy");
  check(cudaStreamDestroy(stream) != cudaSuccess, "a stream that is gone");
  cudaGetLastError();
}

void whole_grids() {
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, 0);
  int resident = 0, *values = nullptr, *sums = nullptr;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, sum_all, 128, 512);
  check(resident == properties.maxThreadsPerMultiProcessor / 128, "occupancy by threads");
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, sum_all, 32, 40000);
  check(resident == static_cast<int>(properties.sharedMemPerMultiprocessor / (40064 + 1024 - 64)) &&
            resident == static_cast<int>(properties.sharedMemPerMultiprocessor / 41088),
        "occupancy by shared memory");
  std::vector<int> in = numbers(3000);
  int expected = 0, found = 0, count = 3000;
  for (const int value : in) expected += value;
  cudaMalloc(&values, in.size() * sizeof(int));
  cudaMalloc(&sums, 24 * sizeof(int));
  cudaMemcpy(values, in.data(), in.size() * sizeof(int), cudaMemcpyHostToDevice);
  void* arguments[] = {&values, &sums, &count};
  check(cudaLaunchCooperativeKernel(sum_all, 24, 128, arguments, 512) == cudaSuccess, "a cooperative launch");
  cudaMemcpy(&found, sums, sizeof(int), cudaMemcpyDeviceToHost);
  check(found == expected, "a sum over the grid");
  check(cudaLaunchCooperativeKernel(sum_all, 100000, 128, arguments, 512) == cudaErrorCooperativeLaunchTooLarge,
        "a grid that is too large");
  cudaGetLastError();
  int out[32], *on_device = nullptr;
  cudaMalloc(&on_device, sizeof(out));
  with_heap<<<1, 32>>>(on_device);
  cudaMemcpy(out, on_device, sizeof(out), cudaMemcpyDeviceToHost);
  for (int i = 0; i < 32; ++i) check(out[i] == 7 * i, "malloc on the device");
}

int main() {
  symbols_and_launches();
  memory_that_both_see();
  boxes();
  streams_and_events();
  whole_grids();
  std::printf("%d failures\n", failures);
  return failures != 0;
}
