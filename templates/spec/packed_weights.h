// Weights of four bits as a product on sm_90a reads them: made once by pack_weights, [l, ceil(n / 64), ceil(k / 128),
// bytes of a block].
//
// A block has 64 rows of n and 128 of k: 4,096 bytes of codes, then the scales. A thread t of the warpgroup that
// multiplies it finds its codes for 64 of k side by side, four words at (k / 64 * 128 + t) * 16, a word for each 16 of
// k, as wgmma wants A in registers: with w = t / 32, g = t % 32 / 4, q = t % 4 the register r of the instruction has
// row 16 w + g + 8 (r % 2), and k = 2 q + 8 (r / 2) in its low half, the next in its high half. So each half of a word
// has the codes of four registers:
//
//   e2m1   where few instructions put it into bf16: register 0 has its codes in place, sign in bit 15 and exponent and
//          mantissa in bits 8..6; rotating the word to the left by 4 does that for register 1, by 10 for register 2.
//          What is left of a word, bits 10, 9, 1 and 0 of each half, is chosen such that the first word of a pair (of
//          32 of k) and four times the second add up to one which rotated by 6 has register 3 of the first in place, by
//          12 that of the second (pair_with_sum()): a sum is one instruction, putting together by a mask would be two.
//          (No four rotations fill a word of its own)
//   int4   register r in bits 4 r + 3 .. 4 r of each half, as 0 to 15: of two's complement plus 8
//
// Scales belong to the pair of rows 16 w + g and that + 8, 32 pairs side by side, in the order of w * 8 + g:
//
//   mxfp4  [pair][k / 64] words: exponents of bf16, which are a scale's code plus 94 (255 for codes above 160), of the
//          first row in bits 14..7 and, for the next 32 of k, 30..23; of the second row where rotating the word to the
//          left by 8 has them there. So a mask alone makes bf16 numbers of them
//   nvfp4  [pair][k / 64][row][k / 16 % 4] bytes: five bits of exponent, three of mantissa, so that subnormal scales
//          are numbers as others are: 2^(e - 22) (1 + m / 8); of a scale of zero any, the block's magnitudes being zero
//   int4   [pair][k / group][row] 16-bit numbers of the activations' type; then, with zero points, as many numbers that
//          are taken off a code which has 128 (bf16) or 1,024 (f16) added: those plus the zero point
//
// Rows behind n and columns behind k have codes and scales of zero weight.
#pragma once

#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera {

inline constexpr int kWeightRows = 64;    // of a block: wgmma M
inline constexpr int kWeightDepth = 128;  // k of a block
inline constexpr int kWeightHalf = 64;    // k whose codes a thread has side by side
inline constexpr int kWeightCodeBytes = kWeightRows * kWeightDepth / 2;
inline constexpr int kWeightPairs = kWeightRows / 2;  // of rows that share a thread
inline constexpr int kLargestPackedUe8m0 = 160;       // 2^33; what is above multiplies as infinity
inline constexpr int kPackedUe8m0Bias = 94;           // to the exponent of bf16: 126 - 32 (left_out_factor())
inline constexpr int kPackedUe4m3Bias = 22;

// What packed weights depend on: facts of a product and of pack_weights alike.
struct PackedWeights {
  OperandType type = OperandType::mxfp4;
  int group = 32;          // k that share a scale
  bool has_zeros = false;  // int4 with zero points

  TESSERA_HD friend constexpr bool operator==(const PackedWeights&, const PackedWeights&) = default;
};

TESSERA_HD constexpr bool is_e2m1(OperandType type) { return type == OperandType::nvfp4 || type == OperandType::mxfp4; }
// Bytes of the scales of a pair of rows, and with zero points of these.
TESSERA_HD constexpr int pair_scale_bytes(const PackedWeights& w) {
  return (is_e2m1(w.type) ? 2 : 4) * (kWeightDepth / w.group);
}
TESSERA_HD constexpr int pair_bytes(const PackedWeights& w) { return pair_scale_bytes(w) * (w.has_zeros ? 2 : 1); }
TESSERA_HD constexpr int weight_block_bytes(const PackedWeights& w) {
  return kWeightCodeBytes + kWeightPairs * pair_bytes(w);
}

// How far to the left a word is rotated that has register r of an e2m1 in place: its own word, or for register 3 the
// sum of the first word of the pair and the second one shifted, to which the first has these bits to choose.
TESSERA_HD constexpr int code_rotation(bool is_second, int r) {
  return r == 0 ? 0 : r == 1 ? 4 : r == 2 ? 10 : is_second ? 12 : 6;
}
inline constexpr unsigned kLeftOfFirst = 0x06030603;
inline constexpr int kShiftOfSecond = 2;
// A code in its pair of words; of register 3 before they are made such that their sum has it (pair_with_sum()).
struct PlacedCode {
  unsigned first = 0;
  unsigned second = 0;
};
TESSERA_HD constexpr PlacedCode placed_code(OperandType type, unsigned code, bool is_second, int r, int half) {
  PlacedCode placed;
  for (int bit = 0; bit < 4; ++bit) {
    if ((code >> bit & 1u) == 0) continue;
    const int in_bf16 = bit == 3 ? 15 : 6 + bit;
    const int at =
        is_e2m1(type) ? (32 + 16 * half + in_bf16 - code_rotation(is_second, r)) % 32 : 16 * half + 4 * r + bit;
    const bool is_left_over = is_e2m1(type) && r == 3;
    if (is_left_over ? (kLeftOfFirst >> at & 1u) != 0 : !is_second) {
      placed.first |= 1u << at;
    } else {
      placed.second |= 1u << (is_left_over ? at - kShiftOfSecond : at);
    }
  }
  return placed;
}

// Words of a pair of e2m1. What each leaves over is given as the sum is to have it, the second's shifted; four bits of
// the sum one behind the other are two of each word, so that what is missing in them tells both, from below upwards.
struct WordPair {
  unsigned first = 0;
  unsigned second = 0;

  TESSERA_HD friend constexpr bool operator==(const WordPair&, const WordPair&) = default;
};
TESSERA_HD constexpr WordPair pair_with_sum(unsigned first, unsigned second) {
  const unsigned wanted = (first & kLeftOfFirst) | (second & kLeftOfFirst) << kShiftOfSecond;
  first &= ~kLeftOfFirst;
  second &= ~kLeftOfFirst;
  unsigned sum = first + (second << kShiftOfSecond), added = 0;
  for (int half = 0; half < 32; half += 16) {
    for (int at = half; at < half + 16; at += 9) {
      const unsigned missing = (((wanted >> at) - (sum >> at)) & 15u) << at;
      sum += missing;
      added |= missing;
    }
  }
  return {first | (added & kLeftOfFirst), second | (added >> kShiftOfSecond & kLeftOfFirst)};
}
TESSERA_HD constexpr WordPair pair_of_sum(unsigned first, unsigned second) {
  const unsigned sum = first + (second << kShiftOfSecond);
  return {(first & ~kLeftOfFirst) | (sum & kLeftOfFirst),
          (second & ~kLeftOfFirst) | (sum >> kShiftOfSecond & kLeftOfFirst)};
}

// A weight's place in its block: row 0 to 63, k 0 to 127.
struct WeightPlace {
  int word = 0;  // of four bytes: odd ones are the second of a pair
  int half = 0;  // of the word
  int reg = 0;   // whose code it is among the half's
};
TESSERA_HD constexpr WeightPlace weight_place(int row, int k) {
  const int of_step = k % 16, thread = row / 16 * 32 + row % 8 * 4 + of_step % 8 / 2;
  return {(k / kWeightHalf * 128 + thread) * 4 + k % kWeightHalf / 16, of_step % 2, row % 16 / 8 + of_step / 8 * 2};
}
// The pair of rows that a row belongs to, and which of both it is.
TESSERA_HD constexpr int pair_of(int row) { return row / 16 * 8 + row % 8; }
TESSERA_HD constexpr int row_in_pair(int row) { return row % 16 / 8; }
// Where a scale stands among those of its block: of mxfp4 a word, which it shares (placed_exponent()), of nvfp4 a byte,
// of int4 a 16-bit number; a zero point as many scales of a pair further on. `i`: k / group.
TESSERA_HD constexpr int scale_place(const PackedWeights& w, int row, int i) {
  const int scales = kWeightDepth / w.group;
  if (!is_e2m1(w.type)) return (pair_of(row) * pair_bytes(w) / 2) + i * 2 + row_in_pair(row);
  if (w.type == OperandType::mxfp4) return pair_of(row) * pair_bytes(w) / 4 + i * w.group / kWeightHalf;
  const int of_half = scales / 2;
  return pair_of(row) * pair_bytes(w) + i / of_half * 2 * of_half + row_in_pair(row) * of_half + i % of_half;
}

// Warpgroups that share the k of a block within a CTA whose tile has so many rows and columns of d: step s of 128 of k,
// counted from the part's first, is of group s % that many.
inline constexpr int kMostFewRows = 32;
TESSERA_HD constexpr int weight_k_groups(int tile_m, int tile_n) {
  return tile_m > kMostFewRows ? 1 : tile_n == 64 ? 4 : tile_n == 128 ? 2 : 1;
}

inline constexpr int kMiddleOfInt4 = 8;  // what codes of two's complement are more than their numbers
// A code of int4 is the low bits of a number of the activations' type whose last place is one: 128 and more, or 1,024.
TESSERA_HD constexpr unsigned int4_magic(DType dtype) { return dtype == DType::bf16 ? 0x4300 : 0x6400; }

// ue8m0 as an exponent of bf16; and where it stands in the word of its pair of rows for 64 of k: `i` is k / 32 % 2.
inline constexpr unsigned kExponentsOfRow = 0x7F807F80;
inline constexpr int kRotationOfSecondRow = 8;
TESSERA_HD constexpr unsigned packed_ue8m0(unsigned code) {
  return code > kLargestPackedUe8m0 ? 0xff : code + kPackedUe8m0Bias;
}
TESSERA_HD constexpr unsigned placed_exponent(unsigned exponent, int of_pair, int i) {
  const unsigned placed = exponent << (7 + 16 * i);
  return of_pair == 0 ? placed : placed >> kRotationOfSecondRow | placed << (32 - kRotationOfSecondRow);
}

// ue4m3 as a packed scale; 0 for a scale of zero, whose magnitudes are cleared.
TESSERA_HD constexpr unsigned packed_ue4m3(unsigned code) {
  code &= 0x7f;
  if (code == 0x7f) return 0xff;  // NaN
  if (code >= 8) return code + (static_cast<unsigned>(kPackedUe4m3Bias - 7) << 3);
  if (code == 0) return 0;
  const int top = code >= 4 ? 2 : code >= 2 ? 1 : 0;  // of a subnormal: code * 2^-9
  const unsigned mantissa = (code << (3 - top)) & 7;
  return static_cast<unsigned>(kPackedUe4m3Bias - 9 + top) << 3 | mantissa;
}

// int4 in bf16: a code in a register's low bits is a subnormal number, 2^-133 times the code, and one in bits 7 to 4 is
// 16 times as much: bit 7 is the exponent's first one, with which the mantissa goes on counting.
TESSERA_HD constexpr bool counts_codes(const PackedWeights& w, DType dtype) {
  return w.type == OperandType::int4 && dtype == DType::bf16;
}
// Without zero points an FMA takes 8 times the scale off such a number's product with the scale, which rounds as one
// multiplication would.
TESSERA_HD constexpr bool fuses_middle(const PackedWeights& w, DType dtype) {
  return counts_codes(w, dtype) && !w.has_zeros;
}
inline constexpr unsigned kScaleOfCounted = 0x6080;  // bf16: 2^66, by which scales are multiplied first
inline constexpr unsigned kSixteenth = 0x3D80;       // of such a scale, for bits 7 to 4
inline constexpr unsigned kMiddleOfFused = 0x8008;   // bf16: -8 * 2^-133

// What weights are multiplied by less than they say: the sums are multiplied by it in the end. Scales are then numbers
// of the activations' type in every case.
TESSERA_HD constexpr float left_out_factor(const PackedWeights& w, DType dtype) {
  const int exponent = counts_codes(w, dtype)         ? 133 - 66
                       : w.type == OperandType::mxfp4 ? 32
                       : w.type == OperandType::nvfp4 ? 7
                                                      : 0;
  float factor = 1.0f;
  for (int i = 0; i < exponent; ++i) factor *= 2.0f;
  return factor;
}

}  // namespace tessera
