// What follows from the facts of a product on tcgen05, and from the extents of its tile, whatever else its kernel's
// Config says: for the kernels, and for references, which know no Config.
#pragma once

#include "spec/product_facts.h"
#include "tessera/spec/instruction_descriptor.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera::gemm_tcgen05 {

using layout::Tcgen05Kind;

inline constexpr int kLanes = 128;      // rows of one operand that a CTA multiplies
inline constexpr int kStepBytes = 128;  // of K in shared memory: a swizzle span
inline constexpr int kChunkBytes = 32;  // of K that one instruction takes
inline constexpr int kChunks = kStepBytes / kChunkBytes;

// True unless the types go together; then kind() says how.
TESSERA_HD constexpr bool has_kind(const ProductFacts& f) {
  Tcgen05Kind kind{};
  return find_kind(f.a_type, f.b_type, kind);
}
TESSERA_HD constexpr Tcgen05Kind kind(const ProductFacts& f) {
  Tcgen05Kind kind = Tcgen05Kind::f16;
  find_kind(f.a_type, f.b_type, kind);
  return kind;
}
// D has the sums of integers: no alpha, no factor.
TESSERA_HD constexpr bool stores_sums(const ProductFacts& f) { return f.d_dtype == DType::s32; }
TESSERA_HD constexpr bool is_quantized(const ProductFacts& f) { return f.d_format != OutputFormat::plain; }
// Columns of D, of so many of an accumulator.
TESSERA_HD constexpr int columns_of_d(const ProductFacts& f, int n) { return f.gate == Gate::interleaved ? n / 2 : n; }

// Bits of a value in shared memory: those of the 4-bit kinds are packed, in kind mxf8f6f4 all have a byte each.
TESSERA_HD constexpr int smem_bits(const ProductFacts& f) {
  return layout::is_four_bit(kind(f)) ? 4 : kind(f) == Tcgen05Kind::mxf8f6f4 ? 8 : operand_bits(f.a_type);
}
// Of K: elements of a step, and of an instruction.
TESSERA_HD constexpr int tile_k(const ProductFacts& f) { return kStepBytes * 8 / smem_bits(f); }
TESSERA_HD constexpr int chunk_k(const ProductFacts& f) { return tile_k(f) / kChunks; }

// Whether B gives an instruction its rows.
TESSERA_HD constexpr bool is_swapped(const ProductTiles& t) { return t.tile_m < kLanes; }
// CTAs that an instruction works in.
TESSERA_HD constexpr int pair_size(const ProductTiles& t) {
  return (is_swapped(t) ? t.cluster_n : t.cluster_m) > 1 ? 2 : 1;
}
// Columns of an accumulator: N of the instruction. And rows of the columns' operand that one CTA loads.
TESSERA_HD constexpr int columns(const ProductTiles& t) { return is_swapped(t) ? t.tile_m : t.tile_n; }
TESSERA_HD constexpr int column_rows(const ProductTiles& t) { return columns(t) / pair_size(t); }

}  // namespace tessera::gemm_tcgen05
