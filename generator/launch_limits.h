// The most that a launch may ask for, so that the int in which device code counts holds it.
#pragma once

#include <cstdint>

namespace tessera {

inline constexpr std::int64_t kMaxLength =
    (std::int64_t{1} << 31) - (1 << 16);  ///< of a sequence: coordinates and sums of lengths stay in int
inline constexpr std::int64_t kMaxStride = std::int64_t{1} << 40;  ///< in elements
inline constexpr std::int64_t kMaxHeads = 1 << 16;
inline constexpr std::int64_t kMaxParts = 1 << 16;  ///< that are merged
inline constexpr std::int64_t kMaxSms = 1 << 16;    ///< of a device

/// Registers that a thread may have beside all of a multiprocessor's that launch bounds ask for.
constexpr int registers_of_bounds(int threads, int ctas) {
  const int share = 65536 / (threads * ctas) / 8 * 8;
  return share < 255 ? share : 255;
}

}  // namespace tessera
