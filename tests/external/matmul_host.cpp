// A host for bf16 matmul kernels that come without one: C (M x N) = A (M x K) times B (N x K, or with TRANSPOSED A as
// K x M and B as K x N), fresh random inputs, poisoned C, every element against float64. -DFUNCTION names the launcher
// void f(const bf16*, const bf16*, bf16*, int m, int n, int k). Arguments: m n k.
#include <cmath>
#include <cstdio>

#include "tests/external/host.h"

void FUNCTION(const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*, int, int, int);

int main(int argc, char** argv) {
  const int m = argument(argc, argv, 1, 256);
  const int n = argument(argc, argv, 2, 256);
  const int k = argument(argc, argv, 3, 512);
  const auto a = random_bf16(static_cast<std::size_t>(m) * k);
  const auto b = random_bf16(static_cast<std::size_t>(n) * k);
  std::vector<std::uint16_t> c(static_cast<std::size_t>(m) * n, 0xFFFF);
  std::uint16_t* on_device = upload(c);
  FUNCTION(as_bf16(upload(a)), as_bf16(upload(b)), as_bf16(on_device), m, n, k);
  download(c, on_device);
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
