// The fast form of mma_step.h: a whole tile D = A * B + D, equal to the plain model in every bit.
//
// Vectors run over B's columns. Per output and step, a first pass over k finds E, a second one forms every term: the
// product of two significands is exact in float (22 bits), a power of two scales it to units of 2^(E - F), and the
// conversion to int32 is the cut toward zero. Up to eight terms (and C) are below 2^30 in sum, so int32 partial sums do
// not overflow; partial sums meet in double, exactly. Because a term's cut part is all that is ever lost, the result is
// the model's by construction; tests compare them on adversarial data.
#pragma once

#include <cstdint>

#include "emulator/math/mma_operand.h"
#include "emulator/math/mma_path.h"

namespace tessera::emulator::math {

/// Outputs that one vector holds. Tiles whose column count is a multiple of it waste nothing: for mma.sync (N = 8, M =
/// 16) pass B as the rows and A as the columns, and D transposed.
inline constexpr int kMmaLanes = 16;

/// D[row][column] += sum over k; rows.k() == columns.k() is any multiple of the path's group (several instructions at
/// once, in order; pairs_split paths: exactly one instruction, operands decoded from the f16 codes of widen_fp8). d
/// points to rows.count() rows of `pitch` words (f32 bits, or f16 codes in the low half). For D = A * B the caller
/// zeroes d first: a zero C never takes part.
void mma_tile(const MmaPath& path, const MmaOperand& rows, const MmaOperand& columns, std::uint32_t* d, int pitch);

/// The compiled variants, slowest first; mma_tile uses the last one that this host has. For tests and benchmarks.
enum class MmaVariant : std::uint8_t { baseline, avx2, avx512 };
bool mma_variant_available(MmaVariant variant);
void mma_tile_with(MmaVariant variant, const MmaPath& path, const MmaOperand& rows, const MmaOperand& columns,
                   std::uint32_t* d, int pitch);

}  // namespace tessera::emulator::math
