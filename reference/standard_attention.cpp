#include "reference/standard_attention.h"

#include <algorithm>
#include <cmath>

namespace tessera::reference {

namespace {

// Column 0 of k, and column 1 of its first key. A level above all else keeps |q| |k|, and with it what is explained by
// roundings, near the scores.
constexpr double kLevel = 32, kRamp = 16;
constexpr std::int64_t kRowsOfGroup = 16;
constexpr double kExtreme = 700, kSlope = 60;
// Of 8-bit tensors, whose products are cut to 13 bits of the largest.
constexpr double kExtremeOf8Bit = 40, kSlopeOf8Bit = 20;

enum Kind { ordinary, one_steep, deep, ordinary_too, high, one_falling, num_kinds };

}  // namespace

void set_query_kinds(Tensor& q, double softmax_scale, std::uint64_t seed) {
  const std::int64_t batch = q.shape[0], rows = q.shape[1], heads = q.shape[2], columns = q.shape[3];
  if (columns < 2 || !std::isfinite(softmax_scale)) return;
  // A scale near 0 would ask for numbers that f16 lacks.
  const bool is_8_bit = dtype_bytes(q.dtype) == 1;
  const double extreme = is_8_bit ? kExtremeOf8Bit : kExtreme, slope = is_8_bit ? kSlopeOf8Bit : kSlope;
  const double scale = std::copysign(std::max(std::fabs(softmax_scale), 1.0 / 64), softmax_scale);
  for (std::int64_t i = 0; i < batch * rows * heads; ++i) {
    const std::int64_t head = i % heads, row = i / heads % rows, group = row / kRowsOfGroup;
    const auto turn = static_cast<std::int64_t>(seed % num_kinds) - 1 + group + head + i / heads / rows;
    const auto kind = static_cast<Kind>((turn + num_kinds) % num_kinds);
    const std::int64_t size = std::min(kRowsOfGroup, rows - group * kRowsOfGroup);
    const bool is_chosen = row % kRowsOfGroup == (7 * turn + 7 * num_kinds + 5) % size;
    const bool is_flat = kind == one_steep || kind == one_falling;
    for (std::int64_t d = 0; is_flat && d < columns; ++d) q.set(i * columns + d, q.at(i * columns + d) / 16);
    if (kind == deep || kind == high)
      q.set(i * columns, (kind == deep ? -extreme : extreme - slope) / (kLevel * scale));
    const bool slopes = is_flat ? is_chosen : (kind == deep || kind == high) && row % 2 == 1;
    if (!slopes) continue;
    if (kind == deep) q.set(i * columns, -(extreme + slope) / (kLevel * scale));
    if (kind == high) q.set(i * columns, extreme / (kLevel * scale));
    const bool falls = kind == one_falling || kind == high;
    q.set(i * columns + 1, (falls ? -slope : slope) / (kRamp * scale));
  }
}

void set_key_columns(Tensor& k, int tile_n, std::uint64_t seed) {
  const std::size_t axis = k.shape.size() == 2 ? 0 : 1;
  const std::int64_t keys = k.shape[axis], columns = k.shape.back(), heads = axis == 0 ? 1 : k.shape[2];
  if (columns < 2 || keys == 0) return;
  const std::int64_t tiles = tile_n == 0 ? 1 : (keys + tile_n - 1) / tile_n;
  for (std::int64_t i = 0; i < k.elements() / columns; ++i) {
    const std::int64_t key = i / heads % keys, index = i / heads / keys * heads + i % heads;
    k.set(i * columns, kLevel);
    k.set(i * columns + 1,
          kRamp * static_cast<double>(keys - 1 - key) / static_cast<double>(std::max<std::int64_t>(keys - 1, 1)));
    const bool has_zeros = tiles > 1 && (static_cast<std::uint64_t>(index) + seed) % 2 == 0;
    if (!has_zeros || key / tile_n != tiles - 1 - index / 2 % tiles) continue;
    for (std::int64_t d = 0; d < columns; ++d) k.set(i * columns + d, 0);
  }
}

FmhaTensors make_standard_inputs(const FmhaSizes& sizes, DType dtype, double softmax_scale, int tile_n,
                                 std::uint64_t seed) {
  FmhaTensors made = make_inputs(sizes, dtype, Fill::normal, seed);
  set_query_kinds(made.q, softmax_scale, seed);
  set_key_columns(made.k, tile_n, seed);
  return made;
}

}  // namespace tessera::reference
