// Parts of attention joined in float64, and how wrong a right merge may be.
//
// Notation: u = 2^-24, T parts, w_i = exp(lse_i - M) with M the largest lse_i, d_i = M - lse_i, W = sum w_i plus the
// sink's exp(sink - M).
//
//  1. An exponent is a difference of logarithms (u of it) times log2(e) (2u): 3 u of the difference, in natural units.
//     Where the largest one moves, sums are multiplied by ex2 of one more difference; those on the way of part i add up
//     to d_i, and there are T of them at most. ex2.approx errs by 2.1 * 2^-23 (fmha_bound.h), a product by u:
//     eps_i = 3 u d_i + (T + 1) (2.1 * 2^-23 + u). Results below 2^-126 flush.
//  2. Sums: T u of their magnitudes.
//  3. One division and one product: 2 u. A quotient below 2^-126 may be 0. Then the output's rounding.
// lse: what the sum errs by, relatively; lg2.approx 2.8e-7 (of log2), one product, one sum.
//
// Parts whose lse is -inf do not count, whatever they hold; a NaN anywhere else makes its row, or element, NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "reference/comparison.h"
#include "reference/parallel.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "tessera/error.h"

namespace tessera::reference {

/// o_parts [parts, batch, seqlen_q, heads_q, head_dim_v], lse_parts [parts, batch, heads_q, seqlen_q].
struct MergeSizes {
  std::int64_t parts = 0, batch = 1, heads_q = 1, seqlen_q = 0, head_dim_v = 0;
};

/// lse of part i of a row of one of eight kinds: what merges get wrong shows in one of them.
inline double standard_lse(const CounterRandom& random, std::int64_t row, std::int64_t part, std::int64_t parts) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const auto index = static_cast<std::uint64_t>(row * parts + part);
  const double normal = random.normal(index);
  switch (random.integer(static_cast<std::uint64_t>(row) + (std::uint64_t{1} << 40), 0, 7)) {
    case 0:
      return 3 + normal;
    case 1:  // one of them has nearly all
      return normal + (part == row % parts ? 100 : 0);
    case 2:  // exponents are small differences of large numbers
      return 5000 + normal;
    case 3:
      return -5000 + normal;
    case 4:  // nobody saw a key
      return kNone;
    case 5:  // some did
      return part % 2 == row % 2 ? kNone : normal;
    case 6:  // each moves the largest one
      return 5 * static_cast<double>(part) + normal;
    default:  // the last alone did
      return part + 1 == parts ? normal : kNone;
  }
}

/// o_parts, lse_parts, and sink if wanted. Where lse is -inf, o is NaN.
inline std::map<std::string, Tensor> merge_inputs(const MergeSizes& s, DType dtype, bool has_sink, Fill kind,
                                                  std::uint64_t seed) {
  std::map<std::string, Tensor> made;
  Tensor o(dtype, {s.parts, s.batch, s.seqlen_q, s.heads_q, s.head_dim_v});
  Tensor lse(DType::f32, {s.parts, s.batch, s.heads_q, s.seqlen_q});
  fill(o, kind == Fill::standard ? Fill::normal : kind, seed, 0);
  const CounterRandom random(seed, 1);
  const std::int64_t rows = s.batch * s.heads_q * s.seqlen_q;
  const std::int64_t row_bytes = s.head_dim_v * dtype_bytes(dtype);
  for (std::int64_t i = 0; i < s.parts * rows; ++i) {
    const std::int64_t part = i / rows, row = i % rows;
    const auto index = static_cast<std::uint64_t>(i);
    double value = random.normal(index);
    if (kind == Fill::standard) value = standard_lse(random, row, part, s.parts);
    if (kind == Fill::uniform) value = 2 * random.uniform(index) - 1;
    if (kind == Fill::integer) value = random.integer(index, 0, 3) == 0 ? -std::numeric_limits<double>::infinity() : 0;
    lse.set(i, value);
    if (!std::isinf(value)) continue;
    const std::int64_t batch = row / (s.heads_q * s.seqlen_q), head = row / s.seqlen_q % s.heads_q;
    const std::int64_t place = ((part * s.batch + batch) * s.seqlen_q + row % s.seqlen_q) * s.heads_q + head;
    std::memset(o.bytes.data() + place * row_bytes, 0xFF, static_cast<std::size_t>(row_bytes));
  }
  made.emplace("o_parts", std::move(o));
  made.emplace("lse_parts", std::move(lse));
  if (has_sink) {
    Tensor sink(DType::f32, {s.heads_q});
    if (kind != Fill::integer) fill(sink, Fill::normal, seed, 2);
    if (s.heads_q > 1) sink.set(1, -std::numeric_limits<double>::infinity());
    made.emplace("sink", std::move(sink));
  }
  return made;
}

struct MergeOperands {
  TensorView o_parts, lse_parts;
  std::optional<TensorView> sink{};
};
struct MergeOutputs {
  TensorView o;  ///< [batch, seqlen_q, heads_q, head_dim_v]
  std::optional<TensorView> lse{};
};

namespace merge_detail {

constexpr double kU = 0x1p-24, kEx2 = 2.1 * 0x1p-23, kFlush = 0x1p-126, kSecondOrder = 1.01;

/// Weights of a row, how much each may err, and what follows for its sum.
struct Weights {
  std::vector<double> weight, error;  ///< error: relative
  double maximum = -std::numeric_limits<double>::infinity();
  double sum = 0, sum_error = 0;      ///< without the sink
  double whole = 0, whole_error = 0;  ///< with it
  bool is_nan = false;
};

inline Weights weights_of(const std::vector<double>& lse, std::optional<double> sink) {
  Weights w;
  const auto parts = static_cast<double>(lse.size());
  for (const double value : lse) {
    if (std::isnan(value) || value == std::numeric_limits<double>::infinity()) w.is_nan = true;
    w.maximum = std::fmax(w.maximum, value);
  }
  for (const double value : lse) {
    const double distance = std::isinf(value) ? 0 : w.maximum - value;
    w.weight.push_back(std::isinf(value) ? 0 : std::exp(-distance));
    w.error.push_back(3 * kU * distance + (parts + 1) * (kEx2 + kU) + parts * kU);
    w.sum += w.weight.back();
    w.sum_error += w.weight.back() * w.error.back() + kFlush;
  }
  w.whole = w.sum;
  w.whole_error = w.sum_error;
  if (sink && !std::isinf(*sink)) {
    // The larger of both is 1, so that nothing here overflows.
    const double distance = *sink - (std::isinf(w.maximum) ? 0 : w.maximum);
    const double of_parts = std::exp(-std::fmax(distance, 0)), share = std::exp(std::fmin(distance, 0));
    for (double& weight : w.weight) weight *= of_parts;
    w.whole = w.sum * of_parts + share;
    w.whole_error = w.sum_error * of_parts + share * (3 * kU * std::fabs(distance) + kEx2 + kU);
  }
  return w;
}

/// What is above the type's largest number is an infinity there, and a NaN is as good as another.
inline bool agrees_beyond_numbers(DType dtype, double expected, double found) {
  const double rounded = to_double(dtype, from_double(dtype, expected));
  return (std::isinf(rounded) && rounded == found) || (std::isnan(expected) && std::isnan(found));
}

inline Element judged_o(const Weights& w, const std::vector<double>& values, double found, DType dtype) {
  double sum = 0, magnitude = 0, error = 0, unweighted = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += w.weight[i] * values[i];
    magnitude += w.weight[i] * std::fabs(values[i]);
    error += w.weight[i] * std::fabs(values[i]) * w.error[i];
    unweighted += std::fabs(values[i]);
  }
  Element element;
  element.found = found;
  const double whole = w.whole > 0 ? w.whole : 1;
  element.expected = w.is_nan ? std::numeric_limits<double>::quiet_NaN() : sum / whole;
  const double value = std::fabs(element.expected);
  const double rest =
      kSecondOrder * (error / whole + value * (w.whole_error / whole + 2 * kU)) + kFlush * (1 + unweighted + magnitude);
  const double roundoff = unit_roundoff(dtype);
  element.bound = rest + roundoff * (value + rest) + half_subnormal(dtype);
  element.expected_square = roundoff * roundoff * value * value + rest * rest + std::pow(half_subnormal(dtype), 2);
  if (agrees_beyond_numbers(dtype, element.expected, found)) return {};
  return element;
}

inline Element judged_lse(const Weights& w, double found) {
  Element element;
  element.found = found;
  if (w.is_nan && std::isnan(found)) return {};
  const double logarithm = std::log(w.sum);
  element.expected = std::isinf(w.maximum) ? w.maximum : w.maximum + logarithm;
  if (std::isinf(w.maximum)) return element;
  element.bound = kSecondOrder * w.sum_error / w.sum + std::numbers::ln2 * 2.8e-7 + 3 * kU * std::fabs(logarithm) +
                  kU * std::fabs(element.expected);
  element.expected_square = element.bound * element.bound;
  return element;
}

}  // namespace merge_detail

/// Every element is compared. Throws Error{usage} for shapes that do not fit each other.
inline Comparison check_merge(const MergeOperands& in, const MergeOutputs& out, int jobs = 0) {
  using namespace merge_detail;
  const std::vector<std::int64_t>& shape = in.o_parts.shape;
  if (shape.size() != 5 || in.lse_parts.shape != std::vector{shape[0], shape[1], shape[3], shape[2]} ||
      out.o.shape != std::vector(shape.begin() + 1, shape.end()))
    throw Error(ErrorKind::usage, "o_parts, lse_parts and o must have shapes that fit each other");
  const std::int64_t parts = shape[0], batch = shape[1], queries = shape[2], heads = shape[3], columns = shape[4];
  ElementSums o_sums, lse_sums;
  std::vector<std::pair<ElementSums, ElementSums>> pieces(static_cast<std::size_t>(batch * queries));
  parallel_for(batch * queries, jobs, [&](std::int64_t piece) {
    const std::int64_t b = piece / queries, query = piece % queries;
    auto& [o, lse] = pieces[static_cast<std::size_t>(piece)];
    std::vector<double> logarithms(static_cast<std::size_t>(parts)), values(logarithms.size());
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto offset = [&](const TensorView& view, std::initializer_list<std::int64_t> at) {
        std::int64_t sum = 0;
        std::size_t axis = 0;
        for (const std::int64_t index : at) sum += index * view.strides[axis++];
        return sum;
      };
      for (std::int64_t i = 0; i < parts; ++i)
        logarithms[static_cast<std::size_t>(i)] = in.lse_parts.at(offset(in.lse_parts, {i, b, head, query}));
      const Weights weights =
          weights_of(logarithms, in.sink ? std::optional(in.sink->at(head * in.sink->strides[0])) : std::nullopt);
      for (std::int64_t column = 0; column < columns; ++column) {
        for (std::int64_t i = 0; i < parts; ++i) {
          const bool is_none = logarithms[static_cast<std::size_t>(i)] == -std::numeric_limits<double>::infinity();
          values[static_cast<std::size_t>(i)] =
              is_none ? 0 : in.o_parts.at(offset(in.o_parts, {i, b, query, head, column}));
        }
        Element element = judged_o(weights, values, out.o.at(offset(out.o, {b, query, head, column})), out.o.dtype);
        element.at = {b, query, head, column, 0};
        o.add(element);
      }
      if (!out.lse) continue;
      Element element = judged_lse(weights, out.lse->at(offset(*out.lse, {b, head, query})));
      element.at = {b, head, query, 0, 0};
      lse.add(element);
    }
  });
  for (const auto& [o, lse] : pieces) {
    o_sums.merge(o);
    lse_sums.merge(lse);
  }
  Comparison result;
  result.rel_error = o_sums.rel_error();
  result.rel_bound = o_sums.rel_bound();
  result.max_abs_error = o_sums.max_abs_error;
  result.cosine = o_sums.cosine();
  result.rows_checked = result.rows_total = batch * queries * heads;
  result.mismatches = o_sums.mismatches;
  if (o_sums.mismatched > 0)
    result.problems.push_back(describe_mismatches(
        "o", o_sums,
        {{"batch", batch, {}}, {"seqlen_q", queries, {8}}, {"heads_q", heads, {}}, {"head_dim_v", columns, {4, 8}}}));
  if (lse_sums.mismatched > 0)
    result.problems.push_back(describe_mismatches(
        "lse", lse_sums, {{"batch", batch, {}}, {"heads_q", heads, {}}, {"seqlen_q", queries, {8}}}));
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
