// Inputs for matrix products that are chosen to hurt, a function of (stream, set, index) alone. For the formats that
// Hopper has they are the inputs that an H200 was given (see mma_h200.cpp): do not change what they draw.
#pragma once

#include <cstdint>

#include "emulator/math/float_format.h"
#include "emulator/math/mma_path.h"
#include "tests/emulator_math/random.h"

namespace tessera::emulator::math::test {

/// near: exponents close together; wide: all or 41 of them; all_bits: infinity and NaN too; tiny: around underflow;
/// cancelling: as wide, but most odd products undo the even one before them (done by the caller, see undo_previous).
enum class Data { near, wide, all_bits, tiny, cancelling };
inline constexpr Data kAllData[] = {Data::near, Data::wide, Data::all_bits, Data::tiny, Data::cancelling};

/// An operand code; tf32 gets junk in the bits that must not matter.
inline std::uint32_t draw_operand(Format format, Data data, std::uint64_t z) {
  const FormatInfo f = info_of(format);
  const bool narrow = f.exponent_bits < 8;
  const auto h = static_cast<std::uint32_t>(z >> 24);
  const std::uint32_t span = 1u << f.exponent_bits;
  const auto around = [&](int low, int high) {
    const int field = low + static_cast<int>(h % static_cast<std::uint32_t>(high - low + 1)) + f.bias;
    return field < 0 ? 0 : static_cast<std::uint32_t>(field) % span;
  };
  const std::uint32_t finite_fields = f.specials == Specials::ieee ? span - 1 : span;
  std::uint32_t field = 0;
  switch (data) {
    case Data::near:
      field = around(-3, 3);
      break;
    case Data::wide:
    case Data::cancelling:
      field = narrow ? h % finite_fields : around(-20, 20);
      break;
    case Data::all_bits:
      field = h % span;
      break;
    case Data::tiny:
      field = narrow ? h % 3 : around(-78, -58);
      break;
  }
  const std::uint32_t fraction = static_cast<std::uint32_t>(z) & ((1u << f.fraction_bits) - 1);
  std::uint32_t magnitude = field << f.fraction_bits | fraction;
  if (data != Data::all_bits && magnitude > max_finite_code(f)) --magnitude;
  const std::uint32_t code = magnitude | static_cast<std::uint32_t>(z >> 63) << (f.exponent_bits + f.fraction_bits);
  return format == Format::tf32 ? code << 13 | static_cast<std::uint32_t>(z >> 11 & 0x1FFF) : code;
}

/// The sign bit of an operand code.
inline std::uint32_t operand_sign(Format format) {
  const FormatInfo f = info_of(format);
  return 1u << (f.exponent_bits + f.fraction_bits + container_shift(format));
}

/// f32 bits or an f16 code.
inline std::uint32_t draw_accumulator(bool half, Data data, std::uint64_t z) {
  if (half) {
    if (data == Data::all_bits) return static_cast<std::uint32_t>(z) & 0xFFFF;
    const std::uint64_t field = data == Data::near ? 11 + (z >> 30) % 8 : (z >> 30) % (data == Data::tiny ? 4 : 31);
    return static_cast<std::uint32_t>((z >> 63) << 15 | field << 10 | (z & 1023));
  }
  if (data == Data::all_bits) return static_cast<std::uint32_t>(z >> 17);
  const int spread = static_cast<int>(z >> 30 & 0xFFFF);
  const int exponent = data == Data::near   ? -4 + spread % 11
                       : data == Data::wide ? -30 + spread % 61
                       : data == Data::tiny ? -140 + spread % 40
                                            : -40 + spread % 41;
  std::uint32_t fraction = static_cast<std::uint32_t>(z) & 0x7FFFFF;
  int field = exponent + 127;
  if (field < 1) {
    fraction = (fraction | 0x800000) >> (1 - field);
    field = 0;
  }
  return static_cast<std::uint32_t>(z >> 63) << 31 | static_cast<std::uint32_t>(field) << 23 | fraction;
}

}  // namespace tessera::emulator::math::test
