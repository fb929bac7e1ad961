// Where each element and scale of NVFP4 attention lies: operands in units, in the order in which a warp's lanes take
// them as fragments of mma.m16n8k64.mxf4nvf4. The kernel that quantises writes units, attention reads them, references
// decode them: all by these functions.
//
// A lane finds its registers side by side, 16 bytes at a time, and 32 lanes fill 512 bytes: a load of a fragment has no
// bank conflict, needs no ldmatrix and no swizzle, and a tile is one piece of memory that one bulk copy brings. Scales
// lie behind a unit's values, likewise in the order of the lanes that the instruction asks for them.
//
//   q   16 rows:  A of S = Q K^T
//   k   64 keys:  B of S
//   v   64 keys:  B of O = P V, so transposed: a scale is for 16 keys of one column
//
// Keys of K are permuted within each 32, so that a thread's scores are those that it needs as A of O = P V: column n =
// 8 j + 2 q + i of four accumulators (j of 4, i of 2) is key 8 q + 2 j + i. A thread then has 8 neighbouring keys of
// each 32, two threads a group of 16, and V keeps the order of its keys.
//
// Values e2m1, two a byte, the first in the low four bits; scales ue4m3. Blocks have 128 rows or keys: eight units of
// Q, two of K and V. A sequence's last block is filled up with zeros.
#pragma once

#include "spec/fragment.h"
#include "tessera/spec/types.h"

namespace tessera::nvfp4 {

inline constexpr int kBlockRows = 128;  // of Q under one mean; and what sequences are filled up to
inline constexpr int kGroup = 16;       // elements under one scale
inline constexpr int kRowsOfUnit = 16;  // of Q
inline constexpr int kKeysOfUnit = 64;  // of K and V
inline constexpr int kDepth = 64;       // products of one instruction's sums
inline constexpr float kLargestValue = 6.0f, kLargestScale = 448.0f;

TESSERA_HD constexpr bool is_head_dim(int head_dim) { return head_dim == 64 || head_dim == 128; }

TESSERA_HD constexpr int q_unit_bytes(int head_dim) { return kRowsOfUnit * head_dim / 16 * 9; }
TESSERA_HD constexpr int key_unit_bytes(int head_dim) { return kKeysOfUnit * head_dim / 16 * 9; }
TESSERA_HD constexpr int q_block_bytes(int head_dim) { return kBlockRows / kRowsOfUnit * q_unit_bytes(head_dim); }
TESSERA_HD constexpr int key_block_bytes(int head_dim) { return kBlockRows / kKeysOfUnit * key_unit_bytes(head_dim); }
// Of a unit, where the scales begin.
TESSERA_HD constexpr int q_scales_offset(int head_dim) { return kRowsOfUnit * head_dim / 2; }
TESSERA_HD constexpr int key_scales_offset(int head_dim) { return kKeysOfUnit * head_dim / 2; }

// Word `word` of a lane whose words stand in 16-byte vectors, those of 32 lanes together.
TESSERA_HD constexpr int word_offset(int lane, int word) { return word / 4 * 512 + lane * 16 + word % 4 * 4; }

// Columns of four accumulators to keys, within 32, and back.
TESSERA_HD constexpr int key_of_column(int column) { return column % 8 / 2 * 8 + column / 8 * 2 + column % 2; }
TESSERA_HD constexpr int column_of_key(int key) { return key % 8 / 2 * 8 + key / 8 * 2 + key % 2; }

// The word of eight neighbours along the sums' direction, the first of which is given: of Q and K columns of a row, of
// V keys of a column. Bytes from the unit's first.
TESSERA_HD constexpr int q_word(int row, int column) {
  const int lane = row % 8 * 4 + column / 8 % 4, reg = column % kDepth / 32 * 2 + row / 8;
  return column / kDepth * 512 + lane * 16 + reg * 4;
}
TESSERA_HD constexpr int k_word(int head_dim, int key, int column) {
  const int n = column_of_key(key % 32), tile = key / 32 * 4 + n / 8;
  const int lane = n % 8 * 4 + column / 8 % 4;
  return word_offset(lane, tile * (head_dim / 32) + column / 32);
}
TESSERA_HD constexpr int v_word(int key, int column) {
  return word_offset(column % 8 * 4 + key / 8 % 4, column / 8 * 2 + key / 32);
}

// The byte of a group's scale, from the unit's first.
TESSERA_HD constexpr int q_scale(int head_dim, int row, int column) {
  const int steps = head_dim / kDepth, word = row % 8 * 2 * steps + column / kDepth * 2 + row / 8;
  return q_scales_offset(head_dim) + word * 4 + column % kDepth / kGroup;
}
TESSERA_HD constexpr int k_scale(int head_dim, int key, int column) {
  const int steps = head_dim / kDepth, n = column_of_key(key % 32), lane = n % 8 * 4 + n / 8;
  return key_scales_offset(head_dim) + lane * 8 * steps + (key / 32 * steps + column / kDepth) * 4 +
         column % kDepth / kGroup;
}
TESSERA_HD constexpr int v_scale(int head_dim, int key, int column) {
  const int lane = column % 8 * 4 + column / 8 % 4;
  return key_scales_offset(head_dim) + lane * (head_dim / 8) + column / 32 * 4 + key / kGroup;
}

}  // namespace tessera::nvfp4
