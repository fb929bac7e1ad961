// A host for mxfp8 matmul kernels that come without one: C (M x N, bf16) = A (M x K) times B (N x K), e4m3 with a ue8m0
// scale for 32 values of a row, fresh random inputs, poisoned C, every element against float64. -DFUNCTION names
// void f(a, b, scales of a, scales of b, c, int m, int n, int k). -DPERMUTED: of 32 rows, rows r, r + 8, r + 16, r + 24
// have their scales side by side, four of each; otherwise row by row. Arguments: m n k.
#include <cmath>
#include <cstdio>

#include "tests/external/host.h"

void FUNCTION(const char*, const char*, const char*, const char*, __nv_bfloat16*, int, int, int);

namespace {

struct Matrix {
  std::vector<char> values;
  std::vector<char> scales;
  std::vector<double> exact;
};

double e4m3(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15);
  const double fraction = (code & 7) / 8.0;
  const double size = exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return (code & 0x80) != 0 ? -size : size;
}

std::size_t scale_place(int row, int block, int blocks) {
#ifdef PERMUTED
  return static_cast<std::size_t>((row / 32 * 8 + row % 8) * (blocks / 4) + block / 4) * 16 + row % 32 / 8 * 4 +
         block % 4;
#else
  return static_cast<std::size_t>(row) * blocks + block;
#endif
}

Matrix make(int rows, int k) {
  Matrix matrix;
  const int blocks = k / 32;
  matrix.values.resize(static_cast<std::size_t>(rows) * k);
  matrix.scales.resize(static_cast<std::size_t>(rows) * blocks);
  for (int row = 0; row < rows; ++row)
    for (int block = 0; block < blocks; ++block)
      matrix.scales[scale_place(row, block, blocks)] = static_cast<char>(124 + generator()() % 8);
  for (int row = 0; row < rows; ++row) {
    for (int x = 0; x < k; ++x) {
      unsigned code = generator()() & 0xFF;
      if ((code & 0x7F) == 0x7F) code ^= 1;  // no NaN
      matrix.values[static_cast<std::size_t>(row) * k + x] = static_cast<char>(code);
      const int scale = static_cast<unsigned char>(matrix.scales[scale_place(row, x / 32, blocks)]);
      matrix.exact.push_back(std::ldexp(e4m3(code), scale - 127));
    }
  }
  return matrix;
}

}  // namespace

int main(int argc, char** argv) {
  const int m = argument(argc, argv, 1, 256);
  const int n = argument(argc, argv, 2, 256);
  const int k = argument(argc, argv, 3, 512);
  const Matrix a = make(m, k);
  const Matrix b = make(n, k);
  std::vector<std::uint16_t> c(static_cast<std::size_t>(m) * n, 0xFFFF);
  std::uint16_t* on_device = upload(c);
  FUNCTION(upload(a.values), upload(b.values), upload(a.scales), upload(b.scales), as_bf16(on_device), m, n, k);
  download(c, on_device);
  int wrong = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (int x = 0; x < k; ++x) {
        const double product =
            a.exact[static_cast<std::size_t>(i) * k + x] * b.exact[static_cast<std::size_t>(j) * k + x];
        sum += product;
        magnitude += std::fabs(product);
      }
      const double bound = std::fabs(sum) / 256 + magnitude * k / 32 * 0x1p-24;
      const double got = value_of(c[static_cast<std::size_t>(i) * n + j]);
      if (std::fabs(got - sum) <= bound) continue;
      if (wrong++ < 4) std::printf("C[%d][%d] = %g, expected %g\n", i, j, got, sum);
    }
  }
  std::printf("%d of %d elements wrong\n", wrong, m * n);
  return wrong != 0;
}
