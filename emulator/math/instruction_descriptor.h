// The 32-bit instruction descriptor of tcgen05.mma: types, shape, major-ness, scale-factor ids.
//
// PTX ISA, "Instruction descriptor": three layouts, by kind. Document only. Legality of M and N for a kind is the
// validator's matter; here only the bits are read, and bits that must be zero are checked.
#pragma once

#include <cstdint>

#include "emulator/math/float_format.h"
#include "emulator/math/matrix_descriptor.h"

namespace tessera::emulator::math {

enum class Tcgen05Kind : std::uint8_t { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };

enum class Tcgen05Result : std::uint8_t { f16, f32, s32 };

enum class InstructionIssue : std::uint8_t {
  none,
  reserved_bits,  ///< bits that must be zero are not
  operand_type,   ///< a type code that the kind does not have
  result_type,
  major,      ///< mxf4 kinds take K-major operands only
  scale_type  ///< mxf8f6f4 and mxf4 take ue8m0 only
};

struct InstructionDescriptor {
  Tcgen05Result result = Tcgen05Result::f32;
  Format a = Format::f16;  ///< not for i8
  Format b = Format::f16;
  bool a_signed = false;  ///< i8: s8 instead of u8
  bool b_signed = false;
  bool negate_a = false;
  bool negate_b = false;
  Major a_major = Major::k;
  Major b_major = Major::k;
  int m = 0;
  int n = 0;
  bool saturate = false;  ///< i8
  bool sparse = false;
  int sparsity_selector = 0;
  int max_shift = 0;                    ///< .ws: 0, 8, 16, 32
  Format scale_format = Format::ue8m0;  ///< block-scaled kinds
  int scale_id_a = 0;
  int scale_id_b = 0;
  int k = 0;  ///< products per instruction, dense: 16, 8, 32 or 64; 96 on sm_103a
  InstructionIssue issue = InstructionIssue::none;
};

InstructionDescriptor decode_instruction(Tcgen05Kind kind, std::uint32_t bits);

}  // namespace tessera::emulator::math
