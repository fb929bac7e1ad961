// PTX ISA, "Floating Point Instructions" on pairs of f32, and "Mixed Precision
// Floating Point Instructions": f32 with
// f16 or bf16 sources.
#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"
#include "emulator/math/convert.h"
#include "emulator/math/float_arithmetic.h"

namespace tessera::emulator::bind {
namespace {

using math::Rounding;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using Modifiers = math::ArithmeticModifiers;

// flags: bits 0-2 rounding, 8 ftz, 16 sat.
Modifiers modifiers(const Instruction& in) {
  return {static_cast<Rounding>(in.flags & 7), (in.flags & 8) != 0, (in.flags & 16) != 0};
}
void set_flags(const Decoded& d) {
  const Rounding rounding = d.has("rz")   ? Rounding::toward_zero
                            : d.has("rm") ? Rounding::down
                            : d.has("rp") ? Rounding::up
                                          : Rounding::nearest_even;
  d.in->flags =
      static_cast<U16>(static_cast<unsigned>(rounding) | (d.has("ftz") ? 8u : 0u) | (d.has("sat") ? 16u : 0u));
}

float low(U64 pair) { return math::float_of(static_cast<U32>(pair)); }
float high(U64 pair) { return math::float_of(static_cast<U32>(pair >> 32)); }
U64 pack(float low_half, float high_half) {
  return math::bits_of(low_half) | static_cast<U64>(math::bits_of(high_half)) << 32;
}

using Two = float (*)(float, float, Modifiers);
template <Two kFunction>
Step pair2(Warp& w, const Instruction& in, Mask active) {
  const Modifiers m = modifiers(in);
  return lift2<U64, U64, U64>(
      w, in, active, [m](U64 a, U64 b) { return pack(kFunction(low(a), low(b), m), kFunction(high(a), high(b), m)); });
}
Step pair3(Warp& w, const Instruction& in, Mask active) {
  const Modifiers m = modifiers(in);
  return lift3<U64, U64, U64, U64>(w, in, active, [m](U64 a, U64 b, U64 c) {
    return pack(math::fma(low(a), low(b), low(c), m), math::fma(high(a), high(b), high(c), m));
  });
}

template <math::Format F>
float widen(U16 code) {
  return static_cast<float>(math::decode<F>(code));
}
template <Two kFunction, math::Format F>
Step mixed2(Warp& w, const Instruction& in, Mask active) {
  const Modifiers m = modifiers(in);
  return lift2<float, U16, float>(w, in, active, [m](U16 a, float c) { return kFunction(widen<F>(a), c, m); });
}
template <math::Format F>
Step mixed3(Warp& w, const Instruction& in, Mask active) {
  const Modifiers m = modifiers(in);
  return lift3<float, U16, U16, float>(
      w, in, active, [m](U16 a, U16 b, float c) { return math::fma(widen<F>(a), widen<F>(b), c, m); });
}

constexpr Two kAdd = math::add;
constexpr Two kSub = math::sub;
constexpr Two kMul = math::mul;

}  // namespace

Handler float_pair(const Decoded& d) {
  set_flags(d);
  const std::string_view name = d.form->mnemonic;
  if (name == "fma") return pair3;
  return name == "add" ? pair2<kAdd> : name == "sub" ? pair2<kSub> : pair2<kMul>;
}
Handler float_mixed(const Decoded& d) {
  set_flags(d);
  const std::string_view name = d.form->mnemonic;
  const bool is_bf16 = d.type(1) == Type::bf16;
  using math::Format;
  if (name == "fma") return is_bf16 ? mixed3<Format::bf16> : mixed3<Format::f16>;
  if (name == "add") return is_bf16 ? mixed2<kAdd, Format::bf16> : mixed2<kAdd, Format::f16>;
  return is_bf16 ? mixed2<kSub, Format::bf16> : mixed2<kSub, Format::f16>;
}

}  // namespace tessera::emulator::bind
