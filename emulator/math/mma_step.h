// The plain model: one output of a matrix instruction, in 128-bit integers, step by step as mma_path.h says. Slow and
// evident; mma_tile.h is the fast form and is tested against this one.
#pragma once

#include <cstdint>
#include <span>

#include "emulator/math/float_format.h"
#include "emulator/math/mma_path.h"

namespace tessera::emulator::math {

/// d = sum over k of a[k] * b[k] + c. a and b hold codes (tf32 in 32-bit containers); c and the result are f32 bits, or
/// an f16 code in the low half. a_scales, b_scales: ue8m0 codes, one per 32 products; empty when not block-scaled.
std::uint32_t mma_output(const MmaPath& path, Format a_format, Format b_format, std::span<const std::uint32_t> a,
                         std::span<const std::uint32_t> b, std::uint32_t c, std::span<const std::uint8_t> a_scales = {},
                         std::span<const std::uint8_t> b_scales = {});

/// The f16 code of an e4m3 or e5m2 value, as pairs_split paths take them.
std::uint32_t widen_fp8(Format format, std::uint32_t code);

/// pairs_split paths: the sum of the products, then C by an ordinary addition (f32 or f16).
std::uint32_t add_last(MmaResult result, std::uint32_t sum, std::uint32_t c);

/// mma_output for e2m1 operands under mxf4 or mxf4nvf4: 64 codes each; scale_format is ue8m0 or ue4m3, scale_block 32
/// or 16 products per scale.
std::uint32_t fp4_output(const Fp4Path& path, Format scale_format, int scale_block, std::span<const std::uint32_t> a,
                         std::span<const std::uint32_t> b, std::span<const std::uint8_t> a_scales,
                         std::span<const std::uint8_t> b_scales, std::uint32_t c);

}  // namespace tessera::emulator::math
