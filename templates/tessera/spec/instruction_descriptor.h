// The 32-bit instruction descriptor of tcgen05.mma: fields to bits and back. PTX ISA, "Instruction descriptor": one
// layout for the plain kinds, one for mxf8f6f4, one for the two 4-bit kinds. From the manual and public libraries; no
// Blackwell device was asked.
//
//   bits     f16, tf32, f8f6f4, i8        mxf8f6f4                 mxf4, mxf4nvf4
//   1..0     sparsity selector            0                        0
//   2        sparse                       sparse                   sparse
//   3        saturate (i8)                0                        0
//   5..4     D: f16 0, f32 1, s32 2       scale id of B            scale id of B (0 or 2)
//   9..7     A's type                     A's type                 1 (e2m1)
//   12..10   B's type                     B's type                 11..10: 1 (e2m1)
//   13, 14   negate A, B (not i8)         negate A, B              negate A, B
//   15, 16   A, B are MN-major            A, B are MN-major        0 (K-major)
//   22..17   N / 8                        N / 8                    N / 8
//   23       0                            scale type: ue8m0 1      ue8m0 1, ue4m3 0
//   28..24   M / 16                       28..27: M / 128          28..27: M / 128
//   30..29   30: max shift of .ws, low    scale id of A            scale id of A (0 or 2)
//   31       max shift of .ws, high       0                        K = 96 (sm_103a)
#pragma once

#include "tessera/spec/types.h"

namespace tessera::layout {

enum class Tcgen05Kind { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };
enum class Tcgen05Type { f16, bf16, tf32, e4m3, e5m2, e2m3, e3m2, e2m1, u8, s8 };
inline constexpr int kNumTcgen05Types = 10;
enum class Tcgen05Result { f16, f32, s32 };

TESSERA_HD constexpr bool is_block_scaled(Tcgen05Kind kind) {
  return kind == Tcgen05Kind::mxf8f6f4 || kind == Tcgen05Kind::mxf4 || kind == Tcgen05Kind::mxf4nvf4;
}
TESSERA_HD constexpr bool is_four_bit(Tcgen05Kind kind) {
  return kind == Tcgen05Kind::mxf4 || kind == Tcgen05Kind::mxf4nvf4;
}
// K of one dense instruction.
TESSERA_HD constexpr int tcgen05_k(Tcgen05Kind kind) {
  return kind == Tcgen05Kind::f16 ? 16 : kind == Tcgen05Kind::tf32 ? 8 : is_four_bit(kind) ? 64 : 32;
}

// The code of a type under a kind; -1: the kind does not have it.
TESSERA_HD constexpr int tcgen05_type_code(Tcgen05Kind kind, Tcgen05Type type) {
  switch (kind) {
    case Tcgen05Kind::f16:
      return type == Tcgen05Type::f16 ? 0 : type == Tcgen05Type::bf16 ? 1 : -1;
    case Tcgen05Kind::tf32:
      return type == Tcgen05Type::tf32 ? 2 : -1;
    case Tcgen05Kind::i8:
      return type == Tcgen05Type::u8 ? 0 : type == Tcgen05Type::s8 ? 1 : -1;
    case Tcgen05Kind::f8f6f4:
    case Tcgen05Kind::mxf8f6f4:
      return type == Tcgen05Type::e4m3   ? 0
             : type == Tcgen05Type::e5m2 ? 1
             : type == Tcgen05Type::e2m3 ? 3
             : type == Tcgen05Type::e3m2 ? 4
             : type == Tcgen05Type::e2m1 ? 5
                                         : -1;
    case Tcgen05Kind::mxf4:
    case Tcgen05Kind::mxf4nvf4:
      return type == Tcgen05Type::e2m1 ? 1 : -1;
  }
  return -1;
}

struct InstructionDescriptor {
  Tcgen05Type a = Tcgen05Type::f16;
  Tcgen05Type b = Tcgen05Type::f16;
  Tcgen05Result d = Tcgen05Result::f32;
  int m = 128;
  int n = 128;
  bool is_a_mn_major = false;
  bool is_b_mn_major = false;
  bool negates_a = false;
  bool negates_b = false;
  bool saturates = false;  // i8
  bool is_sparse = false;
  int sparsity_selector = 0;     // plain kinds: 0 to 3
  int max_shift = 0;             // plain kinds, .ws: 0, 8, 16 or 32
  bool scales_are_ue8m0 = true;  // block-scaled kinds; mxf4nvf4 may have ue4m3
  int scale_id_a = 0;
  int scale_id_b = 0;
  bool is_k96 = false;  // 4-bit kinds, sm_103a
};

enum class InstructionRule {
  ok,
  type_a,  // a type that the kind does not have
  type_b,
  result,      // f16 for f16 and f8f6f4; s32 for i8 and for it alone
  m,           // 32, 64, 128, 256; block-scaled 128 or 256
  n,           // 8 to 256 in steps of 8
  major,       // 4-bit kinds are K-major
  negate,      // not for i8
  saturate,    // for i8 alone
  selector,    // 0 to 3, not block-scaled
  max_shift,   // 0, 8, 16, 32, not block-scaled
  scale_type,  // ue4m3 for mxf4nvf4 alone
  scale_id,    // mxf8f6f4: 0 to 3; 4-bit kinds: 0 or 2
  k96          // 4-bit kinds, dense
};

TESSERA_HD constexpr Verdict<InstructionRule> why_invalid(Tcgen05Kind kind, const InstructionDescriptor& d) {
  using Rule = InstructionRule;
  const bool scaled = is_block_scaled(kind), is_integer = kind == Tcgen05Kind::i8;
  if (tcgen05_type_code(kind, d.a) < 0) return {Rule::type_a, static_cast<int>(d.a), 0};
  if (tcgen05_type_code(kind, d.b) < 0) return {Rule::type_b, static_cast<int>(d.b), 0};
  const bool may_be_half = kind == Tcgen05Kind::f16 || kind == Tcgen05Kind::f8f6f4;
  if ((d.d == Tcgen05Result::s32) != is_integer || (d.d == Tcgen05Result::f16 && !may_be_half))
    return {Rule::result, static_cast<int>(d.d), is_integer ? 2 : 1};
  const bool is_m = scaled ? d.m == 128 || d.m == 256 : d.m == 32 || d.m == 64 || d.m == 128 || d.m == 256;
  if (!is_m) return {Rule::m, d.m, 256};
  if (d.n < 8 || d.n > 256 || d.n % 8 != 0) return {Rule::n, d.n, 256};
  if (is_four_bit(kind) && (d.is_a_mn_major || d.is_b_mn_major)) return {Rule::major, 1, 0};
  if (is_integer && (d.negates_a || d.negates_b)) return {Rule::negate, 1, 0};
  if (d.saturates && !is_integer) return {Rule::saturate, 1, 0};
  if (d.sparsity_selector < 0 || d.sparsity_selector > 3 || (scaled && d.sparsity_selector != 0))
    return {Rule::selector, d.sparsity_selector, scaled ? 0 : 3};
  const bool is_shift = d.max_shift == 0 || d.max_shift == 8 || d.max_shift == 16 || d.max_shift == 32;
  if (!is_shift || (scaled && d.max_shift != 0)) return {Rule::max_shift, d.max_shift, scaled ? 0 : 32};
  if (scaled && kind != Tcgen05Kind::mxf4nvf4 && !d.scales_are_ue8m0) return {Rule::scale_type, 0, 1};
  const int highest_id = !scaled ? 0 : is_four_bit(kind) ? 2 : 3, id_step = is_four_bit(kind) ? 2 : 1;
  if (d.scale_id_a < 0 || d.scale_id_a > highest_id || d.scale_id_a % id_step != 0)
    return {Rule::scale_id, d.scale_id_a, highest_id};
  if (d.scale_id_b < 0 || d.scale_id_b > highest_id || d.scale_id_b % id_step != 0)
    return {Rule::scale_id, d.scale_id_b, highest_id};
  if (d.is_k96 && (!is_four_bit(kind) || d.is_sparse)) return {Rule::k96, 96, tcgen05_k(kind)};
  return {};
}

// Precondition: why_invalid says nothing.
TESSERA_HD constexpr unsigned encode_instruction_descriptor(Tcgen05Kind kind, const InstructionDescriptor& d) {
  unsigned bits = (d.is_sparse ? 1u << 2 : 0u) | static_cast<unsigned>(tcgen05_type_code(kind, d.a)) << 7 |
                  static_cast<unsigned>(tcgen05_type_code(kind, d.b)) << 10 | (d.negates_a ? 1u << 13 : 0u) |
                  (d.negates_b ? 1u << 14 : 0u) | (d.is_a_mn_major ? 1u << 15 : 0u) |
                  (d.is_b_mn_major ? 1u << 16 : 0u) | static_cast<unsigned>(d.n / 8) << 17;
  if (is_block_scaled(kind))
    return bits | static_cast<unsigned>(d.scale_id_b) << 4 | (d.scales_are_ue8m0 ? 1u << 23 : 0u) |
           static_cast<unsigned>(d.m / 128) << 27 | static_cast<unsigned>(d.scale_id_a) << 29 |
           (d.is_k96 ? 1u << 31 : 0u);
  const unsigned result = d.d == Tcgen05Result::f16 ? 0u : d.d == Tcgen05Result::f32 ? 1u : 2u;
  const unsigned shift = d.max_shift == 0 ? 0u : d.max_shift == 8 ? 1u : d.max_shift == 16 ? 2u : 3u;
  return bits | static_cast<unsigned>(d.sparsity_selector) | (d.saturates ? 1u << 3 : 0u) | result << 4 |
         static_cast<unsigned>(d.m / 16) << 24 | shift << 30;
}

// What the bits say, and which of them cannot be.
struct DecodedInstruction {
  InstructionDescriptor fields;
  unsigned reserved = 0;                                  // bits that are set and must not be
  int bad_type_a = -1, bad_type_b = -1, bad_result = -1;  // codes that the kind does not have
};
TESSERA_HD constexpr DecodedInstruction decode_instruction_descriptor(Tcgen05Kind kind, unsigned bits) {
  const bool scaled = is_block_scaled(kind), is_narrow = is_four_bit(kind), is_integer = kind == Tcgen05Kind::i8;
  DecodedInstruction out;
  InstructionDescriptor& d = out.fields;
  const int code_a = static_cast<int>(bits >> 7 & 7), code_b = static_cast<int>(bits >> 10 & (is_narrow ? 3 : 7));
  out.bad_type_a = code_a;
  out.bad_type_b = code_b;
  for (int i = 0; i < kNumTcgen05Types; ++i) {
    const Tcgen05Type type = static_cast<Tcgen05Type>(i);
    const int code = tcgen05_type_code(kind, type);
    if (code >= 0 && code == code_a) {
      d.a = type;
      out.bad_type_a = -1;
    }
    if (code >= 0 && code == code_b) {
      d.b = type;
      out.bad_type_b = -1;
    }
  }
  d.is_sparse = (bits >> 2 & 1) != 0;
  d.negates_a = (bits >> 13 & 1) != 0;
  d.negates_b = (bits >> 14 & 1) != 0;
  d.is_a_mn_major = (bits >> 15 & 1) != 0;
  d.is_b_mn_major = (bits >> 16 & 1) != 0;
  d.n = static_cast<int>(bits >> 17 & 63) * 8;
  if (scaled) {
    d.scale_id_b = static_cast<int>(bits >> 4 & 3);
    d.scale_id_a = static_cast<int>(bits >> 29 & 3);
    d.scales_are_ue8m0 = (bits >> 23 & 1) != 0;
    d.m = static_cast<int>(bits >> 27 & 3) * 128;
    d.is_k96 = is_narrow && (bits >> 31 & 1) != 0;
    out.reserved = bits & (0x3u | 1u << 3 | 1u << 6 | 7u << 24 | (is_narrow ? 1u << 12 : 1u << 31));
    return out;
  }
  d.sparsity_selector = static_cast<int>(bits & 3);
  d.saturates = (bits >> 3 & 1) != 0;
  const int result = static_cast<int>(bits >> 4 & 3);
  d.d = result == 0 ? Tcgen05Result::f16 : result == 2 ? Tcgen05Result::s32 : Tcgen05Result::f32;
  if (result == 3) out.bad_result = result;
  d.m = static_cast<int>(bits >> 24 & 31) * 16;
  const int shift = static_cast<int>(bits >> 30 & 3);
  d.max_shift = shift == 3 ? 32 : 8 * shift;
  out.reserved = bits & (1u << 6 | 1u << 23 | 1u << 29 | (is_integer ? 3u << 13 : 1u << 3));
  return out;
}

}  // namespace tessera::layout
