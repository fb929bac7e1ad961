// What a Problem asks for and what a plan's tiles are, in the words that all kernels of an operator share, whichever
// target's: for commands, references and tests, which know no Config.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "spec/product_facts.h"
#include "tessera/plan.h"
#include "tessera/spec/attention_types.h"

namespace tessera {

/// Whose lengths are read: pages need the keys', which say where a sequence ends.
UsedLengths used_lengths(const Fmha& problem);
AttentionFacts attention_facts(const Fmha& problem);

/// Whether a matrix instruction is one of mma.sync's.
constexpr bool is_mma_sync(MmaKind kind) {
  return kind != MmaKind::wgmma_f16 && kind != MmaKind::tcgen05_f16 && kind != MmaKind::tcgen05_f8f6f4;
}
constexpr bool is_mma_sync(const std::optional<MmaKind>& kind) { return kind && is_mma_sync(*kind); }
/// Whether a pin names the instruction that kernels by mma.sync have for the operands. Where mma.sync is a target's own
/// (sm_120 and sm_121), nothing else does; on others mma.f16 asks for those kernels whatever their operands.
bool names_mma_sync(MmaKind pin, MmaKind own, Arch target);

/// An element type as an operand's. Throws Error{unsupported} for one that no matrix instruction takes.
OperandType operand_type(DType dtype);
/// What is asked for, or how 8-bit types are summed where nothing is.
Accumulation product_accumulation(const Gemm& problem);
/// Throws Error{unsupported} for a type that no matrix instruction takes.
ProductFacts product_facts(const Gemm& problem);
/// Whose a product's buffer is: values, scales and factors alike.
enum class ProductOperand : std::uint8_t { a, b, c, d, groups };
/// Throws std::out_of_range for a name that no product's launch has.
ProductOperand product_operand(std::string_view buffer);

/// Of the product: rows of d first, also where b gives the kernel's matrix instruction its rows.
ProductTiles product_tiles(const Plan& plan);

}  // namespace tessera
