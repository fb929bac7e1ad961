#include "reference/gemm_gated.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <vector>

#include "reference/likely_cause.h"
#include "reference/number.h"
#include "reference/parallel.h"
#include "reference/poison.h"
#include "reference/quantize.h"

namespace tessera::reference {

namespace {

struct Value {
  double value = 0, error = 0, square = 0;
};

double at(const TensorView& view, std::int64_t batch, std::int64_t row, std::int64_t column) {
  return view.at(batch * view.strides[0] + row * view.strides[1] + column * view.strides[2]);
}

void read_row(const TensorView& view, std::int64_t batch, std::int64_t row, std::vector<double>& out) {
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = at(view, batch, row, static_cast<std::int64_t>(k));
}

Activation activation_of(GateActivation gate) {
  return gate == GateActivation::gelu        ? Activation::gelu
         : gate == GateActivation::gelu_tanh ? Activation::gelu_tanh
                                             : Activation::silu;
}

constexpr double kGptOss = 1.702;

/// The activated gate, and what up is multiplied as.
struct Factors {
  double gate = 0, up = 0;
};
Factors factors_of(const GemmCheck& check, double gate, double up) {
  const double limit = check.facts.gate_limit;
  if (limit > 0) {  // NaN stays NaN
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
  }
  if (check.facts.gate_activation == GateActivation::gpt_oss) return {gate / (1 + std::exp(-kGptOss * gate)), up + 1};
  return {activated(activation_of(check.facts.gate_activation), gate), up};
}

Value gated(const ProductSum& gate, const ProductSum& up, const GatedInputs& in, double bias, double bias_up) {
  const double scaled = in.check.alpha * gate.value, scaled_up = in.alpha_up * up.value;
  const double x = scaled + bias, up_sum = scaled_up + bias_up;
  const double adding = in.product.bias ? kU : 0;  // rounds once
  const double x_error = std::fabs(in.check.alpha) * gate.bound + 4 * kU * std::fabs(scaled) + adding * std::fabs(x);
  const double up_error =
      std::fabs(in.alpha_up) * up.bound + 4 * kU * std::fabs(scaled_up) + adding * std::fabs(up_sum);
  const auto [s, y] = factors_of(in.check, x, up_sum);
  const bool is_gpt_oss = in.check.facts.gate_activation == GateActivation::gpt_oss;
  const bool is_silu = in.check.facts.gate_activation == GateActivation::silu || is_gpt_oss;
  const double slope = is_silu ? 1.1 : 1.13;
  const double argument = in.check.facts.gate_limit > 0 ? std::min<double>(x, in.check.facts.gate_limit) : x;
  // Beside what is in proportion to the result.
  const double of_argument = is_gpt_oss ? kU * std::fabs(argument)
                             : is_silu  ? 0
                                        : activation_error(activation_of(in.check.facts.gate_activation), argument);
  const double s_error = slope * x_error + of_argument + (is_silu ? 16 * kU * std::fabs(s) + 0x1p-126 : 0);
  const double y_error = up_error + (is_gpt_oss ? kU * std::fabs(y) : 0);
  Value v;
  v.value = s * y;
  v.error = std::fabs(y) * s_error + std::fabs(s) * y_error + s_error * y_error + kU * std::fabs(v.value);
  const double of_gate = slope * std::fabs(y * in.check.alpha), of_up = std::fabs(s * in.alpha_up);
  const double roundings = 25 * kU * std::fabs(v.value) + std::fabs(y) * (of_argument + slope * adding * std::fabs(x)) +
                           std::fabs(s) * adding * std::fabs(up_sum);
  const double together = of_gate * gate.systematic + of_up * up.systematic;
  v.square = of_gate * of_gate * gate.square + of_up * of_up * up.square + roundings * roundings + together * together;
  return v;
}

/// All values of one row of d.
void row_values(const GatedInputs& in, std::int64_t batch, std::int64_t row, std::vector<Value>& out) {
  const auto k = static_cast<std::size_t>(in.product.a.shape[2]);
  std::vector<double> a(k), b(k);
  read_row(in.product.a, batch, row, a);
  std::vector<double> of_a, of_b, factors;
  const auto read_factors = [&](const std::optional<BlockFactors>& of, std::int64_t from, std::vector<double>& to) {
    if (!of) return;
    to.resize(static_cast<std::size_t>(of->factors.shape[2]));
    read_row(of->factors, batch, from / of->rows, to);
  };
  read_factors(in.product.sfa, row, of_a);
  const auto sum_of = [&](const TensorView& view, const std::optional<BlockFactors>& of_view, std::size_t column) {
    read_row(view, batch, static_cast<std::int64_t>(column), b);
    read_factors(of_view, static_cast<std::int64_t>(column), of_b);
    factors.resize(of_a.size());
    for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = of_a[i] * of_b[i];
    return product_sum(a.data(), b.data(), static_cast<std::int64_t>(k), in.product.a.dtype, in.check, factors);
  };
  for (std::size_t column = 0; column < out.size(); ++column) {
    const ProductSum sum = sum_of(in.product.b, in.product.sfb, column);
    const auto n = static_cast<std::int64_t>(column);
    const auto of_column = [&](const std::optional<TensorView>& bias) {
      return bias ? bias->at(n * bias->strides[0]) : 0;
    };
    if (in.up) {
      out[column] =
          gated(sum, sum_of(*in.up, in.up_factors, column), in, of_column(in.product.bias), of_column(in.bias_up));
      continue;
    }
    const double c = in.product.c && in.check.beta != 0 ? at(*in.product.c, batch, row, n) : 0;
    const Element element = product_element(sum, c, of_column(in.product.bias), in.check);
    out[column] = {element.expected, in.check.is_exact ? 0 : element.bound, element.expected_square};
  }
}

/// Whether a row of d looks as it did before the launch.
using LooksUnwritten = std::function<bool(std::int64_t batch, std::int64_t row)>;

/// Rows that are checked: all, or the first and last, those at tiles' edges and others evenly spread.
std::vector<std::int64_t> chosen_rows(const GatedInputs& in, std::int64_t m, std::int64_t n) {
  const std::int64_t l = in.product.a.shape[0], k = std::max<std::int64_t>(in.product.a.shape[2], 1);
  const std::int64_t cost = std::max<std::int64_t>(n * k * l * (in.up ? 2 : 1), 1);
  const std::int64_t budget = std::max<std::int64_t>(in.check.max_multiply_adds / cost, 8);
  std::set<std::int64_t> rows;
  for (std::int64_t i = 0; i < std::min(budget, m); ++i) rows.insert(budget >= m ? i : i * m / budget);
  for (std::int64_t edge = in.check.tile_m; edge < m && static_cast<std::int64_t>(rows.size()) < 2 * budget;
       edge += in.check.tile_m) {
    rows.insert(edge - 1);
    rows.insert(edge);
  }
  if (m > 0) rows.insert(m - 1);
  return {rows.begin(), rows.end()};
}

struct GatedPlace {
  std::int64_t batch = 0, row = 0;
};

/// The chosen rows of every matrix, and of the others those that look unwritten, the first kMostUnwritten.
std::vector<GatedPlace> chosen_places(const GatedInputs& in, std::int64_t m, std::int64_t n,
                                      const LooksUnwritten& looks_unwritten) {
  constexpr int kMostUnwritten = 64;
  const std::vector<std::int64_t> rows = chosen_rows(in, m, n);
  std::vector<GatedPlace> places;
  int unwritten = 0;
  for (std::int64_t batch = 0; batch < in.product.a.shape[0]; ++batch) {
    for (const std::int64_t row : rows) places.push_back({batch, row});
    if (!looks_unwritten || static_cast<std::int64_t>(rows.size()) == m) continue;
    for (std::int64_t row = 0; row < m && unwritten < kMostUnwritten; ++row) {
      if (std::binary_search(rows.begin(), rows.end(), row) || !looks_unwritten(batch, row)) continue;
      places.push_back({batch, row});
      ++unwritten;
    }
  }
  return places;
}

/// visit(batch, row, values, sums) for every row that is checked, on several threads; sums in the order of rows.
template <class Visit>
ElementSums over_rows(const GatedInputs& in, std::int64_t m, std::int64_t n, const LooksUnwritten& looks_unwritten,
                      std::int64_t& checked, Visit visit) {
  const std::vector<GatedPlace> places = chosen_places(in, m, n, looks_unwritten);
  std::vector<ElementSums> parts(places.size());
  parallel_for(static_cast<std::int64_t>(places.size()), in.check.jobs, [&](std::int64_t i) {
    std::vector<Value> values(static_cast<std::size_t>(n));
    const GatedPlace& place = places[static_cast<std::size_t>(i)];
    row_values(in, place.batch, place.row, values);
    visit(place.batch, place.row, values, parts[static_cast<std::size_t>(i)]);
  });
  ElementSums sums;
  for (const ElementSums& part : parts) sums.merge(part);
  checked = static_cast<std::int64_t>(places.size());
  return sums;
}

Comparison conclude(const ElementSums& sums, const GatedInputs& in, std::int64_t l, std::int64_t m, std::int64_t n) {
  Comparison result;
  if (sums.mismatched > 0)
    result.problems.push_back(describe_mismatches("d", sums,
                                                  {{"matrix", l, {}},
                                                   {"row", m, {8, 16, 32, 64, in.check.tile_m}},
                                                   {"column", n, {2, 8, 16, 32, 64, in.check.tile_n}}},
                                                  Accumulator::tensor_memory));
  result.mismatches = sums.mismatches;
  result.rel_error = sums.rel_error();
  result.rel_bound = sums.rel_bound();
  result.max_abs_error = sums.max_abs_error;
  result.cosine = sums.cosine();
  return result;
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

double gated_value(const GemmCheck& check, double gate, double up) {
  const Factors factors = factors_of(check, gate, up);
  return factors.gate * factors.up;
}

Comparison check_gated(const GatedInputs& in, const TensorView& d) {
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
  Comparison result = conclude(sums, in, l, m, n);
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
  Comparison result = check.gate_turn() == 0 ? check_gemm(inputs, d, check) : check_gated_rows(inputs, d, check);
  if (result.mismatches.empty() || check.sums) return result;
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
            const double counted = scale ? *scale
                                         : static_cast<double>(decode_scale(scale_type(format), code)) *
                                               (format == BlockFormat::nvfp4 ? g : 1);
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
  Comparison result = conclude(sums, in, l, m, n);
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
