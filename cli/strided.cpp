#include "cli/strided.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "reference/poison.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;

/// f(index in the dense tensor, place in memory) for every element, both in elements.
template <class Function>
void for_elements(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides, const Function& f) {
  const std::int64_t count = reference::element_count(shape);
  std::vector<std::int64_t> at(shape.size(), 0);
  std::int64_t place = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    f(i, place);
    for (std::size_t d = shape.size(); d-- > 0;) {
      place += strides[d];
      if (++at[d] < shape[d]) break;
      place -= strides[d] * shape[d];
      at[d] = 0;
    }
  }
}

}  // namespace

std::int64_t strided_elements(std::string_view name, std::span<const std::int64_t> shape,
                              std::span<const std::int64_t> strides) {
  if (reference::element_count(shape) == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach) || __builtin_add_overflow(last, reach, &last) ||
        last >= kMaxElements)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: shape [{}] with strides [{}] reaches over more than {} elements of memory", name,
                              fmt::join(shape, ", "), fmt::join(strides, ", "), kMaxElements));
  }
  return last + 1;
}

bool is_laid_out_densely(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  if (reference::element_count(shape) == 0) return true;
  const std::vector<std::int64_t> dense = reference::dense_strides(shape);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1 && strides[d] != dense[d]) return false;
  return true;
}

std::vector<std::byte> spread(const reference::Tensor& dense, std::span<const std::int64_t> strides) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(dense.dtype));
  const auto elements = static_cast<std::size_t>(strided_elements("tensor", dense.shape, strides));
  std::vector<std::byte> memory(elements * bytes, std::byte{reference::kPoisonByte});
  for_elements(dense.shape, strides, [&](std::int64_t i, std::int64_t place) {
    std::memcpy(&memory[static_cast<std::size_t>(place) * bytes], &dense.bytes[static_cast<std::size_t>(i) * bytes],
                bytes);
  });
  return memory;
}

reference::Tensor gather(std::span<const std::byte> memory, DType dtype, const std::vector<std::int64_t>& shape,
                         std::span<const std::int64_t> strides) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(dtype));
  reference::Tensor dense(dtype, shape);
  for_elements(shape, strides, [&](std::int64_t i, std::int64_t place) {
    std::memcpy(&dense.bytes[static_cast<std::size_t>(i) * bytes], &memory[static_cast<std::size_t>(place) * bytes],
                bytes);
  });
  return dense;
}

void for_gaps(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
              const std::function<void(std::size_t, std::size_t)>& f) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(dtype));
  std::vector<bool> is_element(static_cast<std::size_t>(strided_elements("tensor", shape, strides)));
  for_elements(shape, strides,
               [&](std::int64_t, std::int64_t place) { is_element[static_cast<std::size_t>(place)] = true; });
  for (std::size_t i = 0; i < is_element.size(); ++i) {
    const std::size_t begin = i;
    while (i < is_element.size() && !is_element[i]) ++i;
    if (i != begin) f(begin * bytes, (i - begin) * bytes);
  }
}

std::string gap_problem(std::string_view name, std::span<const std::byte> memory, DType dtype,
                        const std::vector<std::int64_t>& shape, std::span<const std::int64_t> strides) {
  std::size_t overwritten = 0, first = 0;
  for_gaps(dtype, shape, strides, [&](std::size_t begin, std::size_t bytes) {
    for (std::size_t i = begin; i < begin + bytes; ++i) {
      if (memory[i] == std::byte{reference::kPoisonByte}) continue;
      if (overwritten++ == 0) first = i;
    }
  });
  if (overwritten == 0) return {};
  return fmt::format("{}: {} byte{} between its rows {} overwritten, the first at byte {}", name, overwritten,
                     overwritten == 1 ? "" : "s", overwritten == 1 ? "was" : "were", first);
}

}  // namespace tessera::cli
