// PTX ISA, "Half Precision Floating Point Instructions": f16, bf16 and their packed pairs.
#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/half_arithmetic.h"
#include "emulator/math/mufu.h"

namespace tessera::emulator::bind {
namespace {

using math::Format;
using math::HalfModifiers;
using math::HalfOperation;
using math::MinMaxModifiers;
using U16 = std::uint16_t;
using U32 = std::uint32_t;

using Half2 = U32 (*)(U32, U32, HalfModifiers);
using Half3 = U32 (*)(U32, U32, U32, HalfModifiers);
using HalfMinMax = U32 (*)(U32, U32, MinMaxModifiers);

bool is_pair(const Decoded& d) { return d.type() == Type::f16x2 || d.type() == Type::bf16x2; }
bool is_bf16(const Decoded& d) { return d.type() == Type::bf16 || d.type() == Type::bf16x2; }

// flags: 1 ftz, 2 sat, 4 relu; for min and max 1 ftz, 2 NaN, 4 xorsign.abs.
HalfModifiers modifiers(const Instruction& in) {
  return {(in.flags & 1) != 0, (in.flags & 2) != 0, (in.flags & 4) != 0};
}
MinMaxModifiers minmax_modifiers(const Instruction& in) {
  return {(in.flags & 1) != 0, (in.flags & 2) != 0, (in.flags & 4) != 0};
}

template <Half2 kFunction, bool kPair>
Step half2(Warp& w, const Instruction& in, Mask active) {
  const HalfModifiers m = modifiers(in);
  if constexpr (kPair)
    return lift2<U32, U32, U32>(w, in, active, [m](U32 a, U32 b) { return math::on_pairs(kFunction, a, b, m); });
  else
    return lift2<U16, U16, U16>(w, in, active, [m](U16 a, U16 b) { return static_cast<U16>(kFunction(a, b, m)); });
}
template <Half3 kFunction, bool kPair>
Step half3(Warp& w, const Instruction& in, Mask active) {
  const HalfModifiers m = modifiers(in);
  if constexpr (kPair)
    return lift3<U32, U32, U32, U32>(w, in, active,
                                     [m](U32 a, U32 b, U32 c) { return math::on_pairs(kFunction, a, b, c, m); });
  else
    return lift3<U16, U16, U16, U16>(w, in, active,
                                     [m](U16 a, U16 b, U16 c) { return static_cast<U16>(kFunction(a, b, c, m)); });
}
// All lanes at once, where there is no modifier.
template <Format F, HalfOperation kOperation, bool kPair>
Step half_wide(Warp& w, const Instruction& in, Mask active) {
  using T = std::conditional_t<kPair, U32, U16>;
  alignas(64) T sa[kLanes], sb[kLanes], sc[kLanes], result[kLanes];
  const T* const a = source<T>(w, in.op[1], sa);
  const T* const b = source<T>(w, in.op[2], sb);
  const T* const c = kOperation == HalfOperation::fma ? source<T>(w, in.op[3], sc) : a;
  const auto codes = [](const T* lanes) { return reinterpret_cast<const U16*>(lanes); };
  const bool is_whole = active == kAllLanes && in.op[0].bytes == sizeof(T);
  T* const to = is_whole ? w.reg<T>(in.op[0].offset) : result;
  constexpr int kCount = kLanes * (kPair ? 2 : 1);
  math::half_lanes<F, kOperation>(codes(a), codes(b), codes(c), reinterpret_cast<U16*>(to), kCount);
  if (!is_whole) store_lanes(w, in.op[0], active, result);
  return Step::next;
}
template <HalfOperation kOperation>
Handler pick_wide(const Decoded& d) {
  if (is_bf16(d))
    return is_pair(d) ? half_wide<Format::bf16, kOperation, true> : half_wide<Format::bf16, kOperation, false>;
  return is_pair(d) ? half_wide<Format::f16, kOperation, true> : half_wide<Format::f16, kOperation, false>;
}
// .oob: a factor that is the NaN of tensor copies out of bounds, of either
// sign, makes the result zero; C is not looked at (H200).
constexpr U32 kOobNan = 0x7FF7;
template <Format F>
U32 fma_oob(U32 a, U32 b, U32 c, HalfModifiers m) {
  return (a & 0x7FFF) == kOobNan || (b & 0x7FFF) == kOobNan ? 0 : math::half_fma<F>(a, b, c, m);
}

template <HalfMinMax kFunction, bool kPair>
Step half_minmax(Warp& w, const Instruction& in, Mask active) {
  const MinMaxModifiers m = minmax_modifiers(in);
  if constexpr (kPair)
    return lift2<U32, U32, U32>(w, in, active, [m](U32 a, U32 b) { return math::on_pairs(kFunction, a, b, m); });
  else
    return lift2<U16, U16, U16>(w, in, active, [m](U16 a, U16 b) { return static_cast<U16>(kFunction(a, b, m)); });
}

template <Half2 kF16, Half2 kBf16>
Handler pick2(const Decoded& d) {
  d.in->flags = static_cast<U16>((d.has("ftz") ? 1 : 0) | (d.has("sat") ? 2 : 0));
  if (is_bf16(d)) return is_pair(d) ? half2<kBf16, true> : half2<kBf16, false>;
  return is_pair(d) ? half2<kF16, true> : half2<kF16, false>;
}
template <HalfMinMax kF16, HalfMinMax kBf16>
Handler pick_minmax(const Decoded& d) {
  d.in->flags = static_cast<U16>((d.has("ftz") ? 1 : 0) | (d.has("NaN") ? 2 : 0) | (d.has("abs") ? 4 : 0));
  if (is_bf16(d)) return is_pair(d) ? half_minmax<kBf16, true> : half_minmax<kBf16, false>;
  return is_pair(d) ? half_minmax<kF16, true> : half_minmax<kF16, false>;
}

constexpr U32 flush_half(U32 a) {
  const auto one = [](U32 h) { return (h & 0x7C00) == 0 ? h & 0x8000 : h; };
  return one(a & 0xFFFF) | one(a >> 16) << 16;
}
// A NaN becomes the canonical one (H200).
constexpr U32 canonical_halves(U32 a, U32 infinity) {
  const auto one = [infinity](U32 h) { return (h & 0x7FFF) > infinity ? U32{math::kCanonicalNan16} : h; };
  return one(a & 0xFFFF) | one(a >> 16) << 16;
}
template <class T, U32 kAnd, U32 kXor, bool kFtz, U32 kInfinity>
Step sign(Warp& w, const Instruction& in, Mask active) {
  return lift1<T, T>(w, in, active, [](T a) {
    const U32 value = kFtz ? flush_half(a) : a;
    return static_cast<T>(canonical_halves((value & kAnd) ^ kXor, kInfinity));
  });
}
template <U32 kAnd, U32 kXor>
Handler pick_sign(const Decoded& d) {
  if (is_bf16(d)) return is_pair(d) ? sign<U32, kAnd, kXor, false, 0x7F80> : sign<U16, kAnd, kXor, false, 0x7F80>;
  if (is_pair(d)) return d.has("ftz") ? sign<U32, kAnd, kXor, true, 0x7C00> : sign<U32, kAnd, kXor, false, 0x7C00>;
  return d.has("ftz") ? sign<U16, kAnd, kXor, true, 0x7C00> : sign<U16, kAnd, kXor, false, 0x7C00>;
}

template <U32 (*kFunction)(U32), bool kPair>
Step special(Warp& w, const Instruction& in, Mask active) {
  if constexpr (kPair)
    return lift1<U32, U32>(w, in, active,
                           [](U32 a) { return kFunction(a >> 16) << 16 | (kFunction(a & 0xFFFF) & 0xFFFF); });
  else
    return lift1<U16, U16>(w, in, active, [](U16 a) { return static_cast<U16>(kFunction(a)); });
}

}  // namespace

Handler add_half(const Decoded& d) {
  const Handler handler = pick2<math::half_add<Format::f16>, math::half_add<Format::bf16>>(d);
  return d.in->flags == 0 ? pick_wide<HalfOperation::add>(d) : handler;
}
Handler sub_half(const Decoded& d) {
  const Handler handler = pick2<math::half_sub<Format::f16>, math::half_sub<Format::bf16>>(d);
  return d.in->flags == 0 ? pick_wide<HalfOperation::sub>(d) : handler;
}
Handler mul_half(const Decoded& d) {
  const Handler handler = pick2<math::half_mul<Format::f16>, math::half_mul<Format::bf16>>(d);
  return d.in->flags == 0 ? pick_wide<HalfOperation::mul>(d) : handler;
}
Handler fma_half(const Decoded& d) {
  d.in->flags = static_cast<U16>((d.has("ftz") ? 1 : 0) | (d.has("sat") ? 2 : 0) | (d.has("relu") ? 4 : 0));
  if (d.has("oob")) {
    if (is_bf16(d)) return is_pair(d) ? half3<fma_oob<Format::bf16>, true> : half3<fma_oob<Format::bf16>, false>;
    return is_pair(d) ? half3<fma_oob<Format::f16>, true> : half3<fma_oob<Format::f16>, false>;
  }
  if (d.in->flags == 0) return pick_wide<HalfOperation::fma>(d);
  if (is_bf16(d))
    return is_pair(d) ? half3<math::half_fma<Format::bf16>, true> : half3<math::half_fma<Format::bf16>, false>;
  return is_pair(d) ? half3<math::half_fma<Format::f16>, true> : half3<math::half_fma<Format::f16>, false>;
}
Handler neg_half(const Decoded& d) { return pick_sign<0xFFFFFFFF, 0x80008000>(d); }
Handler abs_half(const Decoded& d) { return pick_sign<0x7FFF7FFF, 0>(d); }
Handler min_half(const Decoded& d) { return pick_minmax<math::half_min<Format::f16>, math::half_min<Format::bf16>>(d); }
Handler max_half(const Decoded& d) { return pick_minmax<math::half_max<Format::f16>, math::half_max<Format::bf16>>(d); }
Handler approx_half(const Decoded& d) {
  const bool is_ex2 = d.form->mnemonic == "ex2";
  if (is_bf16(d)) {
    if (is_ex2) return is_pair(d) ? special<math::ex2_bf16, true> : special<math::ex2_bf16, false>;
    return is_pair(d) ? special<math::tanh_bf16, true> : special<math::tanh_bf16, false>;
  }
  if (is_ex2) return is_pair(d) ? special<math::ex2_f16, true> : special<math::ex2_f16, false>;
  return is_pair(d) ? special<math::tanh_f16, true> : special<math::tanh_f16, false>;
}

}  // namespace tessera::emulator::bind
