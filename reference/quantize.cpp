#include "reference/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

/// The magnitudes of a type without NaN and infinity, by code.
std::span<const float> magnitudes(ValueType type) {
  static constexpr auto of_six_bits = [](int mantissa_bits, int bias) {
    std::array<float, 32> sizes{};
    for (int code = 0; code < 32; ++code) {
      const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
      const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      sizes[static_cast<std::size_t>(code)] =
          std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - bias - mantissa_bits);
    }
    return sizes;
  };
  static const std::array<float, 32> e3m2 = of_six_bits(2, 3), e2m3 = of_six_bits(3, 1);
  if (type == ValueType::e2m1) return kE2m1Sizes;
  return type == ValueType::e3m2 ? e3m2 : e2m3;
}

bool has_nan(ValueType type) { return value_bits(type) == 8; }

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

std::uint8_t load_code(std::span<const std::uint8_t> values, int bits, std::int64_t index) {
  const std::int64_t first = index * bits;
  const auto byte = static_cast<std::size_t>(first / 8);
  unsigned two = values[byte];
  if (first % 8 + bits > 8) two |= static_cast<unsigned>(values[byte + 1]) << 8;
  return static_cast<std::uint8_t>(two >> (first % 8) & ((1U << bits) - 1));
}

void store_code(std::span<std::uint8_t> values, int bits, std::int64_t index, std::uint8_t code) {
  const std::int64_t first = index * bits;
  const auto byte = static_cast<std::size_t>(first / 8);
  const unsigned mask = ((1U << bits) - 1) << (first % 8), field = static_cast<unsigned>(code) << (first % 8);
  values[byte] = static_cast<std::uint8_t>((values[byte] & ~mask) | (field & mask));
  if (first % 8 + bits > 8)
    values[byte + 1] = static_cast<std::uint8_t>((values[byte + 1] & ~(mask >> 8)) | field >> 8);
}

std::uint8_t encode_value(ValueType type, float value) {
  if (has_nan(type)) {
    const DType dtype = type == ValueType::e4m3 ? DType::e4m3 : DType::e5m2;
    if (std::isnan(value)) return 0x7F;
    const float most = type == ValueType::e4m3 ? 448.0F : 57344.0F;
    return static_cast<std::uint8_t>(from_double(dtype, static_cast<double>(std::clamp(value, -most, most))));
  }
  const std::span<const float> sizes = magnitudes(type);
  if (std::isnan(value)) return static_cast<std::uint8_t>(sizes.size() - 1);
  const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? sizes.size() : 0);
  const float magnitude = std::fabs(value);
  // The first code that is not below, or the one before it: the nearer one, between both the even one.
  const auto above = std::lower_bound(sizes.begin(), sizes.end(), magnitude);
  auto code = static_cast<std::size_t>(std::min(above - sizes.begin(), std::ssize(sizes) - 1));
  if (code > 0) {
    const float middle = (sizes[code - 1] + sizes[code]) / 2;
    if (magnitude < middle || (magnitude == middle && code % 2 != 0)) --code;
  }
  return static_cast<std::uint8_t>(sign | code);
}

float decode_value(ValueType type, std::uint8_t code) {
  if (has_nan(type)) return static_cast<float>(to_double(type == ValueType::e4m3 ? DType::e4m3 : DType::e5m2, code));
  const std::span<const float> sizes = magnitudes(type);
  const float size = sizes[code & (sizes.size() - 1)];
  return (code & sizes.size()) != 0 ? -size : size;
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
          store_code(out.values, value_bits(rule.format), (b * m.rows + r) * m.k + j * block + i, code);
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
        const float value = decode_value(value_type(rule.format), load_code(values, value_bits(rule.format), index));
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
