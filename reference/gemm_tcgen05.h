// Operands of products on tcgen05 in host memory: what the tensor cores see of them, random ones, and how their sums
// round. The product itself and its verdict: gemm.h.
//
// A block-scaled element is value times scale; products of two such are exact in float64. tf32 operands lose the low 13
// bits of their fp32 numbers. From published bit-accurate models of the hardware, not measured here: an instruction
// adds 16 (16-bit types), 8 (tf32) or 32 (8-bit types) products and the accumulator, each cut to 25 fraction bits
// relative to the largest; 4-bit types add four sums of 16, exact ones, cut to 35 bits. The sum is cut to 23 bits.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "reference/gemm.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "spec/product_facts.h"

namespace tessera::reference {

/// How the sums of operands of these types are bounded: goes into GemmCheck::sums.
TensorSums tensor_sums(const ProductFacts& facts);

/// [l, rows, k] in float64. values: as the launch plan describes the buffer, any strides; block-scaled types: bytes,
/// and their scales in tiles. Throws Error{usage} for scales of a wrong size, naming both.
Tensor decode_operand(OperandType type, const TensorView& values, std::span<const std::byte> scales, std::int64_t k);

/// Dense random values of an operand. integer: whole numbers, whose sums a kernel holds exactly.
Tensor random_operand(OperandType type, std::int64_t l, std::int64_t rows, std::int64_t k, Fill fill,
                      std::uint64_t seed, std::uint64_t stream);
/// Scales in tiles; bytes that belong to no block as scale_padding.h has them. integer: 1 and 2.
Tensor random_operand_scales(OperandType type, std::int64_t l, std::int64_t rows, std::int64_t k, Fill fill,
                             std::uint64_t seed, std::uint64_t stream);

/// The same in the plain form, [l, rows, blocks].
Tensor random_plain_scales(OperandType type, std::int64_t l, std::int64_t rows, std::int64_t k, Fill fill,
                           std::uint64_t seed, std::uint64_t stream);

}  // namespace tessera::reference
