// Four threads of the host, each with its own results, which come to it in an order that only time decides; with an
// argument CTAs of one of them race.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

__global__ void fill(int* to, int value, bool races) {
  const int mine = races ? static_cast<int>(blockIdx.x) : value;
  for (int i = 0; i < 200; ++i) *static_cast<volatile int*>(to) = mine;
}

int main(int count, char**) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, count] {
      cudaStream_t stream;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      int *data = nullptr, *shared = nullptr, found = -1;
      cudaMalloc(&data, 4);
      cudaMallocManaged(&shared, 4);
      for (int i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(std::random_device()() % 7));
        fill<<<16, 32, 0, stream>>>(data, 100 * t + i, count > 1 && t == 2);
        fill<<<1, 1, 0, stream>>>(shared, 100 * t + i, false);
        cudaMemcpyAsync(&found, data, 4, cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  return 0;
}
