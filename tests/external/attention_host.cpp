// A host for attention kernels that come without one: O = softmax(Q K^T / sqrt(d)) V, bf16, fresh random inputs,
// poisoned O, every element against float64. -DFUNCTION names void f(q, k, v, o, int batch, int len_q, int len_k, int
// dim). Arguments: batch len_q len_k.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/external/host.h"

void FUNCTION(const __nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*, __nv_bfloat16*, int, int, int, int);

int main(int argc, char** argv) {
  constexpr int kDim = 128;
  const int batch = argument(argc, argv, 1, 2);
  const int rows = argument(argc, argv, 2, 256);
  const int keys = argument(argc, argv, 3, 512);
  const auto size = [](int count) { return static_cast<std::size_t>(count) * kDim; };
  const auto q = random_bf16(size(batch * rows));
  const auto k = random_bf16(size(batch * keys));
  const auto v = random_bf16(size(batch * keys));
  std::vector<std::uint16_t> o(q.size(), 0xFFFF);
  std::uint16_t* on_device = upload(o);
  FUNCTION(as_bf16(upload(q)), as_bf16(upload(k)), as_bf16(upload(v)), as_bf16(on_device), batch, rows, keys, kDim);
  download(o, on_device);
  int wrong = 0;
  double largest = 0;
  std::vector<double> weights(keys);
  for (int row = 0; row < batch * rows; ++row) {
    const std::size_t first = size(row / rows * keys);
    for (int j = 0; j < keys; ++j) {
      double sum = 0;
      for (int d = 0; d < kDim; ++d)
        sum += static_cast<double>(value_of(q[size(row) + d])) * value_of(k[first + size(j) + d]);
      weights[j] = sum / std::sqrt(static_cast<double>(kDim));
    }
    const double most = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - most);
    for (int d = 0; d < kDim; ++d) {
      double sum = 0;
      double magnitude = 0;
      for (int j = 0; j < keys; ++j) {
        sum += weights[j] * value_of(v[first + size(j) + d]) / total;
        magnitude += std::fabs(weights[j] * value_of(v[first + size(j) + d])) / total;
      }
      // Half a unit of bf16 in the output, and in each P, which the second product takes as bf16.
      const double bound = (std::fabs(sum) + magnitude) / 256 + 1e-5;
      const double apart = std::fabs(value_of(o[size(row) + d]) - sum);
      largest = std::max(largest, apart / bound);
      if (apart <= bound) continue;
      if (wrong++ < 4) std::printf("O[%d][%d] = %g, expected %g\n", row, d, value_of(o[size(row) + d]), sum);
    }
  }
  std::printf("%d of %zu elements wrong, the worst at %.2f of its bound\n", wrong, o.size(), largest);
  return wrong != 0;
}
