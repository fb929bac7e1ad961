// Block-scaled formats: which values, which scales, how many elements share one, and where a scale lies in memory. Host
// and device evaluate the same functions.
//
//   format       value            scale                     elements of a block, along K
//   nvfp4        e2m1, two a byte ue4m3 (times an fp32 g)   16
//   mxfp4        e2m1, two a byte ue8m0                     32
//   mxfp8_e4m3   e4m3             ue8m0                     32
//   mxfp8_e5m2   e5m2             ue8m0                     32
//
// K is contiguous; of two values in a byte the one with the smaller k is in the low four bits. Scales come in two
// forms:
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

enum class BlockFormat { nvfp4, mxfp4, mxfp8_e4m3, mxfp8_e5m2 };
enum class ValueType { e2m1, e4m3, e5m2 };
enum class ScaleType { ue4m3, ue8m0 };
enum class ScaleForm { plain, tile };

// How an MX block's power of two is taken from its largest magnitude: the least one under which nothing overflows, or
// the rule of the OCP specification, 2^(floor(log2(amax)) - exponent of the largest value), which saturates what is
// above.
enum class ScaleRounding { up, floor };

// What NVFP4's fp32 factor of the whole tensor is: 1; a value that the caller gives; or amax / (6 * 448), found by a
// pass of its own.
enum class GlobalScale { none, given, amax };

// How four-bit values are converted: by the target's cvt instructions, or by integer arithmetic where it has none.
enum class Conversion { software, hardware };

TESSERA_HD constexpr ValueType value_type(BlockFormat format) {
  return format == BlockFormat::mxfp8_e4m3   ? ValueType::e4m3
         : format == BlockFormat::mxfp8_e5m2 ? ValueType::e5m2
                                             : ValueType::e2m1;
}
TESSERA_HD constexpr ScaleType scale_type(BlockFormat format) {
  return format == BlockFormat::nvfp4 ? ScaleType::ue4m3 : ScaleType::ue8m0;
}
TESSERA_HD constexpr int block_elements(BlockFormat format) { return format == BlockFormat::nvfp4 ? 16 : 32; }
TESSERA_HD constexpr int value_bits(BlockFormat format) { return value_type(format) == ValueType::e2m1 ? 4 : 8; }

// The largest magnitude of a value, and its binary exponent.
TESSERA_HD constexpr float largest_value(BlockFormat format) {
  return value_type(format) == ValueType::e2m1 ? 6.0f : value_type(format) == ValueType::e4m3 ? 448.0f : 57344.0f;
}
TESSERA_HD constexpr int largest_exponent(BlockFormat format) {
  return value_type(format) == ValueType::e2m1 ? 2 : value_type(format) == ValueType::e4m3 ? 8 : 15;
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
