// Outputs are filled with one byte before a run, and the memory around them too: an element that still holds it was not
// written, a guard that does not was overwritten. The byte makes every floating-point element a NaN that no arithmetic
// yields (all bits set; what the hardware makes itself is 0x7F...FF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "reference/tensor.h"

namespace tessera::reference {

inline constexpr std::uint8_t kPoisonByte = 0xFF;
inline constexpr std::size_t kGuardBytes = 4096;

/// Elements of the view that still hold the poison; every element is looked at. first: index of the first one in the
/// order of the shape.
struct PoisonCount {
  std::int64_t poisoned = 0;
  std::int64_t first = -1;
};
PoisonCount count_poisoned(const TensorView& view);

/// Empty when every byte is the poison; else "o: 3 bytes before it were overwritten, the nearest 16 bytes away".
std::string guard_problem(std::string_view output, std::string_view side, std::span<const std::byte> guard);

}  // namespace tessera::reference
