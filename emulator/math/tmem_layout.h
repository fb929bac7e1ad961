// Tensor Memory: which lane and column an element, a register or a scale factor occupies.
//
// PTX ISA, tcgen05 "Data movement shape", "Layout of accumulator", "Scale factors"; cross-checked with public libraries
// (see the notes beside each map). Document only: no Blackwell was at hand. 128 lanes by 512 columns of 32 bits.
#pragma once

#include <cstdint>

namespace tessera::emulator::math {

struct TmemPlace {
  int lane = 0;
  int column = 0;
};

enum class TmemShape : std::uint8_t { l32x32b, l16x64b, l16x128b, l16x256b, l16x32bx2 };

/// Registers of the .xN form.
constexpr int tmem_registers(TmemShape shape, int n) {
  return shape == TmemShape::l16x128b ? 2 * n : shape == TmemShape::l16x256b ? 4 * n : n;
}

/// tcgen05.ld and .st: register r of lane t of the warp, relative to the address operand. split: immHalfSplitoff of
/// 16x32bx2, in columns.
constexpr TmemPlace tmem_register(TmemShape shape, int t, int r, int split = 0) {
  switch (shape) {
    case TmemShape::l32x32b:
      return {t, r};
    case TmemShape::l16x64b:
      return {t / 4 + 8 * (t % 2), t / 2 % 2 + 2 * r};
    case TmemShape::l16x128b:
      return {t / 4 + 8 * (r % 2), t % 4 + 4 * (r / 2)};
    case TmemShape::l16x256b:
      return {t / 4 + 8 * (r / 2 % 2), 2 * (t % 4) + r % 2 + 8 * (r / 4)};
    case TmemShape::l16x32bx2:
      return {t % 16, r + (t >= 16 ? split : 0)};
  }
  return {};
}

/// Where row m, column n of an accumulator stands, relative to the D address. PTX names the layouts by letter.
enum class TmemAccumulator : std::uint8_t {
  a,  ///< cta_group::2, M = 256: this CTA's 128 rows
  b,  ///< cta_group::2, M = 128: this CTA's 64 rows, right half of N in lanes 64 to 127
  d,  ///< cta_group::1, M = 128
  e,  ///< .ws, M = 64: two halves of N (one source)
  f,  ///< cta_group::1, M = 64: 16 rows at every 32 lanes
  g   ///< .ws, M = 32: four quarters of N (one source)
};
/// m counts this CTA's rows; n_extent is the instruction's N.
constexpr TmemPlace tmem_accumulator(TmemAccumulator layout, int m, int n, int n_extent) {
  switch (layout) {
    case TmemAccumulator::a:
    case TmemAccumulator::d:
      return {m, n};
    case TmemAccumulator::b:
      return {m % 64 + 64 * (n / (n_extent / 2)), n % (n_extent / 2)};
    case TmemAccumulator::e:
      return {m + 64 * (n / (n_extent / 2)), n % (n_extent / 2)};
    case TmemAccumulator::f:
      return {m % 16 + 32 * (m / 16), n};
    case TmemAccumulator::g:
      return {m + 32 * (n / (n_extent / 4)), n % (n_extent / 4)};
  }
  return {};
}

/// A from Tensor Memory: the column (relative to the A address) and the lowest bit of product k's element; its lane is
/// the accumulator's for that row. bits: 32 (tf32), 16, 8 (padded 4- and 6-bit formats too) or 4 (mxf4 kinds).
struct TmemOperandBits {
  int column = 0;
  int first_bit = 0;
};
constexpr TmemOperandBits tmem_operand(int bits, int k) { return {k * bits / 32, k * bits % 32}; }

/// Scale factors: the 32-bit cell of row m (A) or column n (B), relative to the scale address. The 32 lanes are
/// replicated in all four quarters; this is the copy in `quarter`.
constexpr TmemPlace tmem_scale(int index, int quarter = 0) { return {index % 32 + 32 * quarter, index / 32}; }

/// Byte of the cell that scales product k of a K-wide step: scale_vec 1X (block 32 of K = 32), 2X (32 of 64) or 4X (16
/// of 64); id is the descriptor's scale-factor id.
constexpr int tmem_scale_byte(int scale_vec, int id, int k) {
  return scale_vec == 1 ? id : scale_vec == 2 ? id + k / 32 : k / 16;
}

/// tcgen05.cp: where the 32-bit word `word` of source row `row` (16 or 32 bytes a row) goes, for copy number `copy` of
/// the warp multicast (0 for shapes without).
enum class TmemCopy : std::uint8_t { c128x256b, c128x128b, c64x128b_02_13, c64x128b_01_23, c32x128b_x4 };
constexpr int tmem_copy_rows(TmemCopy shape) {
  return shape == TmemCopy::c32x128b_x4                                           ? 32
         : shape == TmemCopy::c64x128b_02_13 || shape == TmemCopy::c64x128b_01_23 ? 64
                                                                                  : 128;
}
constexpr int tmem_copies(TmemCopy shape) { return 128 / tmem_copy_rows(shape); }
constexpr TmemPlace tmem_copy(TmemCopy shape, int row, int word, int copy) {
  switch (shape) {
    case TmemCopy::c128x256b:
    case TmemCopy::c128x128b:
      return {row, word};
    case TmemCopy::c64x128b_02_13:
      return {row + 64 * copy, word};
    case TmemCopy::c64x128b_01_23:
      return {row % 32 + 64 * (row / 32) + 32 * copy, word};
    case TmemCopy::c32x128b_x4:
      return {row + 32 * copy, word};
  }
  return {};
}

}  // namespace tessera::emulator::math
