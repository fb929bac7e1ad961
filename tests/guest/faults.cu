// One mistake, named by the argument; what the API answers goes to stdout. The program looks at no error itself.
#include <cuda_runtime.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>

__global__ void go_wrong(int* values, int which) {
  extern __shared__ int own[];
  if (which == 0) values[1000] = 1;
  if (which == 1) *reinterpret_cast<int*>(reinterpret_cast<char*>(values) + 1) = 1;
  if (which == 2) __trap();
  if (which == 3) assert(which == 0);
  if (which == 4) own[5000] = 1;
  if (which == 5) values[0] = static_cast<int>(threadIdx.x);
}

int main(int argc, char** argv) {
  const int which = argc > 1 ? std::atoi(argv[1]) : 0;
  if (which == 6) {
    cudaArray_t array{};
    const cudaChannelFormatDesc format{};
    std::printf("%s\n", cudaGetErrorName(cudaMallocMipmappedArray(reinterpret_cast<cudaMipmappedArray_t*>(&array),
                                                                  &format, cudaExtent{4, 4, 0}, 1)));
    return 9;
  }
  int* values = nullptr;
  cudaMalloc(&values, 64 * sizeof(int));
  cudaMemset(values, 0, 64 * sizeof(int));
  go_wrong<<<1, 64, 64>>>(values, which);
  const cudaError_t error = cudaDeviceSynchronize();
  int after = 0;
  const cudaError_t later = cudaMemcpy(&after, values, sizeof(after), cudaMemcpyDeviceToHost);
  std::printf("%s %s\n", cudaGetErrorName(error), later == error ? "stays" : "went");
  return 0;
}
