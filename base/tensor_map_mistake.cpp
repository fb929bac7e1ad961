// A layout is judged by its strides alone: with the dimensions sorted by stride, each stride must reach past all that
// smaller strides span (no overlap), and a dense layout has equality everywhere. A mistake is likely when the layout as
// given fails and the layout with that mistake undone passes.
#include "base/tensor_map_mistake.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tessera {
namespace {

enum class Spacing : std::uint8_t { overlaps, gaps, dense };

std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
}

Spacing spacing_of(const ResolvedTensorMap& map) {
  std::array<std::uint32_t, 5> outer{};  // dimensions 1 and up that have neighbours, by ascending stride
  std::size_t count = 0;
  for (std::uint32_t i = 1; i < map.rank; ++i) {
    if (map.dims[i] == 1) continue;
    std::size_t at = count++;
    for (; at > 0 && map.strides_bytes[outer[at - 1] - 1] > map.strides_bytes[i - 1]; --at) outer[at] = outer[at - 1];
    outer[at] = i;
  }
  std::uint64_t span = saturating_product(map.dims[0], static_cast<std::uint64_t>(element_bytes(map.type)));
  Spacing spacing = Spacing::dense;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t stride = map.strides_bytes[outer[i] - 1];
    if (stride < span || span == std::numeric_limits<std::uint64_t>::max()) return Spacing::overlaps;
    if (stride > span) spacing = Spacing::gaps;
    span = saturating_product(stride, map.dims[outer[i]]);
  }
  return spacing;
}

ResolvedTensorMap undone(ResolvedTensorMap map, TensorMapMistake mistake) {
  if (mistake != TensorMapMistake::strides_in_elements) {
    std::reverse(map.dims.begin(), map.dims.begin() + map.rank);
    std::reverse(map.strides_bytes.begin(), map.strides_bytes.begin() + map.rank - 1);
  }
  if (mistake != TensorMapMistake::outermost_first)
    for (std::uint64_t& stride : map.strides_bytes)
      stride = saturating_product(stride, static_cast<std::uint64_t>(element_bytes(map.type)));
  return map;
}

// The values that the judgement needs are there, and no stride is 0.
bool can_judge(const ResolvedTensorMap& map) {
  if (element_bytes(map.type) == 0 || map.rank < 2 || map.rank > kMaxTensorMapRank) return false;
  for (std::uint32_t i = 0; i < map.rank; ++i)
    if (map.dims[i] == 0) return false;
  for (std::uint32_t i = 0; i + 1 < map.rank; ++i)
    if (map.strides_bytes[i] == 0) return false;
  return true;
}

}  // namespace

TensorMapMistake likely_mistake(const ResolvedTensorMap& map) noexcept {
  using Mistake = TensorMapMistake;
  if (!can_judge(map) || spacing_of(map) != Spacing::overlaps) return Mistake::none;
  for (const Mistake mistake :
       {Mistake::strides_in_elements, Mistake::outermost_first, Mistake::outermost_first_in_elements}) {
    if (mistake != Mistake::outermost_first && element_bytes(map.type) == 1) continue;
    if (spacing_of(undone(map, mistake)) != Spacing::overlaps) return mistake;
  }
  return Mistake::none;
}

TensorMapMistake suspected_mistake(const ResolvedTensorMap& map) noexcept {
  if (!can_judge(map)) return TensorMapMistake::none;
  if (spacing_of(map) == Spacing::gaps && spacing_of(undone(map, TensorMapMistake::outermost_first)) == Spacing::dense)
    return TensorMapMistake::outermost_first;
  return likely_mistake(map);
}

std::string mistake_sentence(const ResolvedTensorMap& map, TensorMapMistake mistake) {
  const ResolvedTensorMap meant = undone(map, mistake);
  const std::string strides = braced(meant.strides_bytes, map.rank - 1);
  const std::string_view result = spacing_of(meant) == Spacing::dense ? "dense" : "free of overlap";
  if (mistake == TensorMapMistake::strides_in_elements)
    return fmt::format("the strides look like elements: times {} ({}) the tensor is {}; give strides_bytes {}",
                       element_bytes(map.type), to_string(map.type), result, strides);
  return fmt::format(
      "the dimensions look listed outermost first{}: reversed, the tensor is {}; give dims {} and "
      "strides_bytes {}",
      mistake == TensorMapMistake::outermost_first ? "" : ", with strides in elements", result,
      braced(meant.dims, map.rank), strides);
}

std::string likely_mistake_message(const ResolvedTensorMap& map, std::string_view name) {
  const TensorMapMistake mistake = likely_mistake(map);
  if (mistake == TensorMapMistake::none) return {};
  return fmt::format("tensor map '{}': dims {} with strides_bytes {}: elements overlap; {}", name,
                     braced(map.dims, map.rank), braced(map.strides_bytes, map.rank - 1),
                     mistake_sentence(map, mistake));
}

}  // namespace tessera
