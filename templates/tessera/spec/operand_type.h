// What an operand of a product on the tensor cores may be: an element type, or a block-scaled format with
// values and scales. Which kind of tcgen05.mma takes a pair of them. Host and device evaluate the same functions.
#pragma once

#include "tessera/spec/block_scale.h"
#include "tessera/spec/instruction_descriptor.h"
#include "tessera/spec/types.h"

namespace tessera {

enum class OperandType {
  f16,
  bf16,
  tf32,
  e4m3,
  e5m2,
  s8,
  u8,
  int4,
  nvfp4,
  mxfp4,
  mxfp8_e4m3,
  mxfp8_e5m2,
  mxfp6_e3m2,
  mxfp6_e2m3
};

// Weights of four bits beside a 16-bit operand: e2m1 with the scales of a block-scaled format, or integers with scales
// of the other operand's type. Integers are -8 to 7, or 0 to 15 of which a zero point is taken.
enum class WeightFormat { mxfp4, nvfp4, int4 };
enum class ZeroPoints { none, given };

// What becomes of a product before it is stored: activation(gate) * up, where gate and up are two products with the
// same A, or one whose columns hold both in turn.
enum class Gate { none, dual, interleaved };
// What is made of gate and up: an activation of the gate times up, or gpt-oss' gate * sigmoid(1.702 gate) * (up + 1).
enum class GateActivation { silu, gelu, gelu_tanh, gpt_oss };

// Products of groups of rows with matrices B of their own: none, one group a matrix of A as a whole; contiguous, groups
// stand one behind the other in A and D; masked, each at the beginning of its own matrix.
enum class Grouping { none, contiguous, masked };

// Which row of A a row of D has: its own; the one that a list names.
enum class Gather { none, rows };

// Which elements of a row-major operand [rows, k] share an fp32 factor: none; 128 of a row; 128 of each of 128 rows.
enum class ScaleBlock { none, of_row, square };
inline constexpr int kScaleBlock = 128;  // elements of k, and rows of a square

// Which numbers these factors may be: any, or powers of two alone.
enum class ScaleValues { any, pow2 };

// How a product is stored: as elements of a type, or as values and scales of a block-scaled format. MXFP6 is not among
// them: quantize makes it.
enum class OutputFormat { plain, nvfp4, mxfp4, mxfp8_e4m3, mxfp8_e5m2 };

// Precondition: not plain.
TESSERA_HD constexpr BlockFormat block_format(OutputFormat format) {
  return format == OutputFormat::nvfp4        ? BlockFormat::nvfp4
         : format == OutputFormat::mxfp4      ? BlockFormat::mxfp4
         : format == OutputFormat::mxfp8_e4m3 ? BlockFormat::mxfp8_e4m3
                                              : BlockFormat::mxfp8_e5m2;
}
// Precondition: not of six bits.
TESSERA_HD constexpr OutputFormat output_format(BlockFormat format) {
  return format == BlockFormat::nvfp4        ? OutputFormat::nvfp4
         : format == BlockFormat::mxfp4      ? OutputFormat::mxfp4
         : format == BlockFormat::mxfp8_e4m3 ? OutputFormat::mxfp8_e4m3
                                             : OutputFormat::mxfp8_e5m2;
}

TESSERA_HD constexpr bool is_block_scaled(OperandType type) { return type >= OperandType::nvfp4; }
TESSERA_HD constexpr bool is_integer(OperandType type) { return type == OperandType::s8 || type == OperandType::u8; }
TESSERA_HD constexpr bool is_mxfp8(OperandType type) {
  return type == OperandType::mxfp8_e4m3 || type == OperandType::mxfp8_e5m2;
}
TESSERA_HD constexpr bool is_mxfp6(OperandType type) {
  return type == OperandType::mxfp6_e3m2 || type == OperandType::mxfp6_e2m3;
}
// Those whose pairs kind mxf8f6f4 multiplies, each with any: scales ue8m0 of 32.
TESSERA_HD constexpr bool is_mx(OperandType type) {
  return is_mxfp8(type) || is_mxfp6(type) || type == OperandType::mxfp4;
}
// Precondition: is_block_scaled(type).
TESSERA_HD constexpr BlockFormat block_format(OperandType type) {
  return type == OperandType::nvfp4        ? BlockFormat::nvfp4
         : type == OperandType::mxfp4      ? BlockFormat::mxfp4
         : type == OperandType::mxfp8_e4m3 ? BlockFormat::mxfp8_e4m3
         : type == OperandType::mxfp6_e3m2 ? BlockFormat::mxfp6_e3m2
         : type == OperandType::mxfp6_e2m3 ? BlockFormat::mxfp6_e2m3
                                           : BlockFormat::mxfp8_e5m2;
}
TESSERA_HD constexpr OperandType operand_type(BlockFormat format) {
  return format == BlockFormat::nvfp4        ? OperandType::nvfp4
         : format == BlockFormat::mxfp4      ? OperandType::mxfp4
         : format == BlockFormat::mxfp8_e4m3 ? OperandType::mxfp8_e4m3
         : format == BlockFormat::mxfp6_e3m2 ? OperandType::mxfp6_e3m2
         : format == BlockFormat::mxfp6_e2m3 ? OperandType::mxfp6_e2m3
                                             : OperandType::mxfp8_e5m2;
}

TESSERA_HD constexpr OperandType operand_type(WeightFormat format) {
  return format == WeightFormat::int4    ? OperandType::int4
         : format == WeightFormat::nvfp4 ? OperandType::nvfp4
                                         : OperandType::mxfp4;
}

// Precondition: !is_block_scaled(type).
TESSERA_HD constexpr DType element_type(OperandType type) {
  switch (type) {
    case OperandType::f16:
      return DType::f16;
    case OperandType::tf32:
      return DType::tf32;
    case OperandType::e4m3:
      return DType::e4m3;
    case OperandType::e5m2:
      return DType::e5m2;
    case OperandType::s8:
      return DType::s8;
    case OperandType::u8:
      return DType::u8;
    default:
      return DType::bf16;
  }
}

// Bits of a value in global memory.
TESSERA_HD constexpr int operand_bits(OperandType type) {
  switch (type) {
    case OperandType::tf32:
      return 32;
    case OperandType::f16:
    case OperandType::bf16:
      return 16;
    case OperandType::int4:
    case OperandType::nvfp4:
    case OperandType::mxfp4:
      return 4;
    case OperandType::mxfp6_e3m2:
    case OperandType::mxfp6_e2m3:
      return 6;
    default:
      return 8;
  }
}

// The type as the instruction descriptor names it.
TESSERA_HD constexpr layout::Tcgen05Type tcgen05_type(OperandType type) {
  switch (type) {
    case OperandType::f16:
      return layout::Tcgen05Type::f16;
    case OperandType::bf16:
      return layout::Tcgen05Type::bf16;
    case OperandType::tf32:
      return layout::Tcgen05Type::tf32;
    case OperandType::e4m3:
    case OperandType::mxfp8_e4m3:
      return layout::Tcgen05Type::e4m3;
    case OperandType::e5m2:
    case OperandType::mxfp8_e5m2:
      return layout::Tcgen05Type::e5m2;
    case OperandType::mxfp6_e3m2:
      return layout::Tcgen05Type::e3m2;
    case OperandType::mxfp6_e2m3:
      return layout::Tcgen05Type::e2m3;
    case OperandType::s8:
      return layout::Tcgen05Type::s8;
    case OperandType::u8:
      return layout::Tcgen05Type::u8;
    case OperandType::int4:  // no operand there
    case OperandType::nvfp4:
    case OperandType::mxfp4:
      return layout::Tcgen05Type::e2m1;
  }
  return layout::Tcgen05Type::f16;
}

// The kind of instruction that multiplies the two; false where there is none. Types of one kind may differ where the
// kind allows it: 8-bit floats, 8-bit integers, and mxfp8, mxfp6 and mxfp4 beside each other. Values of 4 and 6 bits
// are then padded to 8 bits in shared memory, those of 6 beside their own as well.
TESSERA_HD constexpr bool find_kind(OperandType a, OperandType b, layout::Tcgen05Kind& kind) {
  using layout::Tcgen05Kind;
  const auto is_fp8 = [](OperandType type) { return type == OperandType::e4m3 || type == OperandType::e5m2; };
  if (a == b && (a == OperandType::f16 || a == OperandType::bf16)) {
    kind = Tcgen05Kind::f16;
  } else if (a == b && a == OperandType::tf32) {
    kind = Tcgen05Kind::tf32;
  } else if (is_fp8(a) && is_fp8(b)) {
    kind = Tcgen05Kind::f8f6f4;
  } else if (is_integer(a) && is_integer(b)) {
    kind = Tcgen05Kind::i8;
  } else if (a == OperandType::nvfp4 && b == OperandType::nvfp4) {
    kind = Tcgen05Kind::mxf4nvf4;
  } else if (a == OperandType::mxfp4 && b == OperandType::mxfp4) {
    kind = Tcgen05Kind::mxf4;
  } else if (is_mx(a) && is_mx(b)) {
    kind = Tcgen05Kind::mxf8f6f4;
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera
