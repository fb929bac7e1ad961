#include "reference/mhc_coefficients.h"

#include <algorithm>
#include <cmath>

#include "reference/number.h"
#include "tessera/row_chain.h"

namespace tessera::reference {

namespace {

/// comb, from what stands before its softmax, row by row.
void sinkhorn(const MixFacts& facts, const double* m, const double* error, MixCoefficients& made) {
  double comb[kStreams][kStreams], of_matrix = 0;
  for (int i = 0; i < kStreams; ++i) {
    const double* const row = m + i * kStreams;
    const double most = *std::max_element(row, row + kStreams);
    double sum = 0;
    for (int j = 0; j < kStreams; ++j) sum += std::exp(row[j] - most);
    for (int j = 0; j < kStreams; ++j) {
      comb[i][j] = std::exp(row[j] - most) / sum + facts.eps;
      of_matrix = std::max(of_matrix, 2 * error[i * kStreams + j] + 3 * kU * (most - row[j]) + 0x1p-21);
    }
  }
  of_matrix *= 2;  // of the exponent, and of its row's sum
  const int steps = 2 * facts.iterations - 1;
  for (int step = 0; step < steps; ++step) {
    const bool is_column = step % 2 == 0;
    for (int i = 0; i < kStreams; ++i) {
      double sum = facts.eps;
      for (int j = 0; j < kStreams; ++j) sum += is_column ? comb[j][i] : comb[i][j];
      for (int j = 0; j < kStreams; ++j) (is_column ? comb[j][i] : comb[i][j]) /= sum;
    }
  }
  const double relative = of_matrix + 2 * steps * (of_matrix + 8 * kU);
  for (int i = 0; i < kStreams; ++i)
    for (int j = 0; j < kStreams; ++j) {
      made.v.push_back(comb[i][j]);
      made.e.push_back(comb[i][j] * std::expm1(relative));
    }
}

}  // namespace

void slow_sinkhorn(Tensor& base, int iterations, std::uint64_t seed) {
  if (iterations < 5 || seed % 4 == 3) return;
  for (std::int64_t i = 0; i < kStreams; ++i)
    for (std::int64_t j = 0; j < i; ++j) {
      const std::int64_t at = kMixComb + i * kStreams + j;
      base.set(at, base.at(at) - 12);
    }
}

MixCoefficients mhc_coefficients(const RowValues& product, const Tensor& base, const Tensor& scale,
                                 const MixFacts& facts) {
  const double inverse = 1 / std::sqrt(facts.squares / static_cast<double>(facts.hidden) + facts.eps);
  double m[kMixColumns], error[kMixColumns];
  for (int i = 0; i < kMixColumns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double factor = scale.at(i < kMixPost ? 0 : i < kMixComb ? 1 : 2);
    const double part = product.v[at] * inverse * factor;
    m[i] = part + base.at(i);
    error[i] = std::fabs(inverse * factor) * product.e[at] + (0x1p-21 + facts.of_squares) * std::fabs(part) +
               2 * kU * std::fabs(m[i]);
  }
  MixCoefficients made;
  for (int i = 0; i < kMixComb; ++i) {
    const double sigmoid = 1 / (1 + std::exp(-m[i]));
    const double of_sigmoid = sigmoid * (std::expm1(error[i]) + 16 * kU * std::max(1.0, std::fabs(m[i]))) + 0x1p-120;
    const bool is_pre = i < kMixPost;
    made.v.push_back(is_pre ? sigmoid + facts.eps : 2 * sigmoid);
    made.e.push_back((is_pre ? of_sigmoid : 2 * of_sigmoid) + kU * made.v.back());
  }
  sinkhorn(facts, m + kMixComb, error + kMixComb, made);
  return made;
}

MixCoefficients mix_of_products(const RowsRun& run, const std::map<std::string, Tensor>& in, const RowStepNames& names,
                                const RowStep& step, std::int64_t row) {
  RowValues product;
  MixFacts facts{.eps = run.eps, .hidden = kStreams * run.columns, .iterations = step.iterations};
  const double roundings = static_cast<double>(run.parts) * kU;
  for (std::int64_t i = 0; i < kMixColumns; ++i) {
    double sum = 0, magnitude = 0;
    for (std::int64_t part = 0; part < run.parts; ++part) {
      const double one = in.at(names.in).at((part * run.rows + row) * kMixColumns + i);
      sum += one;
      magnitude += std::fabs(one);
    }
    product.v.push_back(sum);
    product.e.push_back(roundings * magnitude);
  }
  for (std::int64_t part = 0; part < run.parts; ++part) facts.squares += in.at(names.in2).at(part * run.rows + row);
  facts.of_squares = roundings;
  return mhc_coefficients(product, in.at(names.in3), in.at(names.in4), facts);
}

}  // namespace tessera::reference
