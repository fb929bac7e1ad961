// The classic mistakes in dims and strides, found from the values. Internal to the tensor-map messages.
#pragma once

#include <string>
#include <string_view>

#include "tessera/tensor_map.h"

namespace tessera {

/// As likely_mistake, but also outermost_first where the layout as given merely has gaps and the reversed one is dense:
/// a column slice of a matrix can look like that too, so this is a hint for a map that some rule refuses anyway.
TensorMapMistake suspected_mistake(const ResolvedTensorMap& map) noexcept;

/// "the strides look like elements: times 2 (bf16) they would be free of overlap; give strides_bytes {256, 2048}".
std::string mistake_sentence(const ResolvedTensorMap& map, TensorMapMistake mistake);

/// "{1, 2, 3}": the first count values.
template <class Array>
std::string braced(const Array& values, std::size_t count) {
  std::string text = "{";
  for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text + "}";
}

}  // namespace tessera
