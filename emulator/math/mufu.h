// ex2, rcp, rsqrt, sqrt, lg2 and tanh in their .approx forms, bit for bit as an H200 computes them.
//
// All functions map bit patterns to bit patterns. Names: <op>_ftz is <op>.approx.ftz.f32, the unit itself; <op>_full is
// the form without .ftz, ordinary multiplications around the unit that keep subnormals; the f16 and bf16 forms widen,
// use the unit, and cut the result toward zero. NaN results are 0x7FFFFFFF and 0x7FFF.
//
// Measured on H200: checksums of 28 x 2^24 outputs and 4 x 65,536 outputs equal; tests/emulator_math/mufu.cpp repeats
// them. sin, cos and the approximate divisions are not modelled: see below.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::emulator::math {

std::uint32_t ex2_ftz(std::uint32_t x);
std::uint32_t rcp_ftz(std::uint32_t x);
std::uint32_t rsqrt_ftz(std::uint32_t x);
std::uint32_t sqrt_ftz(std::uint32_t x);
std::uint32_t lg2_ftz(std::uint32_t x);

std::uint32_t ex2_full(std::uint32_t x);
std::uint32_t rcp_full(std::uint32_t x);
std::uint32_t rsqrt_full(std::uint32_t x);
std::uint32_t sqrt_full(std::uint32_t x);
std::uint32_t lg2_full(std::uint32_t x);

/// The f32 forms, and all 32 lanes of one at once: of lanes that are not active the result is anything. result may be
/// x.
enum class SpecialForm : std::uint8_t {
  ex2_ftz,
  rcp_ftz,
  rsqrt_ftz,
  sqrt_ftz,
  lg2_ftz,
  ex2_full,
  rcp_full,
  rsqrt_full,
  sqrt_full,
  lg2_full
};
std::uint32_t (*function_of(SpecialForm form))(std::uint32_t);
void special_lanes(SpecialForm form, const std::uint32_t* x, std::uint32_t* result, std::uint32_t active);

/// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64: of the high word alone, 20 bits of mantissa out; the low word of the
/// result is zero.
std::uint64_t rcp_f64(std::uint64_t x);
std::uint64_t rsqrt_f64(std::uint64_t x);
/// rsqrt.approx.f64: the steps that ptxas makes of it for sm_90a, from the form above.
std::uint64_t rsqrt_f64_full(std::uint64_t x);

/// tanh.approx.f32 has one form; subnormals pass through it.
std::uint32_t tanh_f32(std::uint32_t x);

/// 16-bit forms; the packed ones apply these to both halves. ex2.approx.f16, ex2.approx.ftz.bf16, tanh.approx.*.
std::uint32_t ex2_f16(std::uint32_t x);
std::uint32_t ex2_bf16(std::uint32_t x);
std::uint32_t tanh_f16(std::uint32_t x);
std::uint32_t tanh_bf16(std::uint32_t x);

/// False: sin and cos are near the hardware's, not equal to it. The source is reduced to turns in f32 as there, the
/// function is computed in double; the hardware's own error is up to 6.5e-7 and 4.0e-7 on [1, 4).
inline constexpr bool kSinCosModelled = false;
/// a * rcp(b): equal to an H200 on all random and boundary inputs tried.
inline constexpr bool kDivApproxModelled = true;
std::uint32_t sin_approx(std::uint32_t x, bool ftz);
std::uint32_t cos_approx(std::uint32_t x, bool ftz);
/// div.approx and div.full; with |b| in (2^126, 2^128) div.approx gives 0 (PTX ISA, div).
std::uint32_t div_approx(std::uint32_t a, std::uint32_t b, bool ftz);
std::uint32_t div_full(std::uint32_t a, std::uint32_t b, bool ftz);

}  // namespace tessera::emulator::math
