#include "reference/gated_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "reference/parallel.h"

namespace tessera::reference {

namespace {

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
double limited(double x, double low, double high) { return x > high ? high : x < low ? low : x; }  // NaN stays NaN
double activated_gate(const GemmCheck& check, double gate) {
  const double limit = check.facts.gate_limit;
  if (limit > 0) gate = limited(gate, -std::numeric_limits<double>::infinity(), limit);
  if (check.facts.gate_activation == GateActivation::gpt_oss) return gate / (1 + std::exp(-kGptOss * gate));
  return activated(activation_of(check.facts.gate_activation), gate);
}
double factor_of_up(const GemmCheck& check, double up) {
  const double limit = check.facts.gate_limit;
  if (limit > 0) up = limited(up, -limit, limit);
  return check.facts.gate_activation == GateActivation::gpt_oss ? up + 1 : up;
}
Factors factors_of(const GemmCheck& check, double gate, double up) {
  return {activated_gate(check, gate), factor_of_up(check, up)};
}

/// The most that a function which falls to its one least value at `least` and rises from there moves within `error` of
/// x. Far below, and behind a limit, that is much less than its steepest slope makes of the error.
template <class Function>
double moved_by(const Function& function, double x, double error, std::optional<double> least, double steepest) {
  if (!std::isfinite(x) || !std::isfinite(error)) return steepest * error;
  const double at = function(x);
  double most = std::max(std::fabs(function(x - error) - at), std::fabs(function(x + error) - at));
  if (least && std::fabs(*least - x) < error) most = std::max(most, std::fabs(function(*least) - at));
  return std::min(most, steepest * error);
}
/// Where an activated gate is least.
double least_gate(GateActivation gate) {
  switch (gate) {
    case GateActivation::gpt_oss:
      return -1.2784645 / kGptOss;
    case GateActivation::gelu:
      return -0.7517916;
    case GateActivation::gelu_tanh:
      return -0.7524614;
    default:
      return -1.2784645;
  }
}
/// What is made of a sum's error on the average: as the most that is made of the largest, but that a bend within it may
/// come earlier.
double slope_of(double moved, double error, double steepest) {
  return error > 0 ? std::min(steepest, 1.2 * moved / error) : steepest;
}

RowValue gated(const ProductSum& gate, const ProductSum& up, const GatedInputs& in, double bias, double bias_up) {
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
  const double s_moved = moved_by([&](double gate_sum) { return activated_gate(in.check, gate_sum); }, x, x_error,
                                  least_gate(in.check.facts.gate_activation), slope);
  const double y_moved =
      moved_by([&](double sum) { return factor_of_up(in.check, sum); }, up_sum, up_error, std::nullopt, 1);
  // A sigmoid below fp32's normal numbers may be 0.
  const double flushed = is_silu ? 0x1p-126 * (1 + std::fabs(x)) : 0;
  const double s_error = s_moved + of_argument + (is_silu ? 16 * kU * std::fabs(s) : 0) + flushed;
  const double y_error = y_moved + (is_gpt_oss ? kU * std::fabs(y) : 0);
  RowValue v;
  v.value = s * y;
  v.error = std::fabs(y) * s_error + std::fabs(s) * y_error + s_error * y_error + kU * std::fabs(v.value);
  const double of_x = slope_of(s_moved, x_error, slope), of_up_sum = slope_of(y_moved, up_error, 1);
  const double of_gate = of_x * std::fabs(y * in.check.alpha), of_up = of_up_sum * std::fabs(s * in.alpha_up);
  const double roundings = 25 * kU * std::fabs(v.value) + std::fabs(y) * (of_argument + of_x * adding * std::fabs(x)) +
                           std::fabs(s) * of_up_sum * adding * std::fabs(up_sum);
  const double together = of_gate * gate.systematic + of_up * up.systematic;
  v.square = of_gate * of_gate * gate.square + of_up * of_up * up.square + roundings * roundings + together * together;
  return v;
}

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

}  // namespace

void row_values(const GatedInputs& in, std::int64_t batch, std::int64_t row, std::vector<RowValue>& out) {
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
    for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = of_a[i] * (of_b.empty() ? 1 : of_b[i]);
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

ElementSums over_rows(const GatedInputs& in, std::int64_t m, std::int64_t n, const LooksUnwritten& looks_unwritten,
                      std::int64_t& checked, const VisitRow& visit) {
  const std::vector<GatedPlace> places = chosen_places(in, m, n, looks_unwritten);
  std::vector<ElementSums> parts(places.size());
  parallel_for(static_cast<std::int64_t>(places.size()), in.check.jobs, [&](std::int64_t i) {
    std::vector<RowValue> values(static_cast<std::size_t>(n));
    const GatedPlace& place = places[static_cast<std::size_t>(i)];
    row_values(in, place.batch, place.row, values);
    visit(place.batch, place.row, values, parts[static_cast<std::size_t>(i)]);
  });
  ElementSums sums;
  for (const ElementSums& part : parts) sums.merge(part);
  checked = static_cast<std::int64_t>(places.size());
  return sums;
}

Comparison conclude_rows(const ElementSums& sums, const GatedInputs& in, std::int64_t l, std::int64_t m,
                         std::int64_t n) {
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

double gated_value(const GemmCheck& check, double gate, double up) {
  const Factors factors = factors_of(check, gate, up);
  return factors.gate * factors.up;
}

}  // namespace tessera::reference
