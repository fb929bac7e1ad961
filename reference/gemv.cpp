#include "reference/gemv.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "reference/product_suspects.h"
#include "reference/quantize.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

constexpr double kFp32Roundoff = 0x1p-24;

void require_bytes(const char* what, std::size_t found, std::int64_t wanted) {
  if (static_cast<std::int64_t>(found) != wanted)
    throw Error(ErrorKind::usage, fmt::format("{}: {} bytes given, {} needed", what, found, wanted));
}

double value_at(BlockFormat format, std::span<const std::uint8_t> values, std::int64_t index) {
  if (value_bits(format) == 8)
    return static_cast<double>(decode_value(value_type(format), values[static_cast<std::size_t>(index)]));
  const int byte = values[static_cast<std::size_t>(index / 2)];
  return static_cast<double>(
      decode_value(ValueType::e2m1, static_cast<std::uint8_t>(index % 2 == 0 ? byte & 0xF : byte >> 4)));
}

double scale_at(BlockFormat format, std::span<const std::uint8_t> scales, std::int64_t offset) {
  return static_cast<double>(decode_scale(scale_type(format), scales[static_cast<std::size_t>(offset)]));
}

bool has_exact_blocks(const GemvOperands& o) { return value_bits(o.format) == 4 && value_bits(o.b_format) == 4; }
std::int64_t block_of(const GemvOperands& o) { return block_elements(o.format); }

/// Additions that one block's sum goes through: a lane's sums (at most two of each 1,024 elements), five halvings of
/// the lanes and at most eight warps; three factors and one rounding of them. Where sums over a block round: a lane's
/// 32 elements of it, and the product of its scales.
double chain_length(const GemvOperands& o) {
  const std::int64_t of_block = has_exact_blocks(o) ? 0 : 32;
  return static_cast<double>(2 * ceil_div(o.k, 1024) + 5 + 8 + 4 + of_block);
}

/// A row's bytes as [l, rows, bytes].
OperandSource source_of(BlockFormat format, std::span<const std::uint8_t> values, std::span<const std::uint8_t> scales,
                        const GemvOperands& o, std::int64_t rows) {
  const std::int64_t of_row = value_bytes(format, o.k);
  const TensorView view{
      reinterpret_cast<const std::byte*>(values.data()), DType::u8, {o.l, rows, of_row}, {rows * of_row, of_row, 1}};
  return {operand_type(format), view, std::as_bytes(scales), o.form, o.k};
}

/// Mistakes of a product whose lanes take 16 bytes of each 512.
std::string cause_of(const GemvOperands& o, const std::vector<Mismatch>& mismatches, DType dtype) {
  ProductSuspectInputs in;
  in.a = source_of(o.format, o.a, o.sfa, o, o.m);
  in.b = source_of(o.b_format, o.b, o.sfb, o, o.b_rows);
  in.row_of_b = [](std::int64_t, bool) { return 0; };
  in.rows = o.m;
  in.columns = 1;
  in.steps.bits = value_bits(o.format);
  in.steps.chunk = 128 / in.steps.bits;
  in.steps.step = 32 * in.steps.chunk;
  const auto times = [](double factor) { return [=](double sum, double, const Coordinates&) { return factor * sum; }; };
  in.finishes.push_back({"", times(o.factor)});
  if (o.factor != 1) in.finishes.push_back({"alpha and the global scales do not count (taken as 1)", times(1)});
  const double roundoff = unit_roundoff(dtype), least = half_subnormal(dtype), factor = std::fabs(o.factor);
  in.slack = [=](double result, double magnitude) {
    return 2 * roundoff * std::fabs(result) + 1e-5 * factor * magnitude + least;
  };
  return likely_cause(mismatches, product_suspects(in));
}

void require_sizes(const GemvOperands& o) {
  const std::int64_t blocks = o.k / block_of(o);
  require_bytes("a", o.a.size(), o.l * o.m * value_bytes(o.format, o.k));
  require_bytes("sfa", o.sfa.size(), scale_bytes(o.form, o.l, o.m, blocks));
  require_bytes("b", o.b.size(), o.l * o.b_rows * value_bytes(o.b_format, o.k));
  require_bytes("sfb", o.sfb.size(), scale_bytes(o.form, o.l, o.b_rows, blocks));
}

/// b of one batch, scaled.
std::vector<double> vector_of(const GemvOperands& o, std::int64_t batch) {
  std::vector<double> b(static_cast<std::size_t>(o.k));
  for (std::int64_t i = 0; i < o.k; ++i)
    b[static_cast<std::size_t>(i)] =
        value_at(o.b_format, o.b, batch * o.b_rows * o.k + i) *
        scale_at(o.b_format, o.sfb, scale_offset(o.form, o.b_rows, o.k / block_of(o), batch, 0, i / block_of(o)));
  return b;
}

/// Of a row of A with b, and the same of the magnitudes of what is rounded: blocks, or products.
struct RowSum {
  double sum = 0;
  double magnitude = 0;
};

RowSum sum_of_row(const GemvOperands& o, std::int64_t batch, std::int64_t row, const std::vector<double>& b) {
  const std::int64_t size = block_of(o), blocks = o.k / size;
  const bool has_exact = has_exact_blocks(o);
  RowSum all;
  for (std::int64_t j = 0; j < blocks; ++j) {
    double block = 0, magnitude = 0;
    for (std::int64_t i = j * size; i < (j + 1) * size; ++i) {
      const double product = value_at(o.format, o.a, (batch * o.m + row) * o.k + i) * b[static_cast<std::size_t>(i)];
      block += product;
      magnitude += std::fabs(product);
    }
    const double scale = scale_at(o.format, o.sfa, scale_offset(o.form, o.m, blocks, batch, row, j));
    all.sum += block * scale;
    all.magnitude += std::fabs((has_exact ? block : magnitude) * scale);
  }
  return all;
}

/// What is above the type's largest number is an infinity there, and a NaN is as good as another.
bool agrees_beyond_numbers(DType dtype, double expected, double found) {
  const double rounded = to_double(dtype, from_double(dtype, expected));
  return (std::isinf(rounded) && rounded == found) || (std::isnan(expected) && std::isnan(found));
}

/// Each addition of the chain rounds in fp32, the result in the type of c.
Element judged(const GemvOperands& o, const RowSum& row, double found, DType dtype) {
  const double chain = chain_length(o), factor = std::fabs(o.factor);
  const double roundoff = unit_roundoff(dtype);
  Element element;
  element.found = found;
  element.expected = row.sum * o.factor;
  element.bound = 1.01 * chain * kFp32Roundoff * row.magnitude * factor +
                  roundoff * std::fabs(element.expected) * 1.01 + half_subnormal(dtype);
  element.expected_square = std::pow(roundoff * element.expected, 2) / 3 +
                            chain * std::pow(kFp32Roundoff * row.magnitude * factor, 2) +
                            std::pow(half_subnormal(dtype), 2);
  if (agrees_beyond_numbers(dtype, element.expected, found))
    element.found = element.expected = element.bound = element.expected_square = 0;
  return element;
}

ElementSums judged_elements(const GemvOperands& o, const TensorView& c) {
  ElementSums sums;
  for (std::int64_t batch = 0; batch < o.l; ++batch) {
    const std::vector<double> b = vector_of(o, batch);
    for (std::int64_t row = 0; row < o.m; ++row) {
      const double found = c.at(batch * c.strides[0] + row * c.strides[1]);
      Element element = judged(o, sum_of_row(o, batch, row, b), found, c.dtype);
      element.at = {batch, row, 0};
      sums.add(element);
    }
  }
  return sums;
}

}  // namespace

Comparison check_gemv(const GemvOperands& o, const TensorView& c) {
  require_sizes(o);
  const ElementSums sums = judged_elements(o, c);
  Comparison result;
  result.rel_error = sums.rel_error();
  result.rel_bound = sums.rel_bound();
  result.max_abs_error = sums.max_abs_error;
  result.cosine = sums.cosine();
  result.rows_checked = result.rows_total = o.l * o.m;
  if (sums.mismatched > 0) {
    result.problems.push_back(describe_mismatches("c", sums, {{"l", o.l, {}}, {"m", o.m, {4, 8, 32, 128}}}));
    result.mismatches = sums.mismatches;
    if (std::string cause = cause_of(o, sums.mismatches, c.dtype); !cause.empty()) result.problems.push_back(cause);
  }
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
