#include "reference/gemm_gated.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "reference/d_factors.h"
#include "reference/gated_rows.h"
#include "reference/likely_cause.h"
#include "reference/number.h"
#include "reference/parallel.h"
#include "reference/poison.h"
#include "reference/quantize.h"

namespace tessera::reference {

namespace {

using Value = RowValue;

double at(const TensorView& view, std::int64_t batch, std::int64_t row, std::int64_t column) {
  return view.at(batch * view.strides[0] + row * view.strides[1] + column * view.strides[2]);
}

double step_of(ValueType type, double magnitude) {
  if (type == ValueType::e2m1) return magnitude < 2 ? 0.5 : magnitude < 4 ? 1 : 2;
  const int bits = type == ValueType::e4m3 ? 3 : 2, least = type == ValueType::e4m3 ? -6 : -14;
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), least) : least;
  return std::exp2(exponent - bits);
}

std::uint8_t encode_scale(BlockFormat format, double g, double amax) {
  if (format == BlockFormat::nvfp4) return encode_ue4m3(static_cast<float>(amax) / (6 * static_cast<float>(g)));
  return encode_ue8m0(static_cast<float>(amax), format, ScaleRounding::up);
}

/// What quantize makes of a row whose values are exact.
Quantized quantized_row(const std::vector<Value>& values, BlockFormat format, double g) {
  Tensor row(DType::f32, {1, 1, static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) row.set(static_cast<std::int64_t>(i), values[i].value);
  return quantize(row.view(), {format, ScaleForm::plain, ScaleRounding::up, static_cast<float>(g)});
}

/// One block of a quantised row. A result that is NaN or infinite is what quantize makes of one: NaN does not count for
/// the scale and has a code of its own, infinity counts as fp32's largest number and becomes the format's.
struct BlockCheck {
  BlockFormat format;
  double g;

  static constexpr double kLargestFloat = static_cast<double>(std::numeric_limits<float>::max());
  static bool is_finite(const Value& v) { return std::fabs(v.value) <= kLargestFloat; }

  /// The scale as it counts, or nothing if no block within the bounds gives it.
  std::optional<double> scale(std::span<const Value> block, std::uint8_t code) const {
    double low = 0, high = 0;
    for (const Value& v : block) {
      if (std::isnan(v.value)) continue;
      if (!is_finite(v)) {
        low = high = kLargestFloat;
        continue;
      }
      low = std::max(low, std::fabs(v.value) - v.error);
      high = std::max(high, std::fabs(v.value) + v.error);
    }
    if (code < encode_scale(format, g, low) || code > encode_scale(format, g, high)) return std::nullopt;
    return static_cast<double>(decode_scale(scale_type(format), code)) * (format == BlockFormat::nvfp4 ? g : 1);
  }
  Element element(const Value& v, std::uint8_t code, double scale) const {
    const ValueType type = value_type(format);
    Element e;
    if (!is_finite(v)) {  // codes are compared: the number that a NaN becomes may be one
      constexpr float kBeyond = std::numeric_limits<float>::infinity();
      const float value = std::isnan(v.value) ? std::numeric_limits<float>::quiet_NaN()
                          : v.value > 0       ? kBeyond
                                              : -kBeyond;
      const std::uint8_t wanted = scale == 0 ? std::uint8_t{0} : encode_value(type, value);
      if (code != wanted) {
        e.found = code;
        e.expected = wanted;
      }
      return e;
    }
    e.found = static_cast<double>(decode_value(type, code)) * scale;
    const double most = static_cast<double>(largest_value(format)) * scale;
    e.expected = std::clamp(v.value, -most, most);
    const double half = scale == 0 ? 0 : step_of(type, (std::fabs(e.expected) + v.error) / scale) / 2 * scale;
    e.bound = 1.0001 * half + v.error;
    e.expected_square = half * half + v.square;
    return e;
  }
};

/// What the scale of a block counts as.
using ScaleOf = std::function<double(std::int64_t batch, std::int64_t row, std::int64_t block)>;

/// Blocks that hold right numbers of other columns.
std::vector<Suspect> moved_columns(const GatedInputs& in, const BlockCheck& check, std::int64_t n,
                                   const ScaleOf& scale_of) {
  using RowsByPlace = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Value>>;
  const auto rows = std::make_shared<RowsByPlace>();
  std::vector<Suspect> list;
  const auto add = [&](std::string cause, std::function<std::int64_t(std::int64_t)> from) {
    list.push_back({std::move(cause), [=, from = std::move(from)](const Coordinates& at) {
                      const std::int64_t column = from(at[2]);
                      if (column < 0 || column >= n) return Guess{std::numeric_limits<double>::infinity(), -1};
                      std::vector<Value>& values = (*rows)[{at[0], at[1]}];
                      if (values.empty()) {
                        values.resize(static_cast<std::size_t>(n));
                        row_values(in, at[0], at[1], values);
                      }
                      const double scale = scale_of(at[0], at[1], at[2] / block_elements(check.format));
                      const Element e = check.element(values[static_cast<std::size_t>(column)], 0, scale);
                      return Guess{e.expected, e.bound};
                    }});
  };
  for (const std::int64_t distance : {2, 4, -2})
    add(fmt::format("columns of d are rotated within each eight: column c holds what belongs to c {} {}: of another "
                    "thread in the quad",
                    distance > 0 ? '+' : '-', std::abs(distance)),
        [=](std::int64_t c) { return c / 8 * 8 + (c + 8 + distance) % 8; });
  for (std::int64_t distance = 1; distance <= 128; distance *= 2) {
    add(fmt::format("column c of d holds what belongs to column c ^ {}", distance),
        [=](std::int64_t c) { return c ^ distance; });
    for (const std::int64_t sign : {1, -1})
      add(fmt::format("column c of d holds what belongs to column c {} {}", sign > 0 ? '+' : '-', distance),
          [=](std::int64_t c) { return c + sign * distance; });
  }
  return list;
}

}  // namespace

Tensor rows_in_turn(const Tensor& b, int interleave, bool is_up) {
  const std::int64_t n = b.shape[1] / 2, k = b.shape[2];
  Tensor rows(DType::f64, {b.shape[0], n, k});
  for (std::int64_t i = 0; i < b.shape[0] * n; ++i) {
    const std::int64_t row = i % n;
    const std::int64_t from = row / interleave * 2 * interleave + row % interleave + (is_up ? interleave : 0);
    std::memcpy(rows.bytes.data() + i * k * 8, b.bytes.data() + (i / n * b.shape[1] + from) * k * 8,
                static_cast<std::size_t>(k) * 8);
  }
  return rows;
}

Tensor rows_of_dual(const TensorView& gate, const TensorView& up, double factor_up) {
  const std::int64_t l = gate.shape[0], n = gate.shape[1], k = gate.shape[2];
  Tensor rows(DType::f64, {l, 2 * n, k});
  auto* out = reinterpret_cast<double*>(rows.bytes.data());
  const auto append = [&](const TensorView& from, std::int64_t row, double factor) {
    for (std::int64_t j = 0; j < k; ++j)
      *out++ = from.at(row / n * from.strides[0] + row % n * from.strides[1] + j * from.strides[2]) * factor;
  };
  for (std::int64_t row = 0; row < l * n; ++row) {
    append(gate, row, 1);
    append(up, row, factor_up);
  }
  return rows;
}

Tensor bias_in_turn(const TensorView& bias, int interleave, bool is_up) {
  Tensor half(DType::f64, {bias.shape[0] / 2});
  for (std::int64_t i = 0; i < half.shape[0]; ++i) {
    const std::int64_t from = i / interleave * 2 * interleave + i % interleave + (is_up ? interleave : 0);
    half.set(i, bias.at(from * bias.strides[0]));
  }
  return half;
}

Comparison check_gated(const GatedInputs& in, const TensorView& d) {
  if (in.check.sfd) return check_d_factors(in, d);
  const std::int64_t l = d.shape[0], m = d.shape[1], n = d.shape[2];
  std::int64_t checked = 0;
  const ElementSums sums = over_rows(
      in, m, n, {}, checked,
      [&](std::int64_t batch, std::int64_t row, const std::vector<Value>& values, ElementSums& part) {
        for (std::int64_t column = 0; column < n; ++column) {
          const Value& v = values[static_cast<std::size_t>(column)];
          Element e;
          e.at = {batch, row, column, 0, 0};
          e.found = at(d, batch, row, column);
          e.expected = v.value;
          const double rounding = unit_roundoff(d.dtype) * (std::fabs(v.value) + v.error) + half_subnormal(d.dtype);
          e.bound = 1.01 * (v.error + rounding);
          e.expected_square = v.square + rounding * rounding;
          const double rounded = to_double(d.dtype, from_double(d.dtype, v.value));
          if (std::isinf(rounded) && rounded == e.found) e.expected = e.found = 0;
          // 8-bit types stop at their largest number.
          if (dtype_bytes(d.dtype) == 1) {
            const double largest = d.dtype == DType::e4m3 ? 448 : 57344;
            e.expected = std::clamp(e.expected, -largest, largest);
          }
          if (std::isnan(e.expected) && std::isnan(e.found)) e = {.at = e.at};
          part.add(e);
        }
      });
  Comparison result = conclude_rows(sums, in, l, m, n);
  const PoisonCount poison = count_poisoned(d);
  if (poison.poisoned > 0)
    result.problems.push_back(fmt::format("d: {} of {} elements were never written, the first is element {}",
                                          poison.poisoned, element_count(d.shape), poison.first));
  if (in.check.judges_rel_error && !(result.rel_error <= result.rel_bound))
    result.problems.push_back(fmt::format(
        "d: relative error {:.3g} over all checked rows, at most {:.3g} is explained by independent roundings",
        result.rel_error, result.rel_bound));
  result.rows_checked = checked;
  result.rows_total = l * m;
  result.pass = result.problems.empty();
  return result;
}

namespace {

/// [l, rows, columns] in float64, a row of `from` for so many rows of it.
Tensor unfolded(const TensorView& from, std::int64_t rows, std::int64_t of_one) {
  const auto [l, columns] = std::array{from.shape[0], from.shape[2]};
  Tensor all(DType::f64, {l, rows, columns});
  for (std::int64_t i = 0; i < l * rows; ++i)
    for (std::int64_t c = 0; c < columns; ++c) all.set(i * columns + c, at(from, i / rows, i % rows / of_one, c));
  return all;
}

Comparison check_gated_rows(const GemmInputs& inputs, const TensorView& d, const GemmCheck& check) {
  const std::int64_t n = inputs.b.shape[1];
  const Tensor b = unfolded(inputs.b, n, 1);
  const Tensor gate = rows_in_turn(b, check.gate_turn(), false), up = rows_in_turn(b, check.gate_turn(), true);
  GatedInputs in{.product = inputs, .up = up.view(), .check = check, .alpha_up = check.alpha};
  in.product.b = gate.view();
  Tensor bias, bias_up;
  if (inputs.bias) {
    bias = bias_in_turn(*inputs.bias, check.gate_turn(), false);
    bias_up = bias_in_turn(*inputs.bias, check.gate_turn(), true);
    in.product.bias = bias.view();
    in.bias_up = bias_up.view();
  }
  Tensor factors, of_gate, of_up;
  if (inputs.sfb) {
    factors = unfolded(inputs.sfb->factors, n, inputs.sfb->rows);
    of_gate = rows_in_turn(factors, check.gate_turn(), false);
    of_up = rows_in_turn(factors, check.gate_turn(), true);
    in.product.sfb = BlockFactors{of_gate.view(), 1};
    in.up_factors = BlockFactors{of_up.view(), 1};
  }
  return check_gated(in, d);
}

}  // namespace

Comparison check_plain_or_gated(const GemmInputs& inputs, const TensorView& d, const GemmCheck& check,
                                const std::vector<OtherOperands>& others) {
  Comparison result = check.gate_turn() > 0 ? check_gated_rows(inputs, d, check)
                      : check.sfd           ? check_d_factors({.product = inputs, .up = {}, .check = check}, d)
                                            : check_gemm(inputs, d, check);
  const bool has_cause = std::any_of(result.problems.begin(), result.problems.end(),
                                     [](const std::string& problem) { return problem.starts_with("likely cause"); });
  if (result.mismatches.empty() || check.sums || has_cause) return result;
  std::string cause = likely_cause(result.mismatches, gemm_suspects(inputs, check, d.dtype, others));
  if (!cause.empty()) result.problems.push_back(std::move(cause));
  return result;
}

Comparison check_quantized_product(const GatedInputs& in, BlockFormat format, double g, const TensorView& d,
                                   std::span<const std::byte> scales) {
  const std::int64_t l = d.shape[0], m = d.shape[1], n = d.shape[2] * 8 / value_bits(format);
  const int size = block_elements(format);
  const std::int64_t blocks = n / size;
  const BlockCheck check{format, g};
  const auto scale_code = [&](std::int64_t batch, std::int64_t row, std::int64_t block) {
    return static_cast<std::uint8_t>(
        scales[static_cast<std::size_t>(scale_offset(ScaleForm::tile, m, blocks, batch, row, block))]);
  };
  const auto counted_scale = [&](std::int64_t batch, std::int64_t row, std::int64_t block) {
    return static_cast<double>(decode_scale(scale_type(format), scale_code(batch, row, block))) *
           (format == BlockFormat::nvfp4 ? g : 1);
  };
  // No scale's code is the poison, and no fp8 value's. 16 e2m1 values of -6, which are stored together, may be.
  const auto looks_unwritten = [&](std::int64_t batch, std::int64_t row) {
    for (std::int64_t block = 0; block < blocks; ++block)
      if (scale_code(batch, row, block) == kPoisonByte) return true;
    const std::int64_t unit = value_bits(format) == 8 ? 1 : 8, first = batch * d.strides[0] + row * d.strides[1];
    for (std::int64_t at = 0; at + unit <= d.shape[2]; at += unit)
      if (std::all_of(d.data + first + at, d.data + first + at + unit,
                      [](std::byte byte) { return byte == std::byte{kPoisonByte}; }))
        return true;
    return false;
  };
  std::int64_t checked = 0;
  const ElementSums sums = over_rows(
      in, m, n, looks_unwritten, checked,
      [&](std::int64_t batch, std::int64_t row, const std::vector<Value>& values, ElementSums& part) {
        const bool is_exact = in.check.is_exact && !in.up;
        const Quantized exact = is_exact ? quantized_row(values, format, g) : Quantized{};
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::span<const Value> of_block(values.data() + block * size, static_cast<std::size_t>(size));
          const std::uint8_t code = scale_code(batch, row, block);
          const std::optional<double> scale = check.scale(of_block, code);
          for (int i = 0; i < size; ++i) {
            const std::int64_t column = block * size + i;
            const std::int64_t place = batch * d.strides[0] + row * d.strides[1] + column * value_bits(format) / 8;
            const auto byte = static_cast<std::uint8_t>(d.bits_at(place));
            const auto value = static_cast<std::uint8_t>(value_bits(format) == 8 ? byte
                                                         : column % 2 == 0       ? byte & 15
                                                                                 : byte >> 4);
            const double counted = scale ? *scale : counted_scale(batch, row, block);
            Element e = check.element(of_block[static_cast<std::size_t>(i)], value, counted);
            const auto stored = static_cast<std::size_t>(column * value_bits(format) / 8);
            const bool has_exact_bits =
                !is_exact || (exact.values[stored] == byte && exact.scales[static_cast<std::size_t>(block)] == code);
            if (!scale || !has_exact_bits) e.bound = -1;  // a scale that is wrong makes its block wrong
            e.at = {batch, row, column, 0, 0};
            part.add(e);
          }
        }
      });
  Comparison result = conclude_rows(sums, in, l, m, n);
  std::string cause = likely_cause(result.mismatches, moved_columns(in, check, n, counted_scale));
  if (!cause.empty()) result.problems.push_back(std::move(cause));
  std::int64_t padding = 0;
  for (std::int64_t batch = 0; batch < l; ++batch)
    for (std::int64_t row = 0; row < round_up(m, kTileRows); ++row)
      for (std::int64_t block = 0; block < round_up(blocks, kTileBlocks); ++block)
        if (row >= m || block >= blocks) padding += scale_code(batch, row, block) != 0 ? 1 : 0;
  if (padding > 0) result.problems.push_back(fmt::format("sfd: {} bytes of padding are not 0", padding));
  result.rows_checked = checked;
  result.rows_total = l * m;
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
