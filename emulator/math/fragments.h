// Which element of a matrix a register of a thread holds: mma.sync, wgmma, ldmatrix, stmatrix.
//
// PTX ISA, the fragment figures of mma.m16n8k*, wgmma.mma_async and ldmatrix/stmatrix. All maps follow one picture: a
// thread of a warp is g = lane / 4 and q = lane % 4; a 32-bit register holds `per` = 32 / bits neighbouring elements,
// the first in the low bits; q counts registers along a row, g counts rows.
#pragma once

namespace tessera::emulator::math {

struct Place {
  int row = 0;     ///< m of A and D, k of B
  int column = 0;  ///< k of A, n of B and D
};

/// A of mma.sync m16n8k*: element `e` of register `r`, elements of 1, 4, 8, 16 or 32 bits. Registers go row g, row g +
/// 8, then the upper half of K.
constexpr Place mma_a(int bits, int lane, int r, int e) {
  const int per = 32 / bits;
  return {lane / 4 + 8 * (r & 1), lane % 4 * per + e + 4 * per * (r >> 1)};
}
/// B of mma.sync m16n8k*: n = g, K in registers of 4 * per elements.
constexpr Place mma_b(int bits, int lane, int r, int e) {
  const int per = 32 / bits;
  return {lane % 4 * per + e + 4 * per * r, lane / 4};
}
/// C and D of mma.sync m16n8k*, value v = 0 ... 3 (f32, s32: one register each; f16: two in a register, low first).
constexpr Place mma_d(int lane, int v) { return {lane / 4 + 8 * (v >> 1), 2 * (lane % 4) + (v & 1)}; }

/// wgmma: thread 0 ... 127 of the warpgroup. D value v = 0 ... N/2 - 1 (f16: two in a register, low first).
constexpr Place wgmma_d(int thread, int v) {
  const int lane = thread % 32;
  return {16 * (thread / 32) + lane / 4 + 8 * (v / 2 % 2), 2 * (lane % 4) + v % 2 + 8 * (v / 4)};
}
/// A of wgmma from registers: as mma.sync's, 16 rows a warp. bits 8, 16 or 32.
constexpr Place wgmma_a(int bits, int thread, int r, int e) {
  const Place in_warp = mma_a(bits, thread % 32, r, e);
  return {16 * (thread / 32) + in_warp.row, in_warp.column};
}

/// Where a byte of an ldmatrix or stmatrix register lies: in the 16-byte row whose address lane `address_lane` gives.
struct MatrixByte {
  int address_lane = 0;
  int offset = 0;
};

/// m8n8 .b16 (load and store): register r = matrix r; byte b of it.
constexpr MatrixByte m8n8(int lane, int r, int b) { return {8 * r + lane / 4, 4 * (lane % 4) + b}; }
/// m8n8 .trans .b16: the thread's column is lane / 4, its two elements are rows 2q and 2q + 1.
constexpr MatrixByte m8n8_trans(int lane, int r, int b) {
  return {8 * r + 2 * (lane % 4) + b / 2, 2 * (lane / 4) + b % 2};
}
/// ldmatrix m16n16 .trans .b8: registers 2j and 2j + 1 are matrix j, whose 16 rows come from lanes 16j ... . Document
/// only, derived.
constexpr MatrixByte m16n16_trans_b8(int lane, int r, int b) {
  return {16 * (r / 2) + 4 * (lane % 4) + b, lane / 4 + 8 * (r % 2)};
}
/// stmatrix m16n8 .trans .b8: byte b of register r = matrix r goes to row 2q + b % 2 of 8. Document only, derived.
constexpr MatrixByte m16n8_trans_b8(int lane, int r, int b) {
  return {8 * r + 2 * (lane % 4) + (b & 1), lane / 4 + 8 * (b >> 1)};
}
/// ldmatrix m8n16 .b8x16.b6x16_p32 / .b4x16_p64: byte b of register r receives, in its low bits, element 4q + b of row
/// g: `width` bits (6 or 4) from bit `first_bit` of the 16-byte row on. Document only.
struct MatrixBits {
  int address_lane = 0;
  int first_bit = 0;
};
constexpr MatrixBits m8n16_narrow(int width, int lane, int r, int b) {
  return {8 * r + lane / 4, (4 * (lane % 4) + b) * width};
}

/// ldmatrix m16n16 .trans of the same formats: as m16n16_trans_b8, from row 4q + b. Document only, derived.
constexpr MatrixBits m16n16_trans_narrow(int width, int lane, int r, int b) {
  return {16 * (r / 2) + 4 * (lane % 4) + b, (lane / 4 + 8 * (r % 2)) * width};
}

/// mma.sync block scales (sm_120 family): the lane whose register holds row `row`'s scales of A under thread-id-a `a`,
/// and column `column`'s of B under thread-id-b `b`; any of the rows' quads gives the same.
constexpr int mma_scale_lane_a(int row, int a) { return row % 8 * 4 + 2 * a + row / 8; }
constexpr int mma_scale_lane_b(int column, int b) { return column * 4 + b; }

/// mma.sp: the row and group along K that four bits of a thread's metadata place, nibble 0 the lowest; row -1 where the
/// selector does not name the thread. bits: of a stored element; groups: of a row, 4, 8 or 16. Measured on an H200, for
/// every shape that sm_90 has.
constexpr Place mma_metadata(int bits, int groups, int selector, int lane, int nibble) {
  const int g = lane / 4, q = lane % 4;
  if (groups == 16) return {g + 8 * (q % 2), 8 * (q / 2) + nibble};
  if (groups == 4) return {q == selector ? g + 8 * (nibble / 4) : -1, nibble % 4};
  if (q / 2 != selector) return {-1, 0};
  // Of 16 and 32 bits a thread has half of the groups of two rows, of 8 and 4 bits all of one row.
  return bits >= 16 ? Place{g + 8 * (nibble / 4), 4 * (q % 2) + nibble % 4} : Place{g + 8 * (q % 2), nibble};
}

}  // namespace tessera::emulator::math
