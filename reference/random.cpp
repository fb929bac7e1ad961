#include "reference/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "reference/parallel.h"

namespace tessera::reference {

namespace {

std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

double draw(const CounterRandom& random, Fill kind, std::uint64_t index) {
  switch (kind) {
    case Fill::normal:
    case Fill::standard:
      return random.normal(index);
    case Fill::uniform:
      return 2.0 * random.uniform(index) - 1.0;
    case Fill::integer:
      return static_cast<double>(random.integer(index, -4, 4));
    case Fill::sign:
      return static_cast<double>(random.integer(index, -1, 1));
    case Fill::sparse_integer:
      break;
  }
  return 0;
}

void fill_sparse(Tensor& tensor, const CounterRandom& random) {
  const std::int64_t row_length = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row_length == 0) return;
  for (std::int64_t row = 0; row < tensor.elements() / row_length; ++row) {
    for (std::uint64_t entry = 0; entry < 4; ++entry) {
      const std::uint64_t counter = 4 * static_cast<std::uint64_t>(row) + entry;
      const std::int64_t column = random.integer(2 * counter, 0, row_length - 1);
      tensor.set(row * row_length + column, (random.bits(2 * counter + 1) & 1) != 0 ? 1.0 : -1.0);
    }
  }
}

/// The row and column of an element, as standard_factor() takes them.
std::pair<std::int64_t, std::int64_t> place_of(const Tensor& tensor, std::int64_t element) {
  const std::int64_t columns = tensor.shape.size() < 2 ? 256 : tensor.shape.back();
  return {element / columns, element % columns};
}

bool is_integer(DType dtype) { return precision(dtype) == 0; }

}  // namespace

CounterRandom::CounterRandom(std::uint64_t seed, std::uint64_t stream)
    : key_(mix(mix(seed + 0x9E3779B97F4A7C15ULL) ^ (stream * 0xD1342543DE82EF95ULL))) {}

std::uint64_t CounterRandom::bits(std::uint64_t index) const noexcept {
  return mix(mix(index * 0x9E3779B97F4A7C15ULL + key_) ^ key_);
}

double CounterRandom::uniform(std::uint64_t index) const noexcept {
  return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

double CounterRandom::normal(std::uint64_t index) const noexcept {
  const std::uint64_t word = bits(index);
  const double radius = (static_cast<double>(word >> 32) + 0.5) * 0x1p-32;
  const double angle = static_cast<double>(word & 0xFFFFFFFF) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(radius)) * std::cos(2.0 * std::numbers::pi * angle);
}

std::int64_t CounterRandom::integer(std::uint64_t index, std::int64_t low, std::int64_t high) const noexcept {
  const std::uint64_t span = static_cast<std::uint64_t>(high - low) + 1;
  return low + static_cast<std::int64_t>(bits(index) % span);
}

double standard_factor(const CounterRandom& random, std::int64_t row, std::int64_t column) noexcept {
  const auto block = static_cast<std::uint64_t>(row / 16 << 24 | column / 64),
             group = static_cast<std::uint64_t>(row / 32);
  if (random.bits((std::uint64_t{1} << 60) + block) % 6 == 0) return 0;
  if (static_cast<std::uint64_t>(row % 32) == random.bits((std::uint64_t{1} << 61) + group) % 32) return 16;
  return group % 2 == 1 ? 0.0625 : 1;
}

void fill(Tensor& tensor, Fill kind, std::uint64_t seed, std::uint64_t stream) {
  const CounterRandom random(seed, stream);
  std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0});
  if (kind == Fill::sparse_integer) return fill_sparse(tensor, random);
  constexpr std::int64_t kChunk = 1 << 16;
  const std::int64_t elements = tensor.elements();
  parallel_for((elements + kChunk - 1) / kChunk, 0, [&](std::int64_t chunk) {
    for (std::int64_t i = chunk * kChunk; i < std::min(elements, (chunk + 1) * kChunk); ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      double factor = 1;
      if (kind == Fill::standard) {
        const auto [row, column] = place_of(tensor, i);
        factor = standard_factor(random, row, column);
      }
      if (is_integer(tensor.dtype)) {
        const std::uint64_t word = factor == 0 ? 0 : random.bits(index);
        const auto size = static_cast<std::size_t>(dtype_bytes(tensor.dtype));
        std::memcpy(tensor.bytes.data() + index * size, &word, size);
      } else {
        tensor.set(i, factor * draw(random, kind, index));
      }
    }
  });
}

}  // namespace tessera::reference
