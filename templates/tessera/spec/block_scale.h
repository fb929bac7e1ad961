// Block-scaled formats: which values, which scales, how many elements share one, and where a scale lies in memory. Host
// and device evaluate the same functions.
//
//   format       value            scale                     elements of a block, along K
//   nvfp4        e2m1, two a byte ue4m3 (times an fp32 g)   16
//   mxfp4        e2m1, two a byte ue8m0                     32
//   mxfp8_e4m3   e4m3             ue8m0                     32
//   mxfp8_e5m2   e5m2             ue8m0                     32
//   mxfp6_e3m2   e3m2, six bits   ue8m0                     32
//   mxfp6_e2m3   e2m3, six bits   ue8m0                     32
//
// K is contiguous. Of two values in a byte the one with the smaller k is in the low four bits. Values of six bits
// follow each other without gaps, the lowest bit first: value i of a row is its bits 6 i to 6 i + 5, so that four of
// them fill three bytes, and 16 the 12 bytes that a tensor map takes them by. Scales come in two forms:
//   plain  [batch, rows, K / block], dense
//   tile   [batch, ceil(rows / 128), ceil(K / block / 4), 32, 4, 4]: tiles of 128 rows by 4 blocks, 512 bytes each, as
//          the matrix instructions of sm_100 read them. Bytes that belong to no element (rows past the end, blocks past
//          K) may hold anything and must not reach a result; what writes scales here writes 0 into them.
//
// Codes: ue4m3 is e4m3 with its sign bit clear, 0x7F is NaN; a set sign bit is ignored. ue8m0 x is 2^(x - 127), 0xFF is
// NaN.
#pragma once

#include "tessera/spec/types.h"

namespace tessera {

enum class BlockFormat { nvfp4, mxfp4, mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2, mxfp6_e2m3 };
enum class ValueType { e2m1, e4m3, e5m2, e3m2, e2m3 };
enum class ScaleType { ue4m3, ue8m0 };
enum class ScaleForm { plain, tile };

// How an MX block's power of two is taken from its largest magnitude: the least one under which nothing overflows, or
// the rule of the OCP specification, 2^(floor(log2(amax)) - exponent of the largest value), which saturates what is
// above.
enum class ScaleRounding { up, floor };

// What NVFP4's fp32 factor of the whole tensor is: 1; a value that the caller gives; or amax / (6 * 448), found by a
// pass of its own.
enum class GlobalScale { none, given, amax };

// How values of four and six bits are converted: by the target's cvt instructions, or by integer arithmetic where it
// has none.
enum class Conversion { software, hardware };

TESSERA_HD constexpr ValueType value_type(BlockFormat format) {
  return format == BlockFormat::mxfp8_e4m3   ? ValueType::e4m3
         : format == BlockFormat::mxfp8_e5m2 ? ValueType::e5m2
         : format == BlockFormat::mxfp6_e3m2 ? ValueType::e3m2
         : format == BlockFormat::mxfp6_e2m3 ? ValueType::e2m3
                                             : ValueType::e2m1;
}
TESSERA_HD constexpr ScaleType scale_type(BlockFormat format) {
  return format == BlockFormat::nvfp4 ? ScaleType::ue4m3 : ScaleType::ue8m0;
}
TESSERA_HD constexpr int block_elements(BlockFormat format) { return format == BlockFormat::nvfp4 ? 16 : 32; }
TESSERA_HD constexpr int value_bits(ValueType type) {
  return type == ValueType::e2m1 ? 4 : type == ValueType::e3m2 || type == ValueType::e2m3 ? 6 : 8;
}
TESSERA_HD constexpr int value_bits(BlockFormat format) { return value_bits(value_type(format)); }
TESSERA_HD constexpr bool is_mxfp6(BlockFormat format) { return value_bits(format) == 6; }
// The fewest values that fill whole bytes.
TESSERA_HD constexpr int values_of_whole_bytes(BlockFormat format) {
  return value_bits(format) == 6 ? 4 : 8 / value_bits(format);
}

// The largest magnitude of a value, and its binary exponent.
TESSERA_HD constexpr float largest_value(BlockFormat format) {
  switch (value_type(format)) {
    case ValueType::e2m1:
      return 6.0f;
    case ValueType::e3m2:
      return 28.0f;
    case ValueType::e2m3:
      return 7.5f;
    case ValueType::e4m3:
      return 448.0f;
    case ValueType::e5m2:
      return 57344.0f;
  }
  return 0;
}
TESSERA_HD constexpr int largest_exponent(BlockFormat format) {
  switch (value_type(format)) {
    case ValueType::e2m1:
    case ValueType::e2m3:
      return 2;
    case ValueType::e3m2:
      return 4;
    case ValueType::e4m3:
      return 8;
    case ValueType::e5m2:
      return 15;
  }
  return 0;
}
inline constexpr float kLargestUe4m3 = 448.0f;

inline constexpr int kTileRows = 128;
inline constexpr int kTileBlocks = 4;
inline constexpr int kTileBytes = kTileRows * kTileBlocks;

// Bytes of the values of `elements` elements. Precondition: whole blocks.
TESSERA_HD constexpr long long value_bytes(BlockFormat format, long long elements) {
  return elements * value_bits(format) / 8;
}

// Bytes of the scales of [batch, rows, blocks].
TESSERA_HD constexpr long long scale_bytes(ScaleForm form, long long batch, long long rows, long long blocks) {
  return form == ScaleForm::plain ? batch * rows * blocks
                                  : batch * ceil_div(rows, kTileRows) * ceil_div(blocks, kTileBlocks) * kTileBytes;
}

// Within a tile: row 0 to 127, block 0 to 3.
TESSERA_HD constexpr int scale_offset_in_tile(int row, int block) { return (row % 32) * 16 + (row / 32) * 4 + block; }

// The byte that holds the scale of (row, block) of a batch.
TESSERA_HD constexpr long long scale_offset(ScaleForm form, long long rows, long long blocks, long long batch,
                                            long long row, long long block) {
  if (form == ScaleForm::plain) return (batch * rows + row) * blocks + block;
  const long long tile =
      (batch * ceil_div(rows, kTileRows) + row / kTileRows) * ceil_div(blocks, kTileBlocks) + block / kTileBlocks;
  return tile * kTileBytes +
         scale_offset_in_tile(static_cast<int>(row % kTileRows), static_cast<int>(block % kTileBlocks));
}

// Why a scale type does not go with a block and a value type; `ok` when some format has all three.
enum class PairingRule {
  ok,
  value_without_format,  // no format has such values under such scales
  block_of_other_scale,  // elements of a block; what the format of these values and scales has
};
TESSERA_HD constexpr Verdict<PairingRule> why_unpaired(ValueType value, ScaleType scale, int block) {
  if (scale == ScaleType::ue4m3 && value != ValueType::e2m1)
    return {PairingRule::value_without_format, static_cast<int>(value), static_cast<int>(ValueType::e2m1)};
  const int wanted = scale == ScaleType::ue4m3 ? 16 : 32;
  if (block != wanted) return {PairingRule::block_of_other_scale, block, wanted};
  return {};
}

}  // namespace tessera
