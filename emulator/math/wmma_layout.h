// wmma: which element of a matrix a register of a thread holds.
//
// The PTX manual leaves that to the target. Here it is what ptxas 13.0 writes for sm_90, sm_100 and sm_120, read off
// its machine code, and what an H200 did with every form (no Blackwell GPU was asked): a product is one or two of
// mma.sync, whose fragments stand side by side in the registers.
//   m16n16k*  A is mma.sync's, B and D are those of columns 0 to 7, then of columns 8 to 15
//   m32n8k16  A and D are those of rows 0 to 15, then of rows 16 to 31; B is mma.sync's
//   m8n32k16  the product m32n8k16 of the transposed matrices
//   m8n8k*    one mma.sync m8n8k*
// A and B of f16 have 8 registers in every shape: those beyond what the matrix fills repeat the first ones when they
// are loaded, and products ignore them.
#pragma once

#include "emulator/math/fragments.h"

namespace tessera::emulator::math {

struct WmmaShape {
  int m = 0;
  int n = 0;
  int k = 0;
};
inline constexpr WmmaShape kWmmaShapes[] = {{16, 16, 16}, {8, 32, 16}, {32, 8, 16}, {16, 16, 8},
                                            {8, 8, 4},    {8, 8, 32},  {8, 8, 128}};

enum class WmmaMatrix : unsigned char { a, b, d };  ///< d: C too

struct WmmaFragment {
  WmmaShape shape;
  WmmaMatrix matrix = WmmaMatrix::a;
  int bits = 0;  ///< of an element

  constexpr int rows() const { return matrix == WmmaMatrix::b ? shape.k : shape.m; }
  constexpr int columns() const { return matrix == WmmaMatrix::a ? shape.k : shape.n; }
  /// Elements of a register: of 32 bits, or of 64 in f64.
  constexpr int per_register() const { return bits >= 32 ? 1 : 32 / bits; }
  /// Registers of a thread that hold the matrix once.
  constexpr int registers() const { return rows() * columns() / 32 / per_register(); }
  /// Whether four threads fill at least a register each along k, as every form of PTX does.
  constexpr bool exists() const { return matrix == WmmaMatrix::d ? bits >= 16 : shape.k * bits >= 128; }
  /// Element `e` of register `r` of a lane.
  constexpr Place place(int lane, int r, int e) const {
    return matrix == WmmaMatrix::d ? place_of_sum(lane, r * per_register() + e) : place_of_factor(lane, r, e);
  }

 private:
  constexpr Place place_of_sum(int lane, int value) const {
    const Place p = mma_d(lane, value % 4);
    if (shape.m == 8 && shape.n == 32) return {p.column, p.row + 16 * (value / 4)};
    if (shape.m == 32) return {p.row + 16 * (value / 4), p.column};
    return {p.row, p.column + 8 * (value / 4)};
  }
  // `side`: the row of A or column of B; the other index is k.
  constexpr Place place_of_factor(int lane, int r, int e) const {
    const bool is_a = matrix == WmmaMatrix::a;
    const int sides = is_a ? shape.m : shape.n;
    const bool is_like_a = is_a ? sides > 8 : sides == 32;
    const int tile_sides = is_like_a ? 16 : 8;
    const int tile_registers = registers() * tile_sides / sides;
    const int width = bits == 64 ? 32 : bits;  // elements of f64 lie as those of 32 bits
    const int in_tile = r % tile_registers;
    int side = 0, k = 0;
    if (is_like_a) {
      const Place p = mma_a(width, lane, in_tile, e);
      side = p.row;
      k = p.column;
    } else {
      const Place p = mma_b(width, lane, in_tile, e);
      side = p.column;
      k = p.row;
    }
    side += tile_sides * (r / tile_registers);
    return is_a ? Place{side, k} : Place{k, side};
  }
};

}  // namespace tessera::emulator::math
