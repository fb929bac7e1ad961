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

__global__ void use_objects(cudaTextureObject_t texture, cudaSurfaceObject_t surface, int which) {
  const float value = which == 7 ? 1 : tex2D<float>(texture, 0, 0);
  surf2Dwrite(value, surface, which == 7 ? 4 * static_cast<int>(threadIdx.x) : 0, 0);
}

// An array of 16 elements a row, and 17 threads; a texture that is destroyed before it is read.
cudaError_t spoil_objects(int which) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array{};
  cudaMallocArray(&array, &format, 16, 4, cudaArraySurfaceLoadStore);
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  const cudaTextureDesc described{};
  cudaTextureObject_t texture = 0;
  cudaSurfaceObject_t surface = 0;
  cudaCreateTextureObject(&texture, &resource, &described, nullptr);
  cudaCreateSurfaceObject(&surface, &resource);
  if (which == 8) cudaDestroyTextureObject(texture);
  use_objects<<<1, which == 7 ? 17 : 1>>>(texture, surface, which);
  return cudaDeviceSynchronize();
}

int main(int argc, char** argv) {
  const int which = argc > 1 ? std::atoi(argv[1]) : 0;
  if (which == 6) {
    cudaExternalMemory_t memory{};
    const cudaExternalMemoryHandleDesc described{};
    std::printf("%s\n", cudaGetErrorName(cudaImportExternalMemory(&memory, &described)));
    return 9;
  }
  if (which == 7 || which == 8) {
    std::printf("%s\n", cudaGetErrorName(spoil_objects(which)));
    return 0;
  }
  int* values = nullptr;
  cudaMalloc(&values, 64 * sizeof(int));
  cudaMemset(values, 0, 64 * sizeof(int));
  if (which == 9) cudaFree(values);
  go_wrong<<<1, 64, 64>>>(values, which == 9 ? 5 : which);
  const cudaError_t error = cudaDeviceSynchronize();
  int after = 0;
  const cudaError_t later = cudaMemcpy(&after, values, sizeof(after), cudaMemcpyDeviceToHost);
  std::printf("%s %s\n", cudaGetErrorName(error), later == error ? "stays" : "went");
  return 0;
}
