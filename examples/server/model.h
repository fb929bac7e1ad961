// A model of one attention layer: what an engine has around its attention, as small as it can be. A token and its
// position give a hidden row; q, k and v are products of it with fixed random matrices; the token that follows is the
// one whose row of another random matrix fits the attention's output best.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace server {

struct Shape {
  int heads_q = 4, heads_kv = 2, head_dim = 64;
  int vocabulary = 97;
};

std::uint16_t to_bf16(float value);
float from_bf16(std::uint16_t bits);

class Model {
 public:
  Model(const Shape& shape, std::uint64_t seed);

  /// A token's rows of q [heads_q, head_dim], k and v [heads_kv, head_dim].
  std::vector<std::uint16_t> q(int token, int position) const { return project(q_, token, position); }
  std::vector<std::uint16_t> k(int token, int position) const { return project(k_, token, position); }
  std::vector<std::uint16_t> v(int token, int position) const { return project(v_, token, position); }
  /// What follows a row of o.
  int next_token(std::span<const std::uint16_t> o) const;
  const Shape& shape() const { return shape_; }

 private:
  std::vector<std::uint16_t> project(const std::vector<float>& matrix, int token, int position) const;
  Shape shape_;
  std::vector<float> embedding_, q_, k_, v_, out_;
};

/// A row of o against attention in float64 over `keys` keys, k and v [keys, heads_kv, head_dim]: the largest error
/// in parts of what roundings explain. More than 1, or NaN: the row is wrong.
double error_of(const Shape& shape, std::span<const std::uint16_t> q, std::span<const std::uint16_t> k,
                std::span<const std::uint16_t> v, std::size_t keys, std::span<const std::uint16_t> o);

}  // namespace server
