// A host for int8 matmul kernels that come without one: C (M x N, s32) = A (M x K) times B (N x K), fresh random
// inputs, poisoned C, every element exact. -DFUNCTION names void f(a, b, c, int m, int n, int k). Arguments: m n k.
#include <cstdio>

#include "tests/external/host.h"

void FUNCTION(const std::int8_t*, const std::int8_t*, int*, int, int, int);

int main(int argc, char** argv) {
  const int m = argument(argc, argv, 1, 256);
  const int n = argument(argc, argv, 2, 256);
  const int k = argument(argc, argv, 3, 512);
  std::vector<std::int8_t> a(static_cast<std::size_t>(m) * k);
  std::vector<std::int8_t> b(static_cast<std::size_t>(n) * k);
  for (auto* matrix : {&a, &b})
    for (std::int8_t& x : *matrix) x = static_cast<std::int8_t>(generator()());
  std::vector<int> c(static_cast<std::size_t>(m) * n, 0x7FFFFFFF);
  int* on_device = upload(c);
  FUNCTION(upload(a), upload(b), on_device, m, n, k);
  download(c, on_device);
  int wrong = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      int sum = 0;
      for (int x = 0; x < k; ++x)
        sum += a[static_cast<std::size_t>(i) * k + x] * b[static_cast<std::size_t>(j) * k + x];
      const int got = c[static_cast<std::size_t>(i) * n + j];
      if (got != sum && wrong++ < 4) std::printf("C[%d][%d] = %d, expected %d\n", i, j, got, sum);
    }
  }
  std::printf("%d of %d elements wrong\n", wrong, m * n);
  return wrong != 0;
}
