// Whether elements of a strided tensor share places: what is written must not.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tessera/launch.h"

namespace tessera {

/// Two indices that lie at one place: `first` and `second`, of the tensor's rank. Unproven: neither that nor the
/// opposite was found in the steps that the search allows itself.
struct StrideOverlap {
  std::array<std::int64_t, kMaxBufferRank> first{}, second{};
  bool is_proven = true;
};

/// Nothing where every index has a place of its own. Exact: strides that nest, in any order, are told from their sums;
/// for others (interleaved rows, say) the indices' differences are searched, which ends unproven after 2^18 steps.
/// Extents of 1 and below have no say, nor has a tensor without elements. At most kMaxBufferRank extents, as many
/// strides.
std::optional<StrideOverlap> find_overlap(std::span<const std::int64_t> extents,
                                          std::span<const std::int64_t> strides) noexcept;

/// "d overlaps itself: d_stride_l = 40 and ldd = 8: elements [1, 0, 0] and [0, 5, 0] lie at one place; ..."
std::string overlap_message(const BufferSpec& buffer, std::span<const std::int64_t> strides,
                            const StrideOverlap& overlap);

}  // namespace tessera
