// What goes wrong only when a kernel copies through a legal tensor map: no encode checks it, the hardware faults or the
// data lands elsewhere than expected. For planners, `check` and kernels' authors. Measured on compute capability 9.0,
// interleave none; what is said of the packed types follows documents and libraries and was not measured.
// docs/tensor-maps.md, "At run time".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/tensor_map.h"

namespace tessera {

enum class TensorMapDirection : std::uint8_t { load, store };

/// One copy of a box between global and shared memory.
struct TensorMapCopy {
  TensorMapDirection direction = TensorMapDirection::load;
  std::array<std::int64_t, 5> coordinates{};  ///< innermost first, elements; entries past the rank are not read
  std::uint64_t smem_address = 0;             ///< of the box in shared memory
};

/// Faults of a copy; the numbers are stable as the rules' are.
enum class TensorMapFault : std::uint8_t {
  none = 0,
  inner_coordinate = 1,  ///< coordinate 0 times the element size is no multiple of 16 bytes (padded packed types: no
                         ///< multiple of 128 elements): "illegal instruction"
  store_negative = 2,    ///< a store with a negative coordinate: "illegal instruction" (loads fill)
  smem_alignment = 3,    ///< the shared address is no multiple of 128: "misaligned address"
  coordinate_range = 4   ///< a coordinate that does not fit the instruction's 32 bits
};
inline constexpr int kNumTensorMapFaults = 4;

std::string_view to_string(TensorMapFault fault) noexcept;

/// The first fault of the copy, or none; no allocation. Precondition: the map breaks no rule.
TensorMapFault first_fault(const ResolvedTensorMap& map, const TensorMapCopy& copy) noexcept;
/// "tensor map 'q': fault 1 (inner_coordinate): ..." with value, bound and remedy; empty for none.
std::string fault_message(const ResolvedTensorMap& map, const TensorMapCopy& copy, std::string_view name);

/// Bytes from one row of the box to the next in shared memory: the swizzle's span, also where the inner box is
/// narrower; without swizzle, the inner box.
std::uint64_t smem_row_pitch_bytes(const ResolvedTensorMap& map) noexcept;
/// Bytes of shared memory from the first to past the last row: the pitch times ceil(box / element stride) of every
/// dimension but the innermost.
std::uint64_t smem_box_bytes(const ResolvedTensorMap& map) noexcept;
/// Bytes that a load credits to its mbarrier: the whole box (ceil(box / element stride) in every dimension but the
/// innermost, where the stride is ignored), whatever lies outside the tensor, without the gaps of a narrow row. Each
/// destination of a multicast is credited as much. The padded packed types count the packed bytes of global memory.
std::uint64_t transaction_bytes(const ResolvedTensorMap& map) noexcept;

}  // namespace tessera
