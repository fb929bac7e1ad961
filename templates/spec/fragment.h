// Which element of a matrix each register of each lane holds, and back: mma.sync, wgmma, ldmatrix and stmatrix,
// tcgen05.ld and .st.
//
// PTX ISA, the fragment figures of mma.m16n8k*, wgmma.mma_async, ldmatrix, stmatrix, and tcgen05 "Data movement shape".
// Written from register bits to rows and columns, with g = lane / 4 and q = lane % 4:
//
//   mma A, B, wgmma A   a register holds `per` = 32 / bits neighbours along K, the first in the low bits; q counts
//                       registers along K, so a quad covers 4 * per of K; A's registers go row g, row g + 8, next K
//   mma D, wgmma D      pairs of neighbours along N, then row g + 8, then (wgmma) the next 8 columns
//   ldmatrix            8x8 matrices of 16-bit elements: lane 4r + c/2 holds row r, column c; transposed, the reverse.
//                       Row 8j + r is the one whose address lane 8j + r gives
//   tcgen05.ld, .st     Tensor Memory lanes and columns, 32-bit cells; of 16 bits with .pack::16b and .unpack::16b: the
//                       low halves of two neighbouring columns in one register
//   quarter_*           mma.m8n8k4.f16 of sm_70: four products, each of threads 4p to 4p + 3 and 4p + 16 to 4p + 19,
//                       drawn one under the other (A, D) or side by side (B)
//
// mma.sync is measured on an H200 as far as sm_90 has it (quarter_* aside), wgmma too; what sm_100 and sm_120 add is
// from the manual.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::layout {

enum class Fragment {
  mma_a,          // rows m, columns k
  mma_b,          // rows k, columns n
  mma_d,          // rows m, columns n
  quarter_a_row,  // m8n8k4.f16: rows 8p + m, columns k; .row
  quarter_a_col,
  quarter_b_row,  // rows k, columns 8p + n
  quarter_b_col,
  quarter_d,  // rows 8p + m, columns n
  wgmma_a,    // of a warpgroup's 128 threads
  wgmma_d,
  matrix,           // ldmatrix, stmatrix .m8n8 .b16: rows are those of the address lanes
  matrix_trans,     // the same, .trans
  matrix_trans_b8,  // ldmatrix .m16n16 .trans .b8: 16 rows a matrix
  matrix_store_b8,  // stmatrix .m16n8 .trans .b8: rows of 16 bytes
  matrix_narrow,    // ldmatrix .m8n16 .b8x16.b6x16_p32, .b4x16_p64: 16 narrow elements a row become bytes
  tmem_32x32b,      // rows are lanes, columns are columns of Tensor Memory, from the address on
  tmem_16x64b,
  tmem_16x128b,
  tmem_16x256b,
  tmem_16x32bx2  // its columns are two halves: the second one stands at the split offset
};

// One fragment: the matrix that all its lanes hold together.
struct FragmentShape {
  Fragment fragment = Fragment::mma_a;
  int rows = 0;
  int columns = 0;
  int bits = 0;  // of an element in its register: containers count, so 8 for the padded 4- and 6-bit formats
};

struct FragmentElement {
  int row = 0;
  int column = 0;
};

// Element `index` of a register, counted from its low bits.
struct FragmentSlot {
  int lane = 0;
  int reg = 0;
  int index = 0;
};

TESSERA_HD constexpr int fragment_lanes(const FragmentShape& s) {
  return s.fragment == Fragment::wgmma_a || s.fragment == Fragment::wgmma_d ? 128 : 32;
}
// Elements of one register: 64-bit elements have a 64-bit register each.
TESSERA_HD constexpr int fragment_elements(const FragmentShape& s) { return s.bits >= 32 ? 1 : 32 / s.bits; }
TESSERA_HD constexpr int fragment_registers(const FragmentShape& s) {
  return s.rows * s.columns / fragment_lanes(s) / fragment_elements(s);
}

TESSERA_HD constexpr FragmentElement fragment_element(const FragmentShape& s, const FragmentSlot& at) {
  const int lane = at.lane % 32, g = lane / 4, q = lane % 4, warp = at.lane / 32;
  const int per = fragment_elements(s);
  const int value = at.reg * per + at.index;  // counted over the lane's registers
  const int halves = s.rows == 8 ? 1 : 2;     // of A: rows g and g + 8
  switch (s.fragment) {
    case Fragment::mma_a:
    case Fragment::wgmma_a:
      return {16 * warp + g + 8 * (at.reg % halves), (at.reg / halves * 4 + q) * per + at.index};
    case Fragment::mma_b:
      return {(at.reg * 4 + q) * per + at.index, g};
    case Fragment::mma_d:
      return {g + 8 * (value / 2), 2 * q + value % 2};
    case Fragment::wgmma_d:
      return {16 * warp + g + 8 * (value / 2 % 2), 8 * (value / 4) + 2 * q + value % 2};
    case Fragment::quarter_a_row:
      return {8 * (g % 4) + 4 * (lane / 16) + q, value};
    case Fragment::quarter_a_col:
      return {8 * (g % 4) + 4 * (lane / 16) + value, q};
    case Fragment::quarter_b_row:
      return {q, 8 * (g % 4) + 4 * (lane / 16) + value};
    case Fragment::quarter_b_col:
      return {value, 8 * (g % 4) + 4 * (lane / 16) + q};
    case Fragment::quarter_d:
      if (s.bits == 16) return {8 * (g % 4) + 4 * (lane / 16) + q, value};
      return {8 * (g % 4) + 4 * (lane / 16) + (value & 2) + (q & 1), (value & 4) + (q & 2) + (value & 1)};
    case Fragment::matrix:
      return {8 * at.reg + g, 2 * q + at.index};
    case Fragment::matrix_trans:
      return {8 * at.reg + 2 * q + at.index, g};
    case Fragment::matrix_trans_b8:
      return {16 * (at.reg / 2) + 4 * q + at.index, 8 * (at.reg % 2) + g};
    case Fragment::matrix_store_b8:
      return {8 * at.reg + 2 * q + at.index % 2, 8 * (at.index / 2) + g};
    case Fragment::tmem_32x32b:
      return {lane, value};
    case Fragment::tmem_16x64b:
      return {g + 8 * (lane % 2), (2 * at.reg + lane / 2 % 2) * per + at.index};
    case Fragment::tmem_16x128b:
      return {g + 8 * (at.reg % 2), (4 * (at.reg / 2) + q) * per + at.index};
    case Fragment::tmem_16x256b:
      return {g + 8 * (at.reg / 2 % 2), (8 * (at.reg / 4) + 2 * q + at.reg % 2) * per + at.index};
    case Fragment::tmem_16x32bx2:
      return {lane % 16, lane / 16 * (s.columns / 2) + value};
    case Fragment::matrix_narrow:
      return {8 * at.reg + g, 4 * q + at.index};
  }
  return {};
}

// The inverse. Precondition: row and column are inside.
TESSERA_HD constexpr FragmentSlot fragment_slot(const FragmentShape& s, const FragmentElement& at) {
  const int per = fragment_elements(s), r = at.row, c = at.column;
  const int halves = s.rows == 8 ? 1 : 2;
  switch (s.fragment) {
    case Fragment::mma_a:
    case Fragment::wgmma_a:
      return {r / 16 * 32 + r % 8 * 4 + c / per % 4, c / (4 * per) * halves + r / 8 % halves, c % per};
    case Fragment::mma_b:
      return {c * 4 + r / per % 4, r / (4 * per), r % per};
    case Fragment::mma_d: {
      const int value = r / 8 * 2 + c % 2;
      return {r % 8 * 4 + c / 2, value / per, value % per};
    }
    case Fragment::wgmma_d: {
      const int value = c / 8 * 4 + r / 8 % 2 * 2 + c % 2;
      return {r / 16 * 32 + r % 8 * 4 + c % 8 / 2, value / per, value % per};
    }
    case Fragment::quarter_a_row:
      return {r / 8 * 4 + r % 8 / 4 * 16 + r % 4, c / per, c % per};
    case Fragment::quarter_a_col:
      return {r / 8 * 4 + r % 8 / 4 * 16 + c, r % 4 / per, r % per};
    case Fragment::quarter_b_row:
      return {c / 8 * 4 + c % 8 / 4 * 16 + r, c % 4 / per, c % per};
    case Fragment::quarter_b_col:
      return {c / 8 * 4 + c % 8 / 4 * 16 + c % 4, r / per, r % per};
    case Fragment::quarter_d: {
      const int value = s.bits == 16 ? c : (c & 4) + (r & 2) + (c & 1);
      return {r / 8 * 4 + r % 8 / 4 * 16 + (s.bits == 16 ? r % 4 : (c & 2) + (r & 1)), value / per, value % per};
    }
    case Fragment::matrix:
      return {r % 8 * 4 + c / 2, r / 8, c % 2};
    case Fragment::matrix_trans:
      return {c * 4 + r % 8 / 2, r / 8, r % 2};
    case Fragment::matrix_trans_b8:
      return {c % 8 * 4 + r % 16 / 4, r / 16 * 2 + c / 8, r % 4};
    case Fragment::matrix_store_b8:
      return {c % 8 * 4 + r % 8 / 2, r / 8, c / 8 * 2 + r % 2};
    case Fragment::tmem_32x32b:
      return {r, c / per, c % per};
    case Fragment::tmem_16x64b:
      return {r % 8 * 4 + c / per % 2 * 2 + r / 8, c / per / 2, c % per};
    case Fragment::tmem_16x128b:
      return {r % 8 * 4 + c / per % 4, c / per / 4 * 2 + r / 8, c % per};
    case Fragment::tmem_16x256b:
      return {r % 8 * 4 + c / per % 8 / 2, c / per / 8 * 4 + r / 8 * 2 + c / per % 2, c % per};
    case Fragment::tmem_16x32bx2:
      return {c / (s.columns / 2) * 16 + r, c % (s.columns / 2) / per, c % per};
    case Fragment::matrix_narrow:
      return {r % 8 * 4 + c / 4, r / 8, c % 4};
  }
  return {};
}

// An accumulator as the next product's A, without moving anything between threads: the column of D (in tiles of 8) that
// a thread has for A's column k, A's elements having `bits`. A product runs over K in any order, so B's rows are taken
// in this one. The identity for 16 bits.
TESSERA_HD constexpr int repack_column(int bits, int k) {
  if (bits == 32) return k / 8 * 8 + k % 4 * 2 + k / 4 % 2;
  const int per = 32 / bits, group = k / (4 * per), q = k / per % 4, e = k % per;
  return 8 * (group * per / 2 + e / 2) + 2 * q + e % 2;
}

// Block scales of mma.sync (sm_120): `vector` scales of a row of A or a column of B lie in one 32-bit register of one
// lane, in `vector` bytes from byte_id on. thread_id picks the lane of the quad: A of two (rows g and g + 8 take
// neighbours), B of four.
struct ScaleSlot {
  int lane = 0;
  int byte = 0;
};
TESSERA_HD constexpr ScaleSlot mma_scale_slot(bool is_a, int thread_id, int byte_id, int index, int block) {
  return {is_a ? index % 8 * 4 + 2 * thread_id + index / 8 : index * 4 + thread_id, byte_id + block};
}

// What the selectors may be. vector: 1, 2 or 4, of scale_vec::1X, 2X, 4X.
enum class SelectorRule { ok, thread_id, byte_id };
TESSERA_HD constexpr Verdict<SelectorRule> why_bad_selectors(bool is_a, int vector, int thread_id, int byte_id) {
  const int threads = is_a ? 2 : 4;
  if (thread_id < 0 || thread_id >= threads) return {SelectorRule::thread_id, thread_id, threads - 1};
  if (byte_id < 0 || byte_id > 4 - vector || byte_id % vector != 0) return {SelectorRule::byte_id, byte_id, 4 - vector};
  return {};
}

// Scale factors in Tensor Memory (tcgen05, sm_100): the 32-bit cell of a row of A or column of B, from the scale
// address on, and the byte of one scale of it. The 32 lanes stand four times, in each quarter.
struct TmemScale {
  int lane = 0;  // of the first quarter
  int column = 0;
  int byte = 0;
};
TESSERA_HD constexpr TmemScale tmem_scale_place(long long rows, long long row, long long block) {
  const long long columns = ceil_div(rows, 128) * 4;
  return {static_cast<int>(row % 32), static_cast<int>(block / 4 * columns + row / 32), static_cast<int>(block % 4)};
}

}  // namespace tessera::layout
