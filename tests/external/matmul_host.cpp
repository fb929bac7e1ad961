// A host for bf16 matmul kernels that come without one: C (M x N) = A (M x K) times B (N x K, or with TRANSPOSED A as
// K x M and B as K x N), fresh random inputs, poisoned C, every element against float64. -DFUNCTION names the launcher
// void f(const bf16*, const bf16*, bf16*, int m, int n, int k). Arguments: m n k.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

struct __nv_bfloat16;
void FUNCTION(const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*, int, int, int);

namespace {

using Matrix = std::vector<std::uint16_t>;

float value_of(std::uint16_t code) {
  const std::uint32_t bits = std::uint32_t{code} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
std::uint16_t code_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Some kernels read past the last row and throw it away: room behind the matrix.
void* upload(const Matrix& matrix) {
  constexpr std::size_t kBehind = 65536;
  void* pointer = nullptr;
  cudaMalloc(&pointer, matrix.size() * 2 + kBehind);
  cudaMemset(pointer, 0xFF, matrix.size() * 2 + kBehind);
  cudaMemcpy(pointer, matrix.data(), matrix.size() * 2, cudaMemcpyHostToDevice);
  return pointer;
}

}  // namespace

int main(int argc, char** argv) {
  const int m = argc > 1 ? std::atoi(argv[1]) : 256;
  const int n = argc > 2 ? std::atoi(argv[2]) : 256;
  const int k = argc > 3 ? std::atoi(argv[3]) : 512;
  std::mt19937 random{std::random_device{}()};
  std::normal_distribution<float> normal;
  Matrix a(static_cast<std::size_t>(m) * k);
  Matrix b(static_cast<std::size_t>(n) * k);
  Matrix c(static_cast<std::size_t>(m) * n, 0xFFFF);
  for (std::uint16_t& x : a) x = code_of(normal(random));
  for (std::uint16_t& x : b) x = code_of(normal(random));
  void* on_device = upload(c);
  FUNCTION(static_cast<const __nv_bfloat16*>(upload(a)), static_cast<const __nv_bfloat16*>(upload(b)),
           static_cast<__nv_bfloat16*>(on_device), m, n, k);
  cudaMemcpy(c.data(), on_device, c.size() * 2, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (int x = 0; x < k; ++x) {
#ifdef TRANSPOSED
        const double product = static_cast<double>(value_of(a[x * m + i])) * value_of(b[x * n + j]);
#else
        const double product = static_cast<double>(value_of(a[i * k + x])) * value_of(b[j * k + x]);
#endif
        sum += product;
        magnitude += std::fabs(product);
      }
      // bf16 output: half a unit of 2^-8; sums cut at 2^-25 of the largest term, at every 16 products.
      const double bound = std::fabs(sum) / 256 + magnitude * k / 16 * 0x1p-24;
      const double got = value_of(c[static_cast<std::size_t>(i) * n + j]);
      if (std::fabs(got - sum) <= bound) continue;
      if (wrong++ < 4) std::printf("C[%d][%d] = %g, expected %g\n", i, j, got, sum);
    }
  }
  std::printf("%d of %d elements wrong\n", wrong, m * n);
  return wrong != 0;
}
