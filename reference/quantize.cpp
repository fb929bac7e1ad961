#include "reference/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tessera/error.h"

namespace tessera::reference {

namespace {

constexpr float kE2m1Sizes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
constexpr float kLargestFloat = std::numeric_limits<float>::max();

/// The extents of a tensor of rank 2 or 3 and how to walk it.
struct Matrix {
  std::int64_t batch = 1, rows = 0, k = 0;
  std::int64_t batch_stride = 0, row_stride = 0, k_stride = 1;
};

Matrix matrix_of(const TensorView& x) {
  const std::size_t rank = x.shape.size();
  if (rank != 2 && rank != 3)
    throw Error(ErrorKind::usage, fmt::format("a tensor of rank {}: [batch, rows, k] or [rows, k] needed", rank));
  if (x.dtype != DType::f32 && x.dtype != DType::f16 && x.dtype != DType::bf16)
    throw Error(ErrorKind::usage, fmt::format("elements of type {}: f32, f16 or bf16 needed", dtype_name(x.dtype)));
  Matrix m;
  if (rank == 3) {
    m.batch = x.shape[0];
    m.batch_stride = x.strides[0];
  }
  m.rows = x.shape[rank - 2];
  m.k = x.shape[rank - 1];
  m.row_stride = x.strides[rank - 2];
  m.k_stride = x.strides[rank - 1];
  return m;
}

void require_blocks(std::int64_t k, BlockFormat format) {
  if (k % block_elements(format) != 0)
    throw Error(ErrorKind::usage, fmt::format("k = {}: must be a multiple of {}, the block that shares a scale", k,
                                              block_elements(format)));
}

void require_bytes(const char* what, std::size_t found, std::int64_t wanted) {
  if (static_cast<std::int64_t>(found) != wanted)
    throw Error(ErrorKind::usage, fmt::format("{}: {} bytes given, {} needed", what, found, wanted));
}

float finite_magnitude(float x) { return std::isnan(x) ? 0 : std::min(std::fabs(x), kLargestFloat); }

void store_value(std::vector<std::uint8_t>& values, BlockFormat format, std::int64_t index, std::uint8_t code) {
  if (value_bits(format) == 8) {
    values[static_cast<std::size_t>(index)] = code;
    return;
  }
  std::uint8_t& byte = values[static_cast<std::size_t>(index / 2)];
  byte = static_cast<std::uint8_t>(index % 2 == 0 ? (byte & 0xF0) | code : (byte & 0x0F) | (code << 4));
}

std::uint8_t load_value(std::span<const std::uint8_t> values, BlockFormat format, std::int64_t index) {
  if (value_bits(format) == 8) return values[static_cast<std::size_t>(index)];
  const std::uint8_t byte = values[static_cast<std::size_t>(index / 2)];
  return static_cast<std::uint8_t>(index % 2 == 0 ? byte & 0xF : byte >> 4);
}

/// The scale's code for a block, and what its values are divided by (0: store zeros).
std::uint8_t scale_of(float amax, const QuantizeRule& rule, float& divisor) {
  if (rule.format != BlockFormat::nvfp4) {
    const std::uint8_t code = encode_ue8m0(amax, rule.format, rule.rounding);
    divisor = decode_scale(ScaleType::ue8m0, code);
    return code;
  }
  const float unit = 6.0F * rule.global_scale;
  const std::uint8_t code = unit == 0 ? std::uint8_t{0} : encode_ue4m3(amax / unit);
  divisor = decode_scale(ScaleType::ue4m3, code) * rule.global_scale;
  return code;
}

}  // namespace

std::uint8_t encode_value(ValueType type, float value) {
  if (type != ValueType::e2m1) {
    const DType dtype = type == ValueType::e4m3 ? DType::e4m3 : DType::e5m2;
    if (std::isnan(value)) return 0x7F;
    const float most = type == ValueType::e4m3 ? 448.0F : 57344.0F;
    return static_cast<std::uint8_t>(from_double(dtype, static_cast<double>(std::clamp(value, -most, most))));
  }
  if (std::isnan(value)) return 7;
  const std::uint8_t sign = std::signbit(value) ? 8 : 0;
  const float magnitude = std::fabs(value);
  std::uint8_t code = 0;
  // Past the midpoint to the next code, or at it where that code is even.
  for (std::uint8_t next = 1; next < 8; ++next) {
    const float middle = (kE2m1Sizes[next - 1] + kE2m1Sizes[next]) / 2;
    if (magnitude > middle || (magnitude == middle && next % 2 == 0)) code = next;
  }
  return sign | code;
}

float decode_value(ValueType type, std::uint8_t code) {
  if (type == ValueType::e2m1) return (code & 8) != 0 ? -kE2m1Sizes[code & 7] : kE2m1Sizes[code & 7];
  return static_cast<float>(to_double(type == ValueType::e4m3 ? DType::e4m3 : DType::e5m2, code));
}

std::uint8_t encode_ue4m3(float value) {
  return static_cast<std::uint8_t>(from_double(DType::e4m3, static_cast<double>(std::min(value, kLargestUe4m3))));
}

std::uint8_t encode_ue8m0(float amax, BlockFormat format, ScaleRounding rounding) {
  if (amax == 0) return 0;
  int exponent = 0;
  std::frexp(amax, &exponent);  // amax in [2^(exponent - 1), 2^exponent)
  exponent -= 1 + largest_exponent(format);
  // The largest value is below 2^(its exponent + 1): at most one more power of two is needed. Exact in fp64.
  if (rounding == ScaleRounding::up &&
      static_cast<double>(amax) > std::ldexp(static_cast<double>(largest_value(format)), exponent))
    ++exponent;
  return static_cast<std::uint8_t>(std::clamp(exponent + 127, 0, 254));
}

float decode_scale(ScaleType type, std::uint8_t code) {
  if (type == ScaleType::ue4m3) return static_cast<float>(to_double(DType::e4m3, code & 0x7F));
  return code == 0xFF ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, code - 127);
}

void require_global_scale(float g, std::string_view name) {
  if (std::isfinite(g) && g >= 0) return;
  throw Error(ErrorKind::usage,
              fmt::format("{} = {}: must be finite and not negative, being part of every block's scale: give "
                          "the largest magnitude of the tensor / 2,688, or any positive number",
                          name, g));
}

float global_scale_of(const TensorView& x) {
  const Matrix m = matrix_of(x);
  float amax = 0;
  for (std::int64_t b = 0; b < m.batch; ++b)
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t k = 0; k < m.k; ++k)
        amax = std::max(
            amax, finite_magnitude(static_cast<float>(x.at(b * m.batch_stride + r * m.row_stride + k * m.k_stride))));
  return amax / (6.0F * kLargestUe4m3);
}

Quantized quantize(const TensorView& x, const QuantizeRule& rule) {
  const Matrix m = matrix_of(x);
  require_blocks(m.k, rule.format);
  require_global_scale(rule.global_scale);
  const int block = block_elements(rule.format);
  const std::int64_t blocks = m.k / block;
  Quantized out;
  out.values.assign(static_cast<std::size_t>(value_bytes(rule.format, m.batch * m.rows * m.k)), 0);
  out.scales.assign(static_cast<std::size_t>(scale_bytes(rule.form, m.batch, m.rows, blocks)), 0);
  std::vector<float> elements(static_cast<std::size_t>(block));
  for (std::int64_t b = 0; b < m.batch; ++b) {
    for (std::int64_t r = 0; r < m.rows; ++r) {
      for (std::int64_t j = 0; j < blocks; ++j) {
        float amax = 0;
        for (int i = 0; i < block; ++i) {
          const std::int64_t at = b * m.batch_stride + r * m.row_stride + (j * block + i) * m.k_stride;
          const auto value = static_cast<float>(x.at(at));
          elements[static_cast<std::size_t>(i)] = value;
          amax = std::max(amax, finite_magnitude(value));
        }
        float divisor = 0;
        out.scales[static_cast<std::size_t>(scale_offset(rule.form, m.rows, blocks, b, r, j))] =
            scale_of(amax, rule, divisor);
        for (int i = 0; i < block; ++i) {
          const std::uint8_t code =
              divisor == 0 ? std::uint8_t{0}
                           : encode_value(value_type(rule.format), elements[static_cast<std::size_t>(i)] / divisor);
          store_value(out.values, rule.format, (b * m.rows + r) * m.k + j * block + i, code);
        }
      }
    }
  }
  return out;
}

Tensor dequantize(std::span<const std::uint8_t> values, std::span<const std::uint8_t> scales, const QuantizeRule& rule,
                  DType dtype, std::int64_t batch, std::int64_t rows, std::int64_t k) {
  require_blocks(k, rule.format);
  require_global_scale(rule.global_scale);
  const int block = block_elements(rule.format);
  require_bytes("values", values.size(), value_bytes(rule.format, batch * rows * k));
  require_bytes("scales", scales.size(), scale_bytes(rule.form, batch, rows, k / block));
  Tensor y(dtype, {batch, rows, k});
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < k; ++i) {
        const auto at = static_cast<std::size_t>(scale_offset(rule.form, rows, k / block, b, r, i / block));
        float factor = decode_scale(scale_type(rule.format), scales[at]);
        if (rule.format == BlockFormat::nvfp4) factor *= rule.global_scale;
        const std::int64_t index = (b * rows + r) * k + i;
        const float value = decode_value(value_type(rule.format), load_value(values, rule.format, index));
        y.set(index, static_cast<double>(value * factor));
      }
    }
  }
  return y;
}

std::vector<std::uint8_t> convert_scales(std::span<const std::uint8_t> scales, ScaleForm from, ScaleForm to,
                                         std::int64_t batch, std::int64_t rows, std::int64_t blocks) {
  require_bytes(from == ScaleForm::plain ? "plain scales" : "scales in tiles", scales.size(),
                scale_bytes(from, batch, rows, blocks));
  std::vector<std::uint8_t> out(static_cast<std::size_t>(scale_bytes(to, batch, rows, blocks)), 0);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < blocks; ++j)
        out[static_cast<std::size_t>(scale_offset(to, rows, blocks, b, r, j))] =
            scales[static_cast<std::size_t>(scale_offset(from, rows, blocks, b, r, j))];
  return out;
}

}  // namespace tessera::reference
