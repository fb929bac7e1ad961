// Block-scaled quantisation on the host, in the plainest form: what every kernel's bits are compared with.
//
// Definitions, all arithmetic fp32 and rounded to nearest even, one rounding for each step named:
//   amax         largest magnitude of the block; NaN is left out, infinity counts as the largest finite fp32 number
//   nvfp4        scale = e4m3(amax / (6 * g)), saturating at 448; d = scale * g; value = e2m1(x / d), saturating. A
//                block whose scale or d is 0 stores 0 everywhere (its scale's code is kept). g: 1, a given number, or
//                amax of the tensor / 2688; a g of 0 makes every scale 0
//   mx, up       scale = the least 2^i, -127 <= i, with amax <= 2^i * largest value (exact)
//   mx, floor    scale = 2^max(floor(log2(amax)) - exponent of the largest value, -127)
//   mx values    value = e2m1, e3m2, e2m3, e4m3 or e5m2 (x / scale), saturating
// Infinities become the largest value of their sign. NaN becomes NaN (0x7F, without sign) in e4m3 and e5m2; in e2m1,
// e3m2 and e2m3, which have none, the largest value: what the conversion instructions do.
//
// Dequantised: y = type(value * d) with d = scale * g (nvfp4) or scale, the product rounded to fp32 first; a NaN scale
// gives NaN.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "reference/tensor.h"
#include "tessera/spec/block_scale.h"

namespace tessera::reference {

struct QuantizeRule {
  BlockFormat format = BlockFormat::nvfp4;
  ScaleForm form = ScaleForm::plain;
  ScaleRounding rounding = ScaleRounding::up;  ///< mx only
  float global_scale = 1;                      ///< nvfp4 only
};

/// A block-scaled tensor in host memory.
struct Quantized {
  std::vector<std::uint8_t> values;
  std::vector<std::uint8_t> scales;
};

/// Value `index` of packed values of 4, 6 or 8 bits, as tessera/spec/block_scale.h has them.
std::uint8_t load_code(std::span<const std::uint8_t> values, int bits, std::int64_t index);
void store_code(std::span<std::uint8_t> values, int bits, std::int64_t index, std::uint8_t code);

/// Nearest even, saturating; NaN as the head says.
std::uint8_t encode_value(ValueType type, float value);
float decode_value(ValueType type, std::uint8_t code);
/// ue4m3: nearest even, saturating. ue8m0: see ScaleRounding. Magnitudes only; not NaN.
std::uint8_t encode_ue4m3(float value);
std::uint8_t encode_ue8m0(float amax, BlockFormat format, ScaleRounding rounding);
float decode_scale(ScaleType type, std::uint8_t code);

/// Throws Error{usage} for a g that is negative, infinite or NaN. 0 is one: of a tensor of zeros.
void require_global_scale(float g, std::string_view name = "global_scale");

/// amax of the tensor / 2688: the g of GlobalScale::amax.
float global_scale_of(const TensorView& x);

/// x: [batch, rows, k] (or [rows, k]) of f32, f16 or bf16, any strides. Throws Error{usage} when k is no multiple of
/// the block, and for a global scale that require_global_scale refuses. Padding bytes of the tile form become 0.
Quantized quantize(const TensorView& x, const QuantizeRule& rule);

/// The inverse, into a dense tensor [batch, rows, k]. Throws Error{usage} for spans of a wrong size and global scales
/// as above.
Tensor dequantize(std::span<const std::uint8_t> values, std::span<const std::uint8_t> scales, const QuantizeRule& rule,
                  DType dtype, std::int64_t batch, std::int64_t rows, std::int64_t k);

/// Scales of [batch, rows, blocks] from one form to the other. Throws Error{usage} for a span of a wrong size, naming
/// both. Padding bytes become 0.
std::vector<std::uint8_t> convert_scales(std::span<const std::uint8_t> scales, ScaleForm from, ScaleForm to,
                                         std::int64_t batch, std::int64_t rows, std::int64_t blocks);

}  // namespace tessera::reference
