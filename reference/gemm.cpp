#include "reference/gemm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "reference/number.h"
#include "reference/parallel.h"
#include "reference/poison.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

constexpr std::int64_t kPromotedLength = 128;

struct Sizes {
  std::int64_t l = 0, m = 0, n = 0, k = 0;
};

Sizes sizes_of(const GemmInputs& in, const TensorView& d) {
  const auto demand = [](bool holds, const TensorView& view, const char* name) {
    if (!holds)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: shape [{}] does not fit the other tensors (a [l, m, k], b [l, n, k], "
                              "c and d [l, m, n], bias [n])",
                              name, fmt::join(view.shape, ", ")));
  };
  demand(in.a.shape.size() == 3, in.a, "a");
  demand(in.b.shape.size() == 3 && in.b.shape[0] == in.a.shape[0] && in.b.shape[2] == in.a.shape[2], in.b, "b");
  const Sizes s{in.a.shape[0], in.a.shape[1], in.b.shape[1], in.a.shape[2]};
  const std::vector<std::int64_t> of_d{s.l, s.m, s.n};
  demand(d.shape == of_d, d, "d");
  if (in.c) demand(in.c->shape == of_d, *in.c, "c");
  if (in.bias) demand(in.bias->shape == std::vector<std::int64_t>{s.n}, *in.bias, "bias");
  const auto demand_factors = [&](const std::optional<BlockFactors>& of, std::int64_t extent, const char* name) {
    if (!of) return;
    const std::vector<std::int64_t> shape{s.l, (extent + of->rows - 1) / of->rows,
                                          (s.k + kPromotedLength - 1) / kPromotedLength};
    demand(of->factors.shape == shape, of->factors, name);
  };
  demand_factors(in.sfa, s.m, "sfa");
  demand_factors(in.sfb, s.n, "sfb");
  return s;
}

/// How the tensor cores sum; see the head of gemm.h.
struct SumRules {
  std::int64_t group = 16, terms = 17;
  double term = 0x1p-25, sum = 0x1p-23;
  std::int64_t step = 64;    // elements of k in one
  std::int64_t restart = 0;  // 0: never
  bool is_integer = false;

  SumRules(DType dtype, const GemmCheck& check) {
    if (check.sums) {
      group = check.sums->group;
      terms = check.sums->terms;
      term = check.sums->term;
      sum = check.sums->sum;
      step = check.sums->step;
      is_integer = check.sums->is_integer;
      return;
    }
    if (dtype_bytes(dtype) == 2) return;
    group = 32;
    terms = 33;
    term = sum = 0x1p-13;
    step = 128;
    if (check.facts.accumulation == Accumulation::promoted) restart = kPromotedLength;
  }
};

using Sum = ProductSum;

/// Products k0 <= k < k1, as a chain of groups; behind those that are summed already.
Sum chain(const double* a, const double* b, std::int64_t k0, std::int64_t k1, const SumRules& rules, bool is_exact,
          Sum s = {}) {
  for (std::int64_t first = k0; first < k1; first += rules.group) {
    const std::int64_t last = std::min(k1, first + rules.group);
    double of_group = 0, largest = 0;
    for (std::int64_t k = first; k < last; ++k) {
      const double product = a[k] * b[k];
      of_group += product;
      largest = std::max(largest, std::fabs(product));
    }
    const double before = std::fabs(s.value) + s.bound;
    s.value += of_group;
    if (is_exact) continue;
    const double top = std::max(largest, before);
    const double result = std::max(top, std::fabs(s.value) + s.bound);
    // The accumulator is a term too: it is cut where a product is larger.
    s.bound += static_cast<double>(rules.terms) * rules.term * top + rules.sum * result;
    s.systematic += rules.sum * result + rules.term * top;
    s.square += static_cast<double>(rules.terms - 1) * rules.term * rules.term * top * top;
  }
  return s;
}

void add_in_fp32(Sum& to, const Sum& part, bool is_exact) {
  to.value += part.value;
  to.bound += part.bound;
  to.systematic += part.systematic;
  to.square += part.square;
  if (is_exact) return;
  const double rounding = kU * (std::fabs(to.value) + to.bound);
  to.bound += rounding;
  to.square += rounding * rounding;
}

/// The sum modulo 2^32 as s32, then as fp32.
Sum integer_product(const double* a, const double* b, std::int64_t size, bool is_exact) {
  double sum = 0;
  for (std::int64_t k = 0; k < size; ++k) sum += a[k] * b[k];
  Sum s;
  s.value = sum - 0x1p32 * std::floor((sum + 0x1p31) / 0x1p32);
  if (is_exact) return s;
  s.bound = kU * std::fabs(s.value);
  s.square = s.bound * s.bound;
  return s;
}

/// Times a factor that is the product of two, rounded.
void multiply(Sum& sum, double factor, bool is_exact) {
  const double size = std::fabs(factor), rounding = is_exact ? 0 : kU * size + 0x1p-149;
  const double of_rounding = rounding * (std::fabs(sum.value) + sum.bound);
  sum.value *= factor;
  sum.bound = size * sum.bound + of_rounding;
  sum.systematic *= size;
  sum.square = size * size * sum.square + of_rounding * of_rounding;
}

/// `factors`: of each 128 of k, or empty.
Sum product(const double* a, const double* b, std::int64_t size, const SumRules& rules, const GemmCheck& check,
            std::span<const double> factors = {}) {
  if (rules.is_integer) return integer_product(a, b, size, check.is_exact);
  const std::int64_t steps = (size + rules.step - 1) / rules.step;
  Sum all;
  for (std::int64_t part = 0; part < check.split_k; ++part) {
    const auto begin_of = [&](std::int64_t i) {
      return std::min(size, (steps / check.split_k * i + std::min(steps % check.split_k, i)) * rules.step);
    };
    const std::int64_t begin = begin_of(part), end = begin_of(part + 1);
    if (check.k_groups > 1 || (check.sums && !factors.empty())) {
      for (int group = 0; group < check.k_groups; ++group) {
        Sum of_group;
        for (std::int64_t k = begin + group * rules.step; k < end; k += check.k_groups * rules.step) {
          const std::int64_t last = std::min(end, k + rules.step);
          if (factors.empty()) {
            of_group = chain(a, b, k, last, rules, check.is_exact, of_group);
            continue;
          }
          Sum of_step = chain(a, b, k, last, rules, check.is_exact);
          multiply(of_step, factors[static_cast<std::size_t>(k / kPromotedLength)], check.is_exact);
          add_in_fp32(of_group, of_step, check.is_exact);
        }
        add_in_fp32(all, of_group, check.is_exact);
      }
      continue;
    }
    if (rules.restart == 0) {
      const Sum of_part = chain(a, b, begin, end, rules, check.is_exact);
      if (check.split_k == 1) return of_part;
      add_in_fp32(all, of_part, check.is_exact);
      continue;
    }
    Sum of_part;
    for (std::int64_t k = begin; k < end; k += rules.restart) {
      Sum of_block = chain(a, b, k, std::min(end, k + rules.restart), rules, check.is_exact);
      if (!factors.empty()) multiply(of_block, factors[static_cast<std::size_t>(k / rules.restart)], check.is_exact);
      add_in_fp32(of_part, of_block, check.is_exact);
    }
    add_in_fp32(all, of_part, check.is_exact);
  }
  return all;
}

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::e4m3:
      return 448;
    case DType::e5m2:
      return 57344;
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.FEp127;
    default:
      return 0x1.FFFFFEp127;
  }
}

/// Adds, activates and rounds the sum of one place.
Element finish(const Sum& sum, double c, double bias, const GemmCheck& check, DType dtype, double found) {
  const double scaled = check.alpha * sum.value, added = check.beta * c;
  const double x = scaled + added + bias;
  const double roundings =
      check.is_exact ? 0
                     : kU * (4 * std::fabs(scaled) + 2 * std::fabs(added) + std::fabs(scaled + added) + std::fabs(x));
  constexpr double kSlope = 1.13;
  const double factor = std::fabs(check.alpha) * (check.facts.activation == Activation::none ? 1.0 : kSlope);
  const double own = activation_error(check.facts.activation, x);
  const double before = std::fabs(check.alpha) * sum.bound + roundings;
  Element e;
  e.found = found;
  e.expected = activated(check.facts.activation, x);
  const double largest = largest_of(dtype);
  const double error = (check.facts.activation == Activation::none ? before : kSlope * before) + own;
  const double rounding = unit_roundoff(dtype) * (std::fabs(e.expected) + error) + half_subnormal(dtype);
  e.bound = 1.01 * (error + rounding);
  const double independent = factor * factor * sum.square + roundings * roundings + own * own;
  const double together = factor * sum.systematic;
  e.expected_square = independent + together * together + std::pow(unit_roundoff(dtype) * e.expected, 2) +
                      std::pow(half_subnormal(dtype), 2);
  // Past the largest number 8-bit types stop, the others become infinite.
  if (dtype_bytes(dtype) == 1) {
    e.expected = std::clamp(e.expected, -largest, largest);
  } else if (std::isinf(found) && std::fabs(e.expected) * (1 + unit_roundoff(dtype)) + error >= largest &&
             std::signbit(found) == std::signbit(e.expected)) {
    e.expected = found;
  }
  return e;
}

struct BatchRows {
  std::int64_t batch = 0;
  std::vector<std::int64_t> rows;
};

std::vector<BatchRows> choose_rows(const Sizes& s, const GemmCheck& check) {
  std::vector<BatchRows> chosen;
  if (s.l == 0 || s.m == 0 || s.n == 0) return chosen;
  const double row_cost = static_cast<double>(s.n) * static_cast<double>(std::max<std::int64_t>(s.k, 1));
  const auto budget =
      static_cast<std::int64_t>(std::min(1e15, static_cast<double>(check.max_multiply_adds) / row_cost));
  const CounterRandom random(check.seed, 0x6E44);
  std::set<std::int64_t> batches{0, s.l - 1};
  const std::int64_t num_batches = std::clamp<std::int64_t>(budget / 8, 2, s.l);
  for (std::uint64_t i = 0; static_cast<std::int64_t>(batches.size()) < std::min(num_batches, s.l); ++i)
    batches.insert(num_batches == s.l ? static_cast<std::int64_t>(i) : random.integer(i, 0, s.l - 1));
  const auto per_batch = std::clamp<std::int64_t>(budget / static_cast<std::int64_t>(batches.size()), 4, s.m);
  std::uint64_t counter = 1 << 20;
  for (const std::int64_t batch : batches) {
    std::set<std::int64_t> rows{0, s.m - 1};
    if (per_batch == s.m) {
      for (std::int64_t row = 0; row < s.m; ++row) rows.insert(row);
    } else {
      for (std::int64_t edge = check.tile_m; edge < s.m && static_cast<std::int64_t>(rows.size()) + 2 < per_batch;
           edge += check.tile_m) {
        rows.insert(edge - 1);
        rows.insert(edge);
      }
      while (static_cast<std::int64_t>(rows.size()) < std::min(per_batch, s.m))
        rows.insert(random.integer(counter++, 0, s.m - 1));
    }
    chosen.push_back({batch, {rows.begin(), rows.end()}});
  }
  return chosen;
}

void read_row(const TensorView& view, std::int64_t batch, std::int64_t row, std::vector<double>& out) {
  const std::int64_t offset = batch * view.strides[0] + row * view.strides[1];
  for (std::size_t k = 0; k < out.size(); ++k)
    out[k] = view.at(offset + static_cast<std::int64_t>(k) * view.strides[2]);
}

double at(const TensorView& view, std::int64_t batch, std::int64_t row, std::int64_t column) {
  return view.at(batch * view.strides[0] + row * view.strides[1] + column * view.strides[2]);
}

/// Of one row of an operand; empty where it has none.
void read_factors(const std::optional<BlockFactors>& of, std::int64_t batch, std::int64_t row,
                  std::vector<double>& out) {
  if (!of) return;
  out.resize(static_cast<std::size_t>(of->factors.shape[2]));
  read_row(of->factors, batch, row / of->rows, out);
}

/// Elements that were never written. Of sums of integers -1 has the bits of the poison: those are computed.
PoisonCount count_unwritten(const GemmInputs& in, const TensorView& d, const Sizes& s, const GemmCheck& check) {
  if (d.dtype != DType::s32) return count_poisoned(d);
  PoisonCount count;
  const SumRules rules(in.a.dtype, check);
  std::vector<double> a(static_cast<std::size_t>(s.k)), b(a);
  for (std::int64_t i = 0; i < s.l * s.m * s.n; ++i) {
    const std::int64_t batch = i / (s.m * s.n), row = i / s.n % s.m, column = i % s.n;
    if (at(d, batch, row, column) != -1) continue;
    read_row(in.a, batch, row, a);
    read_row(in.b, batch, column, b);
    if (product(a.data(), b.data(), s.k, rules, check).value == -1) continue;
    if (count.poisoned++ == 0) count.first = i;
  }
  return count;
}

Comparison conclude(const ElementSums& sums, const PoisonCount& poison, const TensorView& d, const Sizes& s,
                    const GemmCheck& check) {
  Comparison result;
  // Every bit pattern of an 8-bit type but two is a number, and the poison one that arithmetic may give: e4m3's NaN.
  if (poison.poisoned > 0)
    result.problems.push_back(fmt::format("d: {} of {} elements were never written, the first is element {}",
                                          poison.poisoned, element_count(d.shape), poison.first));
  if (sums.mismatched > 0)
    result.problems.push_back(describe_mismatches("d", sums,
                                                  {{"matrix", s.l, {}},
                                                   {"row", s.m, {8, 16, 64, check.tile_m}},
                                                   {"column", s.n, {2, 8, 16, 32, 64, check.tile_n}}},
                                                  check.sums ? Accumulator::tensor_memory : Accumulator::any));
  result.mismatches = sums.mismatches;
  result.rel_error = sums.rel_error();
  result.rel_bound = sums.rel_bound();
  result.max_abs_error = sums.max_abs_error;
  result.cosine = sums.cosine();
  result.rows_checked = sums.checked / std::max<std::int64_t>(s.n, 1);
  result.rows_total = s.l * s.m;
  if (check.judges_rel_error && !(result.rel_error <= result.rel_bound))
    result.problems.push_back(fmt::format(
        "d: relative error {:.3g} over all checked rows, at most {:.3g} is explained by independent roundings",
        result.rel_error, result.rel_bound));
  result.pass = result.problems.empty();
  return result;
}

}  // namespace

double activation_error(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
    case Activation::relu:
      return 0;
    case Activation::gelu:
      return 8 * kU * std::fabs(x);
    case Activation::gelu_tanh:
      // The tangent's argument is rounded four times; where that matters its slope is below 1 / argument.
      return std::fabs(x) * (4.1e-6 + 8 * kU);
    case Activation::silu:
      return 16 * kU * std::fabs(x) + 0x1p-126;
  }
  return 0;
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

ProductSum product_sum(const double* a, const double* b, std::int64_t k, DType a_dtype, const GemmCheck& check,
                       std::span<const double> factors) {
  return product(a, b, k, SumRules(a_dtype, check), check, factors);
}

Element product_element(const ProductSum& sum, double c, double bias, const GemmCheck& check) {
  return finish(sum, c, bias, check, DType::f32, 0);
}

double gemm_element(const GemmInputs& in, const GemmCheck& check, std::int64_t batch, std::int64_t row,
                    std::int64_t column) {
  double sum = 0;
  std::vector<double> of_a, of_b;
  read_factors(in.sfa, batch, row, of_a);
  read_factors(in.sfb, batch, column, of_b);
  for (std::int64_t k = 0; k < in.a.shape[2]; ++k) {
    const auto block = static_cast<std::size_t>(k / kPromotedLength);
    const double factor = (of_a.empty() ? 1 : of_a[block]) * (of_b.empty() ? 1 : of_b[block]);
    sum += factor * at(in.a, batch, row, k) * at(in.b, batch, column, k);
  }
  double x = check.alpha * sum;
  if (in.c) x += check.beta * at(*in.c, batch, row, column);
  if (in.bias) x += in.bias->at(column * in.bias->strides[0]);
  return activated(check.facts.activation, x);
}

Comparison check_gemm(const GemmInputs& in, const TensorView& d, const GemmCheck& check) {
  const Sizes s = sizes_of(in, d);
  const SumRules rules(in.a.dtype, check);
  ElementSums sums;
  constexpr std::int64_t kColumns = 64;  // of a piece: each row of b is decoded once for all rows of a
  for (const BatchRows& chosen : choose_rows(s, check)) {
    std::vector<std::vector<double>> rows(chosen.rows.size(), std::vector<double>(static_cast<std::size_t>(s.k)));
    std::vector<std::vector<double>> factors_of_rows(rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      read_row(in.a, chosen.batch, chosen.rows[r], rows[r]);
      read_factors(in.sfa, chosen.batch, chosen.rows[r], factors_of_rows[r]);
    }
    const std::int64_t pieces = (s.n + kColumns - 1) / kColumns;
    std::vector<ElementSums> parts(static_cast<std::size_t>(pieces));
    parallel_for(pieces, check.jobs, [&](std::int64_t piece) {
      std::vector<double> of_b(static_cast<std::size_t>(s.k)), factors_of_b, factors;
      for (std::int64_t column = piece * kColumns; column < std::min(s.n, (piece + 1) * kColumns); ++column) {
        read_row(in.b, chosen.batch, column, of_b);
        read_factors(in.sfb, chosen.batch, column, factors_of_b);
        const double bias = in.bias ? in.bias->at(column * in.bias->strides[0]) : 0;
        for (std::size_t r = 0; r < rows.size(); ++r) {
          const std::int64_t row = chosen.rows[r];
          const double c = in.c && check.beta != 0 ? at(*in.c, chosen.batch, row, column) : 0;
          factors.resize(factors_of_rows[r].size());
          for (std::size_t i = 0; i < factors.size(); ++i)
            factors[i] = factors_of_rows[r][i] * (factors_of_b.empty() ? 1 : factors_of_b[i]);
          Element element = finish(product(rows[r].data(), of_b.data(), s.k, rules, check, factors), c, bias, check,
                                   d.dtype, at(d, chosen.batch, row, column));
          element.at = {chosen.batch, row, column, 0, 0};
          // Of inputs that are no numbers the result is none; that it was written is looked at for all of d.
          if (std::isnan(element.expected) && std::isnan(element.found)) element = {.at = element.at};
          parts[static_cast<std::size_t>(piece)].add(element);
        }
      }
    });
    for (const ElementSums& part : parts) sums.merge(part);
  }
  return conclude(sums, count_unwritten(in, d, s, check), d, s, check);
}

}  // namespace tessera::reference
