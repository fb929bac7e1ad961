// The calls of cuda_symbols.cpp: variables of a module, to and from the host, whole and in part, and rectangles.
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

constexpr int kWidth = 37, kHeight = 5;

__constant__ float factors[4];
__device__ int sums[kHeight] = {7, 7, 7, 7, 7};

// A column of a row a thread.
__global__ void scale(const int* in, int* out, std::size_t pitch) {
  const std::size_t at = blockIdx.x * pitch / sizeof(int) + threadIdx.x;
  out[at] = static_cast<int>(factors[blockIdx.x % 4]) * in[at];
  atomicAdd(&sums[blockIdx.x], in[at]);
}

int failures = 0;
void check(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

int main() {
  std::mt19937 random(std::random_device{}());
  std::vector<int> in(kWidth * kHeight), out(kWidth * kHeight, -1);
  for (int& value : in) value = static_cast<int>(random() % 1000);
  const float first[4] = {2, 3, 5, 7}, third = 11;
  check(cudaMemcpyToSymbol(factors, first, sizeof(first)) == cudaSuccess, "a whole variable");
  check(cudaMemcpyToSymbolAsync(factors, &third, sizeof(float), 2 * sizeof(float)) == cudaSuccess, "a part of it");
  check(cudaMemcpyToSymbol(factors, first, sizeof(first), 4) == cudaErrorInvalidValue, "beyond its end");
  check(cudaMemcpyToSymbol(static_cast<const void*>(&failures), &third, 4) == cudaErrorInvalidSymbol, "no variable");
  void* address = nullptr;
  std::size_t bytes = 0;
  check(cudaGetSymbolAddress(&address, sums) == cudaSuccess && address != nullptr, "its address");
  check(cudaGetSymbolSize(&bytes, sums) == cudaSuccess && bytes == sizeof(sums), "its size");
  int before[kHeight];
  cudaMemcpy(before, address, sizeof(before), cudaMemcpyDeviceToHost);
  check(before[0] == 7 && before[kHeight - 1] == 7, "its first value");

  int *from = nullptr, *to = nullptr;
  std::size_t pitch = 0;
  cudaMallocPitch(&from, &pitch, kWidth * sizeof(int), kHeight);
  cudaMallocPitch(&to, &pitch, kWidth * sizeof(int), kHeight);
  check(pitch >= kWidth * sizeof(int), "the pitch");
  cudaMemset2D(to, pitch, 0xFF, kWidth * sizeof(int), kHeight);
  cudaMemcpy2D(from, pitch, in.data(), kWidth * sizeof(int), kWidth * sizeof(int), kHeight, cudaMemcpyHostToDevice);
  scale<<<kHeight, kWidth>>>(from, to, pitch);
  cudaMemcpy2DAsync(out.data(), kWidth * sizeof(int), to, pitch, kWidth * sizeof(int), kHeight, cudaMemcpyDeviceToHost);
  int after[kHeight], last = 0;
  check(cudaMemcpyFromSymbol(after, sums, sizeof(after)) == cudaSuccess, "from a variable");
  cudaMemcpyFromSymbolAsync(&last, sums, sizeof(int), (kHeight - 1) * sizeof(int));
  check(last == after[kHeight - 1], "from a part of it");
  const int used[4] = {2, 3, 11, 7};
  for (int row = 0; row < kHeight; ++row) {
    int sum = 7, wrong = 0;
    for (int column = 0; column < kWidth; ++column) {
      sum += in[row * kWidth + column];
      wrong += out[row * kWidth + column] != used[row % 4] * in[row * kWidth + column];
    }
    check(wrong == 0, "a row");
    check(sum == after[row], "a sum");
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
