#include "model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

namespace server {

namespace {

constexpr int kHidden = 32;

std::vector<float> random_matrix(std::mt19937_64& random, int rows, int columns, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> matrix(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
  for (float& value : matrix) value = normal(random);
  return matrix;
}

}  // namespace

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

Model::Model(const Shape& shape, std::uint64_t seed) : shape_(shape) {
  std::mt19937_64 random(seed);
  // Hidden rows have length sqrt(2 * kHidden), q and k then entries of about 1.4: rows are neither flat nor one key's.
  const float scale = 1 / std::sqrt(static_cast<float>(kHidden));
  embedding_ = random_matrix(random, shape.vocabulary, kHidden, 1);
  q_ = random_matrix(random, shape.heads_q * shape.head_dim, kHidden, scale);
  k_ = random_matrix(random, shape.heads_kv * shape.head_dim, kHidden, scale);
  v_ = random_matrix(random, shape.heads_kv * shape.head_dim, kHidden, scale);
  out_ = random_matrix(random, shape.vocabulary, shape.heads_q * shape.head_dim, 1);
}

std::vector<std::uint16_t> Model::project(const std::vector<float>& matrix, int token, int position) const {
  float hidden[kHidden];
  for (int i = 0; i < kHidden; ++i) {
    const float angle = static_cast<float>(position) * std::pow(1000.0F, -static_cast<float>(i / 2 * 2) / kHidden);
    const float place = std::sqrt(2.0F) * (i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    hidden[i] = embedding_[static_cast<std::size_t>(token * kHidden + i)] + place;
  }
  std::vector<std::uint16_t> row(matrix.size() / kHidden);
  for (std::size_t r = 0; r < row.size(); ++r) {
    float sum = 0;
    for (std::size_t i = 0; i < kHidden; ++i) sum += matrix[r * kHidden + i] * hidden[i];
    row[r] = to_bf16(sum);
  }
  return row;
}

int Model::next_token(std::span<const std::uint16_t> o) const {
  int best = 0;
  float best_score = -INFINITY;
  for (int token = 0; token < shape_.vocabulary; ++token) {
    float score = 0;
    for (std::size_t i = 0; i < o.size(); ++i)
      score += out_[static_cast<std::size_t>(token) * o.size() + i] * from_bf16(o[i]);
    if (score > best_score) best = token, best_score = score;
  }
  return best;
}

double error_of(const Shape& shape, std::span<const std::uint16_t> q, std::span<const std::uint16_t> k,
                std::span<const std::uint16_t> v, std::size_t keys, std::span<const std::uint16_t> o) {
  const auto columns = static_cast<std::size_t>(shape.head_dim), heads_kv = static_cast<std::size_t>(shape.heads_kv);
  const std::size_t heads_q = static_cast<std::size_t>(shape.heads_q), group = heads_q / heads_kv;
  std::vector<double> weights(keys), sums(columns), sizes(columns), query(columns);
  double worst = 0;
  for (std::size_t head = 0; head < heads_q; ++head) {
    const auto row_of = [&](std::span<const std::uint16_t> cache, std::size_t key) {
      return cache.subspan((key * heads_kv + head / group) * columns, columns);
    };
    for (std::size_t d = 0; d < columns; ++d) query[d] = static_cast<double>(from_bf16(q[head * columns + d]));
    double most = -INFINITY, total = 0;
    for (std::size_t key = 0; key < keys; ++key) {
      const auto row = row_of(k, key);
      double score = 0;
      for (std::size_t d = 0; d < columns; ++d) score += query[d] * static_cast<double>(from_bf16(row[d]));
      weights[key] = score / std::sqrt(static_cast<double>(columns));
      most = std::max(most, weights[key]);
    }
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(sizes.begin(), sizes.end(), 0.0);
    for (std::size_t key = 0; key < keys; ++key) {
      const double weight = std::exp(weights[key] - most);
      const auto row = row_of(v, key);
      total += weight;
      for (std::size_t d = 0; d < columns; ++d) {
        const double product = weight * static_cast<double>(from_bf16(row[d]));
        sums[d] += product;
        sizes[d] += std::fabs(product);
      }
    }
    // A probability and the result are each rounded to bf16, by 2^-8 of themselves at most; the rest is far smaller.
    for (std::size_t d = 0; d < columns; ++d) {
      const double bound = 1.1 * std::exp2(-7) * sizes[d] / total + 1e-5;
      const double error = std::fabs(static_cast<double>(from_bf16(o[head * columns + d])) - sums[d] / total) / bound;
      if (!(error <= worst)) worst = error;
      if (std::isnan(worst)) return worst;
    }
  }
  return worst;
}

}  // namespace server
