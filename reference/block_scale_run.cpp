#include "reference/block_scale_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>

#include "reference/block_scale_causes.h"
#include "reference/gemv.h"
#include "reference/operand_mistakes.h"
#include "reference/scale_padding.h"
#include "tessera/spec/operand_type.h"

namespace tessera::reference {

namespace {

std::span<const std::uint8_t> bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const std::uint8_t*>(tensor.bytes.data()), tensor.bytes.size()};
}

std::vector<std::int64_t> values_shape(const BlockRun& run, std::int64_t rows) {
  return {run.l, rows, value_bytes(run.format, run.k)};
}

std::vector<std::int64_t> scales_shape(ScaleForm form, std::int64_t l, std::int64_t rows, std::int64_t blocks) {
  if (form == ScaleForm::plain) return {l, rows, blocks};
  return {l, ceil_div(rows, kTileRows), ceil_div(blocks, kTileBlocks), 32, 4, 4};
}

Tensor scalar(float value) {
  Tensor tensor(DType::f32, {1});
  std::memcpy(tensor.bytes.data(), &value, 4);
  return tensor;
}

float scalar_of(const Tensor& tensor) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data(), 4);
  return value;
}

Fill fill_of(Range range) {
  return range == Range::uniform    ? Fill::uniform
         : range == Range::integer  ? Fill::integer
         : range == Range::standard ? Fill::standard
                                    : Fill::normal;
}

/// Values of every code; in `integer` whole numbers only.
Tensor random_values(const BlockRun& run, std::int64_t rows, Range range, std::uint64_t stream) {
  static constexpr std::uint8_t kWhole[] = {0, 2, 4, 5, 6, 7, 10, 12, 13, 14, 15};
  const CounterRandom random(run.seed, stream);
  Tensor values(DType::u8, values_shape(run, rows));
  for (std::size_t i = 0; i < values.bytes.size(); ++i) {
    const std::uint64_t bits = random.bits(i);
    const bool is_whole = range == Range::integer && value_bits(run.format) == 4;
    const std::uint64_t byte =
        is_whole ? std::uint64_t{kWhole[bits % 11]} | std::uint64_t{kWhole[(bits >> 32) % 11]} << 4 : bits & 0xFF;
    values.bytes[i] = static_cast<std::byte>(
        range == Range::standard && random.bits(i / 16 + (std::uint64_t{1} << 60)) % 8 == 0 ? 0 : byte);
  }
  return values;
}

/// Scale codes: of a few powers of two around 1 (integer: 0, 1, 2; standard: one in eight 0, or 2^-27 where none is 0),
/// or any code that is not NaN (wide).
std::uint8_t random_scale(ScaleType type, Range range, std::uint64_t bits) {
  static constexpr std::uint8_t kWholeUe4m3[] = {0x00, 0x38, 0x40};
  if (range == Range::integer)
    return type == ScaleType::ue4m3 ? kWholeUe4m3[bits % 3] : static_cast<std::uint8_t>(127 + bits % 2);
  if (range == Range::standard && (bits >> 32) % 8 == 0) return type == ScaleType::ue4m3 ? 0 : 100;
  if (range == Range::wide) return static_cast<std::uint8_t>(type == ScaleType::ue4m3 ? bits % 127 : bits % 255);
  return static_cast<std::uint8_t>(type == ScaleType::ue4m3 ? 0x20 + bits % 40 : 120 + bits % 12);
}

Tensor random_scales(const BlockRun& run, std::int64_t rows, Range range, std::uint64_t stream) {
  const CounterRandom random(run.seed, stream);
  const std::int64_t blocks = run.k / block_elements(run.format);
  Tensor scales(DType::u8, scales_shape(run.form, run.l, rows, blocks));
  fill_scale_padding(scales, scale_type(run.format), run.seed, stream);
  std::uint64_t index = 0;
  for (std::int64_t b = 0; b < run.l; ++b)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < blocks; ++j)
        scales.bytes[static_cast<std::size_t>(scale_offset(run.form, rows, blocks, b, r, j))] =
            static_cast<std::byte>(random_scale(scale_type(run.format), range, random.bits(index++)));
  return scales;
}

/// The given one, or a number that a user might take for g, and in `wide` one of any magnitude.
float random_global_scale(const BlockRun& run, Range range, std::uint64_t stream) {
  if (run.given_scale != 0) return run.given_scale;
  const CounterRandom random(run.seed, stream);
  if (range == Range::integer) return 2;
  const double exponent = range == Range::wide ? 200 * random.uniform(0) - 100 : 10 * random.uniform(0) - 8;
  return static_cast<float>((1 + random.uniform(1)) * std::exp2(std::floor(exponent)));
}

void spread(Tensor& x, const BlockRun& run) {
  const CounterRandom random(run.seed, 77);
  const int block = block_elements(run.format);
  const double low = x.dtype == DType::f16 ? -26 : -150, high = x.dtype == DType::f16 ? 17 : 129;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const auto of_block = static_cast<std::uint64_t>(i / block), of_element = static_cast<std::uint64_t>(i);
    const double exponent = low + (high - low) * random.uniform(of_block * 2 + (std::uint64_t{1} << 40));
    double value = (2 * random.uniform(of_element) - 1) * std::exp2(exponent);
    switch (random.bits(of_element + (std::uint64_t{1} << 41)) % 211) {
      case 0:
        value = std::numeric_limits<double>::quiet_NaN();
        break;
      case 1:
        value = std::numeric_limits<double>::infinity();
        break;
      case 2:
        value = -std::numeric_limits<double>::infinity();
        break;
      case 3:
        value = -0.0;
        break;
      default:
        break;
    }
    if (random.bits(of_block * 2 + (std::uint64_t{1} << 42)) % 23 == 0) value = 0;
    x.set(i, value);
  }
}

/// A number at which values round up or down: of e2m1, or of six bits any two neighbours' middle.
double boundary(ValueType type, std::uint64_t bits) {
  static constexpr double kOfE2m1[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  if (value_bits(type) != 6) return kOfE2m1[bits % 7];
  const auto code = static_cast<std::uint8_t>(bits % 31);
  return static_cast<double>(decode_value(type, code) + decode_value(type, static_cast<std::uint8_t>(code + 1))) / 2;
}

/// Of each block all but the largest element become numbers of x's type next to a boundary, times what the block is
/// divided by. x: normal; g: the factor, or 0 for that of x's maxima.
void move_to_edges(Tensor& x, const BlockRun& run, float g) {
  const CounterRandom random(run.seed, 78);
  if (g == 0) g = global_scale_of(x.view());
  const int size = block_elements(run.format);
  const double least = std::exp2(x.dtype == DType::f16 ? -24 : -149);
  for (std::int64_t first = 0; first < x.elements(); first += size) {
    std::int64_t largest = first;
    for (std::int64_t i = first; i < first + size; ++i)
      if (std::fabs(x.at(i)) > std::fabs(x.at(largest))) largest = i;
    const auto amax = static_cast<float>(std::fabs(x.at(largest)));
    const std::uint8_t code =
        run.format == BlockFormat::nvfp4 ? encode_ue4m3(amax / (6 * g)) : encode_ue8m0(amax, run.format, run.rounding);
    const double unit = static_cast<double>(decode_scale(scale_type(run.format), code) * g);
    for (std::int64_t i = first; i < first + size; ++i) {
      if (i == largest) continue;
      const std::uint64_t bits = random.bits(static_cast<std::uint64_t>(i));
      const double edge = boundary(value_type(run.format), bits) * unit;
      const double step = std::max(2 * unit_roundoff(x.dtype) * std::exp2(std::floor(std::log2(edge))), least);
      x.set(i, (bits >> 8 & 1 ? -1 : 1) * (edge + static_cast<double>(bits >> 16 & 3) * step - step));
    }
  }
}

std::span<const std::uint8_t> span_of(const std::vector<std::uint8_t>& bytes) { return bytes; }

double decode_e2m1(std::uint8_t code) { return static_cast<double>(decode_value(ValueType::e2m1, code)); }
double decode_e4m3(std::uint8_t code) { return static_cast<double>(decode_value(ValueType::e4m3, code)); }
double decode_e5m2(std::uint8_t code) { return static_cast<double>(decode_value(ValueType::e5m2, code)); }
double decode_e3m2(std::uint8_t code) { return static_cast<double>(decode_value(ValueType::e3m2, code)); }
double decode_e2m3(std::uint8_t code) { return static_cast<double>(decode_value(ValueType::e2m3, code)); }
double decode_ue4m3(std::uint8_t code) { return static_cast<double>(decode_scale(ScaleType::ue4m3, code)); }
double decode_ue8m0(std::uint8_t code) { return static_cast<double>(decode_scale(ScaleType::ue8m0, code)); }

CodeTensor values_of(const BlockRun& run, std::span<const std::uint8_t> bytes) {
  const ValueType type = value_type(run.format);
  return {bytes,
          run.l,
          run.rows,
          run.k,
          value_bits(run.format),
          ScaleForm::plain,
          type == ValueType::e2m1   ? decode_e2m1
          : type == ValueType::e4m3 ? decode_e4m3
          : type == ValueType::e3m2 ? decode_e3m2
          : type == ValueType::e2m3 ? decode_e2m3
                                    : decode_e5m2};
}

CodeTensor scales_of(const BlockRun& run, std::int64_t blocks, std::span<const std::uint8_t> bytes) {
  const bool is_ue4m3 = scale_type(run.format) == ScaleType::ue4m3;
  return {bytes, run.l, run.rows, blocks, 8, run.form, is_ue4m3 ? decode_ue4m3 : decode_ue8m0};
}

std::vector<Suspect> joined(std::vector<Suspect> first, std::vector<Suspect> second) {
  std::move(second.begin(), second.end(), std::back_inserter(first));
  return first;
}

QuantizeRule rule_of(const BlockRun& run, float g) { return {run.format, run.form, run.rounding, g}; }

/// Values and scales from a wrong place, a global scale that does not count.
std::vector<Suspect> dequantize_suspects(const BlockRun& run, const Tensors& inputs, float g) {
  const auto source =
      std::make_shared<OperandSource>(OperandSource{operand_type(run.format), inputs.at("values").view(),
                                                    std::as_bytes(bytes_of(inputs.at("scales"))), run.form, run.k});
  const auto guess = [=, dtype = run.dtype](const Coordinates& at, const Mistake* mistake, float factor) {
    const Place place{at[0], at[1], at[2]};
    const double value = mistake != nullptr && mistake->value ? mistake->value(*source, place)
                                                              : source->value(place.matrix, place.row, place.k);
    const double scale =
        mistake != nullptr && mistake->scale
            ? mistake->scale(*source, place)
            : source->scale_at(source->scale_place(place.matrix, place.row, place.k / source->block()));
    const double y = value * scale * static_cast<double>(factor);
    return Guess{y, 2 * unit_roundoff(dtype) * std::fabs(y) + half_subnormal(dtype)};
  };
  std::vector<Suspect> list;
  if (g != 1)
    list.push_back(
        {"the global scale does not count (taken as 1)", [=](const Coordinates& at) { return guess(at, nullptr, 1); }});
  ProductSteps steps;
  steps.step = 1024;
  steps.chunk = 32;
  for (Mistake& mistake : operand_mistakes(*source, steps, 0)) {
    std::string cause = fmt::format(fmt::runtime(mistake.text), "the input");
    list.push_back({std::move(cause),
                    [=, mistake = std::move(mistake)](const Coordinates& at) { return guess(at, &mistake, g); }});
  }
  return list;
}

}  // namespace

Tensors quantize_inputs(const BlockRun& run, Range range) {
  Tensors all;
  Tensor x(run.dtype, {run.l, run.rows, run.k});
  if (range == Range::wide) {
    spread(x, run);
  } else {
    fill(x, fill_of(range), run.seed, 0);
  }
  const float g = run.global_scale == GlobalScale::given ? random_global_scale(run, range, 1) : 1;
  if (range == Range::edge) move_to_edges(x, run, run.global_scale == GlobalScale::amax ? 0 : g);
  all.emplace("x", std::move(x));
  if (run.global_scale == GlobalScale::given) all.emplace("global_scale", scalar(g));
  return all;
}

Comparison check_quantize(const BlockRun& run, const Tensors& inputs, const Tensors& outputs) {
  const TensorView x = inputs.at("x").view();
  const float g = run.global_scale == GlobalScale::none    ? 1
                  : run.global_scale == GlobalScale::given ? scalar_of(inputs.at("global_scale"))
                                                           : global_scale_of(x);
  Comparison result;
  result.rows_checked = result.rows_total = run.l * run.rows;
  if (run.global_scale == GlobalScale::amax) {
    const float found = scalar_of(outputs.at("global_scale"));
    if (std::memcmp(&found, &g, sizeof g) != 0)
      result.problems.push_back(fmt::format("global_scale: found {}, expected {} (the largest magnitude / 2,688){}",
                                            found, g, std::isnan(found) ? ": never written" : ""));
  }
  const QuantizeRule rule = rule_of(run, g);
  const Quantized expected = quantize(x, rule);
  const CodeTensor values = values_of(run, span_of(expected.values));
  const CodeTensor scales = scales_of(run, run.k / block_elements(run.format), span_of(expected.scales));
  const auto found_scales = scales_of(run, scales.columns, bytes_of(outputs.at("scales")));
  compare_codes("scales", found_scales, scales, "block", joined(moved_scales(scales), rules_of_scales(x, rule)),
                result);
  compare_codes("values", values_of(run, bytes_of(outputs.at("values"))), values, "k",
                joined(moved_values(values), rules_of_values(x, rule)), result);
  result.pass = result.problems.empty();
  return result;
}

Tensors dequantize_inputs(const BlockRun& run, Range range) {
  Tensors all;
  all.emplace("values", random_values(run, run.rows, range, 2));
  all.emplace("scales", random_scales(run, run.rows, range, 3));
  if (run.global_scale == GlobalScale::given) all.emplace("global_scale", scalar(random_global_scale(run, range, 1)));
  return all;
}

Comparison check_dequantize(const BlockRun& run, const Tensors& inputs, const Tensors& outputs) {
  const float g = run.global_scale == GlobalScale::given ? scalar_of(inputs.at("global_scale")) : 1;
  const Tensor expected = dequantize(bytes_of(inputs.at("values")), bytes_of(inputs.at("scales")), rule_of(run, g),
                                     run.dtype, run.l, run.rows, run.k);
  const Tensor& found = outputs.at("y");
  Comparison result;
  result.rows_checked = result.rows_total = run.l * run.rows;
  ElementSums sums;
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    const bool are_nan = std::isnan(expected.at(i)) && std::isnan(found.at(i));
    Element element{.at = {i / run.k / run.rows, i / run.k % run.rows, i % run.k}};
    if (!are_nan && expected.view().bits_at(i) != found.view().bits_at(i)) {
      element.found = found.at(i);
      element.expected = expected.at(i);
      element.bound = -1;
    }
    sums.add(element);
  }
  if (sums.mismatched == 0) return result;
  result.problems.push_back(describe_mismatches(
      "y", sums, {{"matrix", run.l, {}}, {"row", run.rows, {8, 32, 128}}, {"k", run.k, {2, 16, 32, 64}}}));
  if (std::string cause = likely_cause(sums.mismatches, dequantize_suspects(run, inputs, g)); !cause.empty())
    result.problems.push_back(std::move(cause));
  result.rel_error = sums.rel_error();
  result.max_abs_error = sums.max_abs_error;
  result.cosine = sums.cosine();
  result.pass = false;
  return result;
}

Tensors convert_scales_inputs(const BlockRun& run) {
  const ScaleForm from = run.form == ScaleForm::plain ? ScaleForm::tile : ScaleForm::plain;
  const CounterRandom random(run.seed, 4);
  Tensor scales(DType::u8, scales_shape(from, run.l, run.rows, run.k));
  for (std::size_t i = 0; i < scales.bytes.size(); ++i)
    scales.bytes[i] = static_cast<std::byte>(1 + random.bits(i) % 255);  // 0 is what padding becomes
  Tensors all;
  all.emplace("from", std::move(scales));
  return all;
}

Comparison check_convert_scales(const BlockRun& run, const Tensors& inputs, const Tensors& outputs) {
  const ScaleForm from = run.form == ScaleForm::plain ? ScaleForm::tile : ScaleForm::plain;
  Comparison result;
  result.rows_checked = result.rows_total = run.l * run.rows;
  const auto right = convert_scales(bytes_of(inputs.at("from")), from, run.form, run.l, run.rows, run.k);
  const CodeTensor expected = scales_of(run, run.k, span_of(right));
  compare_codes("to", scales_of(run, run.k, bytes_of(outputs.at("to"))), expected, "block", moved_scales(expected),
                result);
  result.pass = result.problems.empty();
  return result;
}

namespace {

/// Values of 8 bits that a sum tells something about: no NaN and no infinity but, where `has_nan`, one code in 4,096;
/// in `integer` whole numbers up to 4.
void make_summable(Tensor& values, const BlockRun& run, Range range, bool has_nan) {
  if (value_bits(run.format) == 4) return;
  const bool is_e4m3 = value_type(run.format) == ValueType::e4m3;
  static constexpr std::uint8_t kWholeE4m3[] = {0x00, 0x38, 0x40, 0x44, 0x48},
                                kWholeE5m2[] = {0x00, 0x3C, 0x40, 0x42, 0x44};
  const CounterRandom random(run.seed, 9);
  for (std::size_t i = 0; i < values.bytes.size(); ++i) {
    auto code = static_cast<std::uint8_t>(values.bytes[i]);
    if (range == Range::integer) {
      code = static_cast<std::uint8_t>((is_e4m3 ? kWholeE4m3 : kWholeE5m2)[(code & 0x7F) % 5] | (code & 0x80));
    } else if (is_e4m3 ? (code & 0x7F) == 0x7F : (code & 0x7F) >= 0x7C) {
      if (!has_nan || random.bits(i) % 32 != 0) code = static_cast<std::uint8_t>(code & (is_e4m3 ? 0xF7 : 0xBB));
    }
    values.bytes[i] = static_cast<std::byte>(code);
  }
}

/// Powers of two up to 2^40 and down to 2^-40: products of two, and sums of what they scale, are fp32 numbers. Codes of
/// padding stay as they are.
void make_moderate(Tensor& scales) {
  for (std::byte& byte : scales.bytes) {
    const auto code = static_cast<std::uint8_t>(byte);
    if (code != 0xFF) byte = static_cast<std::byte>(87 + code % 81);
  }
}

}  // namespace

Tensors gemv_inputs(const BlockRun& run, Range range) {
  Tensors all;
  BlockRun of_b = run;
  of_b.format = run.b_format.value_or(run.format);
  all.emplace("a", random_values(run, run.rows, range, 5));
  all.emplace("sfa", random_scales(run, run.rows, range, 6));
  all.emplace("b", random_values(of_b, run.b_rows, range, 7));
  all.emplace("sfb", random_scales(of_b, run.b_rows, range, 8));
  make_summable(all["a"], run, range, range == Range::wide);
  make_summable(all["b"], of_b, range, false);
  for (const char* const scales : {"sfa", "sfb"})
    if (range == Range::wide && scale_type(run.format) == ScaleType::ue8m0) make_moderate(all[scales]);
  const bool is_one = range == Range::integer;
  all.emplace("a_global_scale", scalar(is_one ? 1 : 0.75F));
  all.emplace("b_global_scale", scalar(is_one ? 1 : 0.0625F));
  return all;
}

Comparison check_gemv(const BlockRun& run, const Tensors& inputs, const Tensors& outputs, double alpha) {
  GemvOperands operands{bytes_of(inputs.at("a")),
                        bytes_of(inputs.at("sfa")),
                        bytes_of(inputs.at("b")),
                        bytes_of(inputs.at("sfb")),
                        run.format,
                        run.b_format.value_or(run.format),
                        run.form,
                        run.l,
                        run.rows,
                        run.k,
                        run.b_rows,
                        alpha};
  for (const char* const name : {"a_global_scale", "b_global_scale"})
    operands.factor *= static_cast<double>(scalar_of(inputs.at(name)));
  return check_gemv(operands, outputs.at("c").view());
}

}  // namespace tessera::reference
