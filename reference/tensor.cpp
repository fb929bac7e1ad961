#include "reference/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tessera/error.h"

namespace tessera::reference {

std::int64_t element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count))
      throw Error(ErrorKind::usage, fmt::format("shape [{}]: extents must be at least 0 and their product below 2^63",
                                                fmt::join(shape, ", ")));
  }
  return count;
}

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

Tensor::Tensor(DType element_type, std::vector<std::int64_t> extents) : dtype(element_type), shape(std::move(extents)) {
  const auto count = static_cast<std::uint64_t>(element_count(shape));
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40;
  const auto element = static_cast<std::uint64_t>(dtype_bytes(dtype));
  if (count > kMaxBytes / element)
    throw Error(ErrorKind::usage, fmt::format("shape [{}] of {}: more than 1 TiB of host memory; use smaller sizes",
                                              fmt::join(shape, ", "), dtype_name(dtype)));
  bytes.resize(count * element);
}

void Tensor::set(std::int64_t index, double value) {
  const std::uint64_t bits = from_double(dtype, value);
  const auto size = static_cast<std::size_t>(dtype_bytes(dtype));
  std::memcpy(bytes.data() + static_cast<std::size_t>(index) * size, &bits, size);
}

}  // namespace tessera::reference
