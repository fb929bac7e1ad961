// Shared-memory swizzles: which bits of an absolute shared address are XORed into which.
//
// PTX ISA, "Tensor swizzling modes" and "Matrix descriptor". Measured on H200: 32B, 64B and 128B, for tensor copies and
// for wgmma operands, act on the absolute address (not on the offset in a tile), so a tile may start anywhere in the
// pattern. Each function is its own inverse.
#pragma once

#include <cstdint>

namespace tessera::emulator::math {

/// The first seven carry the driver's numbers (CUtensorMapSwizzle).
enum class Swizzle : std::uint8_t {
  none = 0,
  b32 = 1,
  b64 = 2,
  b128 = 3,
  b128_atom_32b = 4,
  b128_atom_32b_flip_8b = 5,
  b128_atom_64b = 6,
  b96 = 7  ///< sm_103a
};

/// False where the sources contradict each other or leave something open: 128B with 64-byte atoms or with flipped
/// halves, and the row pitch of 96B.
constexpr bool swizzle_is_settled(Swizzle s) { return s <= Swizzle::b128_atom_32b; }

/// Bytes of one row of the pattern; 16 without swizzle.
constexpr std::uint32_t swizzle_span_bytes(Swizzle s) {
  switch (s) {
    case Swizzle::none:
      return 16;
    case Swizzle::b32:
      return 32;
    case Swizzle::b64:
      return 64;
    case Swizzle::b96:
      return 96;
    default:
      return 128;
  }
}

/// Where the byte of absolute shared address `a` is found.
constexpr std::uint32_t apply_swizzle(Swizzle s, std::uint32_t a) {
  switch (s) {
    case Swizzle::none:
      return a;
    case Swizzle::b32:
    case Swizzle::b96:
      return a ^ (a >> 7 & 1) << 4;  // [4] ^= [7]
    case Swizzle::b64:
      return a ^ (a >> 7 & 3) << 4;  // [5:4] ^= [8:7]
    case Swizzle::b128:
      return a ^ (a >> 7 & 7) << 4;  // [6:4] ^= [9:7]
    case Swizzle::b128_atom_32b:
      return a ^ (a >> 7 & 3) << 5;  // [6:5] ^= [8:7]
    case Swizzle::b128_atom_32b_flip_8b:
      return a ^ (a >> 7 & 3) << 5 ^ (a >> 7 & 1) << 3;  // and [3] ^= [7]: unsettled
    case Swizzle::b128_atom_64b:
      return a ^ (a >> 7 & 1) << 6;  // [6] ^= [7]: unsettled
  }
  return a;
}

}  // namespace tessera::emulator::math
