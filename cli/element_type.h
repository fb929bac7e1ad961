// Element types as files and launch files name them: every format that PTX knows, 4-bit ones packed two to a byte, the
// first in the low half. Values go through double: exact for all but 64-bit integers above 2^53.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/math/float_format.h"

namespace tessera::cli {

struct ElementType {
  std::string_view name;   ///< "bf16", "e2m1", "s32"
  int bits = 0;            ///< in memory
  std::string_view descr;  ///< of the .npy file that holds its bits: numpy's own type where there is one
  std::optional<emulator::math::Format> format{};  ///< nothing: an integer
  bool is_signed = false;                          ///< of an integer
};

/// Null when there is no such type.
const ElementType* find_element_type(std::string_view name) noexcept;
/// "f64, f32, ...", for messages.
std::string element_type_names();
/// Bytes of this many elements that lie side by side; 4-bit ones rounded up to a whole byte.
constexpr std::uint64_t bytes_of(const ElementType& type, std::uint64_t elements) {
  return (elements * static_cast<std::uint64_t>(type.bits) + 7) / 8;
}

std::uint64_t element_bits(const ElementType& type, const std::byte* data, std::uint64_t index) noexcept;
double element_value(const ElementType& type, const std::byte* data, std::uint64_t index) noexcept;
/// Stores the nearest representable value; integers are rounded to nearest even and clamped.
void set_element(const ElementType& type, std::byte* data, std::uint64_t index, double value) noexcept;
void set_element_bits(const ElementType& type, std::byte* data, std::uint64_t index, std::uint64_t bits) noexcept;

}  // namespace tessera::cli
