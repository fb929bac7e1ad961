#include "emulator/math/instruction_descriptor.h"

#include <optional>

namespace tessera::emulator::math {
namespace {

constexpr std::uint32_t field(std::uint32_t bits, int low, int width) { return bits >> low & ((1u << width) - 1); }
constexpr bool bit(std::uint32_t bits, int at) { return field(bits, at, 1) != 0; }
constexpr std::uint32_t mask(int low, int width) { return ((1u << width) - 1) << low; }

std::optional<Format> operand_format(Tcgen05Kind kind, std::uint32_t code) {
  switch (kind) {
    case Tcgen05Kind::f16:
      if (code == 0) return Format::f16;
      if (code == 1) return Format::bf16;
      return std::nullopt;
    case Tcgen05Kind::tf32:
      return code == 2 ? std::optional(Format::tf32) : std::nullopt;
    case Tcgen05Kind::f8f6f4:
    case Tcgen05Kind::mxf8f6f4:
      switch (code) {
        case 0:
          return Format::e4m3;
        case 1:
          return Format::e5m2;
        case 3:
          return Format::e2m3;
        case 4:
          return Format::e3m2;
        case 5:
          return Format::e2m1;
        default:
          return std::nullopt;
      }
    case Tcgen05Kind::mxf4:
    case Tcgen05Kind::mxf4nvf4:
      return code == 1 ? std::optional(Format::e2m1) : std::nullopt;
    case Tcgen05Kind::i8:
      break;
  }
  return std::nullopt;
}

void read_types(Tcgen05Kind kind, std::uint32_t a, std::uint32_t b, InstructionDescriptor& d) {
  if (kind == Tcgen05Kind::i8) {
    d.a_signed = a == 1;
    d.b_signed = b == 1;
    if (a > 1 || b > 1) d.issue = InstructionIssue::operand_type;
    return;
  }
  const std::optional<Format> a_format = operand_format(kind, a);
  const std::optional<Format> b_format = operand_format(kind, b);
  if (a_format && b_format) {
    d.a = *a_format;
    d.b = *b_format;
  } else {
    d.issue = InstructionIssue::operand_type;
  }
}

void read_result(Tcgen05Kind kind, std::uint32_t code, InstructionDescriptor& d) {
  const bool integer = kind == Tcgen05Kind::i8;
  const bool half_allowed = kind == Tcgen05Kind::f16 || kind == Tcgen05Kind::f8f6f4;
  if (code == 0 && half_allowed)
    d.result = Tcgen05Result::f16;
  else if (code == 1 && !integer)
    d.result = Tcgen05Result::f32;
  else if (code == 2 && integer)
    d.result = Tcgen05Result::s32;
  else
    d.issue = InstructionIssue::result_type;
}

void read_plain(Tcgen05Kind kind, std::uint32_t bits, InstructionDescriptor& d) {
  const bool integer = kind == Tcgen05Kind::i8;
  std::uint32_t zero = mask(6, 1) | mask(23, 1) | mask(29, 1);
  if (integer) zero |= mask(13, 2);
  if (!integer) zero |= mask(3, 1);
  if ((bits & zero) != 0) d.issue = InstructionIssue::reserved_bits;
  d.sparsity_selector = static_cast<int>(field(bits, 0, 2));
  d.saturate = bit(bits, 3);
  read_result(kind, field(bits, 4, 2), d);
  read_types(kind, field(bits, 7, 3), field(bits, 10, 3), d);
  d.m = static_cast<int>(field(bits, 24, 5)) * 16;
  constexpr int kShifts[4] = {0, 8, 16, 32};
  d.max_shift = kShifts[field(bits, 30, 2)];
}

void read_scaled(Tcgen05Kind kind, std::uint32_t bits, InstructionDescriptor& d) {
  const bool fp4 = kind != Tcgen05Kind::mxf8f6f4;
  const std::uint32_t zero = mask(0, 2) | mask(3, 1) | mask(6, 1) | mask(24, 3) | (fp4 ? mask(12, 1) : mask(31, 1));
  if ((bits & zero) != 0) d.issue = InstructionIssue::reserved_bits;
  d.scale_id_b = static_cast<int>(field(bits, 4, 2));
  d.scale_id_a = static_cast<int>(field(bits, 29, 2));
  read_types(kind, field(bits, 7, 3), field(bits, 10, fp4 ? 2 : 3), d);
  d.m = static_cast<int>(field(bits, 27, 2)) * 128;
  d.scale_format = bit(bits, 23) ? Format::ue8m0 : Format::ue4m3;
  if (kind != Tcgen05Kind::mxf4nvf4 && d.scale_format != Format::ue8m0) d.issue = InstructionIssue::scale_type;
  if (fp4 && (d.a_major != Major::k || d.b_major != Major::k)) d.issue = InstructionIssue::major;
}

int products(Tcgen05Kind kind, std::uint32_t bits) {
  switch (kind) {
    case Tcgen05Kind::f16:
      return 16;
    case Tcgen05Kind::tf32:
      return 8;
    case Tcgen05Kind::f8f6f4:
    case Tcgen05Kind::i8:
    case Tcgen05Kind::mxf8f6f4:
      return 32;
    case Tcgen05Kind::mxf4:
    case Tcgen05Kind::mxf4nvf4:
      return bit(bits, 31) ? 96 : 64;
  }
  return 0;
}

}  // namespace

InstructionDescriptor decode_instruction(Tcgen05Kind kind, std::uint32_t bits) {
  InstructionDescriptor d;
  d.sparse = bit(bits, 2);
  d.negate_a = bit(bits, 13);
  d.negate_b = bit(bits, 14);
  d.a_major = bit(bits, 15) ? Major::mn : Major::k;
  d.b_major = bit(bits, 16) ? Major::mn : Major::k;
  d.n = static_cast<int>(field(bits, 17, 6)) * 8;
  const bool scaled = kind == Tcgen05Kind::mxf8f6f4 || kind == Tcgen05Kind::mxf4 || kind == Tcgen05Kind::mxf4nvf4;
  if (scaled)
    read_scaled(kind, bits, d);
  else
    read_plain(kind, bits, d);
  d.k = products(kind, bits);
  return d;
}

}  // namespace tessera::emulator::math
