// How tensor cores add: one row per kind of matrix instruction.
//
// One step takes `group` products and (as a rule) the accumulator C, and computes
//   1. every term exactly: product of significands, not normalised, exponent = sum of the exponents; a subnormal keeps
//      its format's smallest exponent; C likewise;
//   2. E = the largest exponent among the nonzero terms; every term cut toward zero to a multiple of 2^(E - F);
//   3. their exact sum; zero, and what underflows to zero, is +0;
//   4. the result: f32 cut toward zero (to 23 or 13 fraction bits, subnormals kept, infinity from 2^128 on), or f16
//      rounded to the nearest even;
//   5. any NaN, infinity times zero, or opposite infinities: 0x7FFFFFFF (f16 0x7FFF); else infinity.
// An instruction of larger K is several steps; nothing but the accumulator passes from one to the next, and the order
// of products within a step does not matter.
//
// verified: the row matched an H200 bit for bit (5,242,880 random outputs each: near, wide, all bit patterns, tiny,
// cancelling). The others are published models (MMA-Sim; Khattak and Mikaitis), which nobody here could check.
#pragma once

#include <cstdint>

namespace tessera::emulator::math {

/// What the accumulator is between two steps.
enum class MmaResult : std::uint8_t {
  f32,     ///< 23 fraction bits, cut
  f32_13,  ///< f32 with 13 fraction bits, cut: the fp8 wgmma of Hopper; C alone is cut as well
  f16      ///< nearest even; lives in the low half of a 32-bit word here
};

struct MmaPath {
  const char* name;
  int group;          ///< products per step
  int fraction_bits;  ///< F
  MmaResult result;
  bool pairs_split;  ///< fp8 mma.sync without own hardware (sm_90, sm_100): the operands are widened to f16 (subnormals
                     ///< of e4m3 are normal there); first all k with k % 4 in {0, 1}, then the others, from zero; C is
                     ///< added last by an ordinary addition
  bool verified;
};

namespace mma_paths {
inline constexpr MmaPath kHopperF32{"wgmma, mma.sync: f16, bf16 to f32", 16, 25, MmaResult::f32, false, true};
inline constexpr MmaPath kHopperF16{"wgmma, mma.sync: f16 to f16", 16, 25, MmaResult::f16, false, true};
inline constexpr MmaPath kHopperK8{"mma.sync k8: f16, bf16 to f32", 8, 25, MmaResult::f32, false, true};
/// m16n8k8 with f16 accumulators was not measured; the width follows the f32 form.
inline constexpr MmaPath kHopperK8F16{"mma.sync k8: f16 to f16", 8, 25, MmaResult::f16, false, false};
inline constexpr MmaPath kHopperTf32{"wgmma k8, mma.sync k8: tf32", 8, 25, MmaResult::f32, false, true};
inline constexpr MmaPath kHopperTf32K4{"mma.sync k4: tf32", 4, 25, MmaResult::f32, false, true};
inline constexpr MmaPath kHopperFp8{"wgmma k32: e4m3, e5m2 to f32", 32, 13, MmaResult::f32_13, false, true};
inline constexpr MmaPath kHopperFp8F16{"wgmma k32: e4m3 to f16", 32, 13, MmaResult::f16, false, true};
/// mma.sync of fp8 on sm_90 and sm_100: two f16 steps of half the K (read off ptxas's code).
inline constexpr MmaPath kWidenedFp8{"mma.sync k32 on sm_90: e4m3, e5m2 to f32", 16, 25, MmaResult::f32, true, true};
inline constexpr MmaPath kWidenedFp8F16{
    "mma.sync k32 on sm_90: e4m3, e5m2 to f16", 16, 25, MmaResult::f16, true, false};
inline constexpr MmaPath kWidenedFp8K16{"mma.sync k16 on sm_90: e4m3, e5m2 to f32", 8, 25, MmaResult::f32, true, false};
inline constexpr MmaPath kWidenedFp8K16F16{
    "mma.sync k16 on sm_90: e4m3, e5m2 to f16", 8, 25, MmaResult::f16, true, false};

inline constexpr MmaPath kBlackwellF32{
    "tcgen05, sm_120 mma.sync: f16, bf16 to f32", 16, 25, MmaResult::f32, false, false};
inline constexpr MmaPath kBlackwellF16{"tcgen05, sm_120 mma.sync: f16 to f16", 16, 25, MmaResult::f16, false, false};
inline constexpr MmaPath kBlackwellK8{
    "mma.sync k8 on sm_100, sm_120: f16, bf16 to f32", 8, 25, MmaResult::f32, false, false};
inline constexpr MmaPath kBlackwellK8F16{
    "mma.sync k8 on sm_100, sm_120: f16 to f16", 8, 25, MmaResult::f16, false, false};
inline constexpr MmaPath kBlackwellTf32K4{"mma.sync k4 on sm_100, sm_120: tf32", 4, 25, MmaResult::f32, false, false};
inline constexpr MmaPath kSm120Fp8K16{
    "mma.sync k16 on sm_120: e4m3, e5m2 to f32", 16, 25, MmaResult::f32, false, false};
inline constexpr MmaPath kSm120Fp8K16F16{
    "mma.sync k16 on sm_120: e4m3, e5m2 to f16", 16, 25, MmaResult::f16, false, false};
inline constexpr MmaPath kBlackwellTf32{"tcgen05: tf32", 8, 25, MmaResult::f32, false, false};
/// fp8, fp6 and fp4 operands; with ue8m0 scales (mxf8f6f4) the scales only shift exponents. fp6 was never modelled by
/// anybody.
inline constexpr MmaPath kBlackwellF8f6f4{
    "tcgen05, sm_120 mma.sync: f8f6f4, mxf8f6f4", 32, 25, MmaResult::f32, false, false};
inline constexpr MmaPath kBlackwellF8f6f4F16{
    "tcgen05, sm_120 mma.sync: f8f6f4 to f16", 32, 25, MmaResult::f16, false, false};
}  // namespace mma_paths

/// Every row, for pages and tests that list them. Sparse forms and K = 96 have no row: nothing settles them.
inline constexpr const MmaPath* kMmaPaths[] = {
    &mma_paths::kHopperF32,       &mma_paths::kHopperF16,          &mma_paths::kHopperK8,
    &mma_paths::kHopperK8F16,     &mma_paths::kHopperTf32,         &mma_paths::kHopperTf32K4,
    &mma_paths::kHopperFp8,       &mma_paths::kHopperFp8F16,       &mma_paths::kWidenedFp8,
    &mma_paths::kWidenedFp8F16,   &mma_paths::kWidenedFp8K16,      &mma_paths::kWidenedFp8K16F16,
    &mma_paths::kBlackwellF32,    &mma_paths::kBlackwellF16,       &mma_paths::kBlackwellK8,
    &mma_paths::kBlackwellK8F16,  &mma_paths::kBlackwellTf32,      &mma_paths::kBlackwellTf32K4,
    &mma_paths::kBlackwellF8f6f4, &mma_paths::kBlackwellF8f6f4F16, &mma_paths::kSm120Fp8K16,
    &mma_paths::kSm120Fp8K16F16};

/// mxf4 and mxf4nvf4, K = 64: four exact sums of 16 products, each times the significands of its two scales, with the
/// sum of the scales' exponents as exponent; these four and C make one step. Published model; for sm_120 one
/// measurement says 25 instead of 35 fraction bits, hence a named parameter.
struct Fp4Path {
  const char* name;
  int fraction_bits;
  bool verified;
};
namespace mma_paths {
inline constexpr Fp4Path kTcgen05Fp4{"tcgen05 mxf4, mxf4nvf4", 35, false};
inline constexpr Fp4Path kSm120Fp4{"sm_120 mma.sync mxf4, mxf4nvf4", 35, false};
inline constexpr Fp4Path kSm120Fp4Narrow{"sm_120 mma.sync mxf4, mxf4nvf4 (second opinion)", 25, false};
}  // namespace mma_paths

}  // namespace tessera::emulator::math
