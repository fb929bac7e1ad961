// Memory that both sides see, managed, pinned, registered and a variable: two CTAs race for it without an order, so
// schedules differ, and nothing is copied. With an argument nothing races.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

__managed__ int last;

__global__ void race(int* to, int* variable, bool races) {
  const int mine = races ? static_cast<int>(blockIdx.x) + 1 : 1;
  for (int i = 0; i < 200; ++i) *static_cast<volatile int*>(to) = mine;
  *variable = 5;
}

int main(int count, char** arguments) {
  int* memory = nullptr;
  const int kind = std::atoi(arguments[1]);
  if (kind == 0) cudaMallocManaged(&memory, 64);
  if (kind == 1) cudaMallocHost(&memory, 64);
  if (kind == 2) memory = &last;
  int* on_device = memory;
  if (kind == 3) {
    memory = static_cast<int*>(std::aligned_alloc(4096, 4096));
    cudaHostRegister(memory, 4096, 0);
    cudaHostGetDevicePointer(&on_device, memory, 0);
  }
  int* variable = nullptr;
  cudaMalloc(&variable, 4);
  race<<<16, 32>>>(on_device, variable, count == 2);
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s\n", *memory != 0 ? "written" : "not written");
  return error == cudaSuccess ? 0 : 1;
}
