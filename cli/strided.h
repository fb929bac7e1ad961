// Dense tensors in memory with gaps: what a launch with strides of the caller's finds, and what it leaves behind.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/tensor.h"

namespace tessera::cli {

/// Elements from the first to the last; 0 where an extent is. Throws Error{usage} beyond 2^36.
std::int64_t strided_elements(std::string_view name, std::span<const std::int64_t> shape,
                              std::span<const std::int64_t> strides);

/// Whether a dense tensor of this shape lies so: strides of extents of 1, and of empty tensors, do not count.
bool is_laid_out_densely(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

/// The memory of a tensor with these strides. Gaps hold the poison: what reads them shows. Of places that several
/// elements share, the last element counts.
std::vector<std::byte> spread(const reference::Tensor& dense, std::span<const std::int64_t> strides);

/// The inverse: the tensor that lies in `memory`.
reference::Tensor gather(std::span<const std::byte> memory, DType dtype, const std::vector<std::int64_t>& shape,
                         std::span<const std::int64_t> strides);

/// f(first byte, bytes) for every gap between elements, in order.
void for_gaps(DType dtype, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
              const std::function<void(std::size_t, std::size_t)>& f);

/// Empty when every byte of the gaps is the poison; else "d: 3 bytes between its rows were overwritten, the first at
/// byte 264".
std::string gap_problem(std::string_view name, std::span<const std::byte> memory, DType dtype,
                        const std::vector<std::int64_t>& shape, std::span<const std::int64_t> strides);

}  // namespace tessera::cli
