// Arithmetic on a resolved map: rows, pitches and credits of a copy, and the first of its faults. Sizes are those of
// a map that breaks no rule, so nothing here can overflow 64 bits.
#include "base/tensor_map_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tessera {
namespace {

std::uint64_t rows_of(const ResolvedTensorMap& map) {
  std::uint64_t count = 1;
  for (std::uint32_t i = 1; i < map.rank; ++i)
    count *= (map.box[i] + map.element_strides[i] - 1) / map.element_strides[i];
  return count;
}

bool is_padded(TensorMapType type) { return is_packed(type) && type != TensorMapType::u4x16_align8b; }

// Elements of which coordinate 0 is a multiple: 16 bytes of them, but 128 of a padded packed type.
int inner_unit(TensorMapType type) { return is_padded(type) ? 128 : 128 / smem_element_bits(type); }

bool fits_32_bits(std::int64_t value) {
  return value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

std::string_view to_string(TensorMapFault fault) noexcept {
  static constexpr std::array<std::string_view, kNumTensorMapFaults + 1> kNames{
      "none", "inner_coordinate", "store_negative", "smem_alignment", "coordinate_range"};
  const std::size_t i = static_cast<std::size_t>(fault);
  return i < kNames.size() ? kNames[i] : "?";
}

TensorMapFault first_fault(const ResolvedTensorMap& map, const TensorMapCopy& copy) noexcept {
  const auto end = copy.coordinates.begin() + map.rank;
  if (copy.coordinates[0] % inner_unit(map.type) != 0) return TensorMapFault::inner_coordinate;
  const bool is_store = copy.direction == TensorMapDirection::store;
  if (is_store && std::any_of(copy.coordinates.begin(), end, [](std::int64_t c) { return c < 0; }))
    return TensorMapFault::store_negative;
  if (copy.smem_address % 128 != 0) return TensorMapFault::smem_alignment;
  return std::all_of(copy.coordinates.begin(), end, fits_32_bits) ? TensorMapFault::none
                                                                  : TensorMapFault::coordinate_range;
}

std::string fault_message(const ResolvedTensorMap& map, const TensorMapCopy& copy, std::string_view name) {
  const TensorMapFault fault = first_fault(map, copy);
  const auto coordinate = [&](auto is_bad) {
    std::size_t i = 0;
    while (!is_bad(copy.coordinates[i])) ++i;
    return fmt::format("coordinate[{}] = {}", i, copy.coordinates[i]);
  };
  std::string text;
  switch (fault) {
    case TensorMapFault::none:
      return {};
    case TensorMapFault::inner_coordinate:
      text = fmt::format(
          "coordinate[0] = {} of {}: must be a multiple of {}{} elements, or the copy is an illegal "
          "instruction; copy from the multiple below and skip elements in shared memory",
          copy.coordinates[0], to_string(map.type), is_padded(map.type) ? "" : "16 bytes, ", inner_unit(map.type));
      break;
    case TensorMapFault::store_negative:
      text = fmt::format(
          "{}: must be at least 0 in a store, or it is an illegal instruction (loads fill instead); start "
          "the tile inside the tensor",
          coordinate([](std::int64_t c) { return c < 0; }));
      break;
    case TensorMapFault::smem_alignment:
      text = fmt::format(
          "shared address {:#x}: must be a multiple of 128, or the copy faults with a misaligned address; "
          "align the tile (to 1024 with swizzle 128B, so that tiles repeat the pattern)",
          copy.smem_address);
      break;
    case TensorMapFault::coordinate_range:
      text = fmt::format("{}: must fit 32 bits signed; make a map for each part of the tensor",
                         coordinate([](std::int64_t c) { return !fits_32_bits(c); }));
      break;
  }
  return fmt::format("tensor map '{}': fault {} ({}): {}", name, static_cast<int>(fault), to_string(fault), text);
}

std::uint64_t smem_row_pitch_bytes(const ResolvedTensorMap& map) noexcept {
  const std::uint64_t inner = inner_box_bits(map) / 8;
  return std::max(inner, static_cast<std::uint64_t>(swizzle_span_bytes(map.swizzle)));
}

std::uint64_t smem_box_bytes(const ResolvedTensorMap& map) noexcept { return smem_row_pitch_bytes(map) * rows_of(map); }

std::uint64_t transaction_bytes(const ResolvedTensorMap& map) noexcept {
  const std::uint64_t bits = map.type == TensorMapType::u4x16_align16b   ? map.box[0] * std::uint64_t{4}
                             : map.type == TensorMapType::u6x16_align16b ? map.box[0] * std::uint64_t{6}
                                                                         : inner_box_bits(map);
  return bits / 8 * rows_of(map);
}

}  // namespace tessera
