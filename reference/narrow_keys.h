// Inputs of attention over 8-bit keys: k and v in that type, and a factor of each for every sequence and key head.
#pragma once

#include <algorithm>
#include <cstdint>

#include "reference/random.h"
#include "reference/tensor.h"

namespace tessera::reference {

inline constexpr double kLargestE4m3 = 448;

/// The nearest e4m3 numbers; what is beyond the largest becomes that.
inline Tensor narrowed(const Tensor& tensor) {
  Tensor result(DType::e4m3, tensor.shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    result.set(i, std::clamp(tensor.at(i), -kLargestE4m3, kLargestE4m3));
  return result;
}

/// fp32 [batch, heads_kv], from 1/4 to 3/2, others for each stream.
inline Tensor make_descales(std::int64_t batch, std::int64_t heads_kv, std::uint64_t stream, std::uint64_t seed) {
  const CounterRandom random(seed, stream);
  Tensor tensor(DType::f32, {batch, heads_kv});
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, static_cast<double>(random.integer(static_cast<std::uint64_t>(i), 16, 96)) / 64);
  return tensor;
}

}  // namespace tessera::reference
