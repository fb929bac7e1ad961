// Tensors in host memory: an owning dense one, and a view with strides for outputs that lie in a caller's layout.
// Shapes are outermost first, strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "reference/number.h"
#include "tessera/spec/types.h"

namespace tessera::reference {

/// Product of the extents; 1 for no dimensions.
std::int64_t element_count(std::span<const std::int64_t> shape);
/// Strides of a dense tensor of this shape, elements.
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape);

struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  /// Bits of the element `offset` elements after the start.
  std::uint64_t bits_at(std::int64_t offset) const {
    std::uint64_t bits = 0;
    const auto bytes = static_cast<std::size_t>(dtype_bytes(dtype));
    std::memcpy(&bits, data + static_cast<std::size_t>(offset) * bytes, bytes);
    return bits;
  }
  double at(std::int64_t offset) const { return to_double(dtype, bits_at(offset)); }
};

struct Tensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  Tensor() = default;
  /// Zeroes. Throws Error{usage} when the size overflows or an extent is negative.
  Tensor(DType element_type, std::vector<std::int64_t> extents);
  std::int64_t elements() const { return element_count(shape); }
  TensorView view() const { return {bytes.data(), dtype, shape, dense_strides(shape)}; }
  double at(std::int64_t index) const { return view().at(index); }
  /// Stores the nearest representable value.
  void set(std::int64_t index, double value);
};

}  // namespace tessera::reference
