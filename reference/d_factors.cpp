#include "reference/d_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "reference/likely_cause.h"
#include "reference/number.h"
#include "reference/poison.h"
#include "reference/quantize_blocks.h"

namespace tessera::reference {

namespace {

using I = std::int64_t;

constexpr double kLargest = 448;
constexpr double kLargestFloat = static_cast<double>(std::numeric_limits<float>::max());

I blocks_of(I columns) { return (columns + kScaleBlock - 1) / kScaleBlock; }

I place_of(const TensorView& view, I batch, I row, I column) {
  return batch * view.strides[0] + row * view.strides[1] + column * view.strides[2];
}

bool is_finite(const RowValue& v) { return std::fabs(v.value) <= kLargestFloat; }

/// The least and the largest magnitude that a block's largest may have. NaN does not count.
struct Largest {
  double low = 0, high = 0;
};
Largest largest_of(std::span<const RowValue> block) {
  Largest found;
  for (const RowValue& v : block) {
    if (std::isnan(v.value)) continue;
    const double error = is_finite(v) ? v.error : 0;
    const double magnitude = std::min(std::fabs(v.value), kLargestFloat);
    found.low = std::max(found.low, magnitude - error);
    found.high = std::max(found.high, magnitude + error);
  }
  return found;
}

float factor_of(double amax, ScaleValues values) {
  return block_factor(static_cast<float>(std::min(amax, kLargestFloat)), values);
}

/// The step between neighbours of e4m3 that are about so large.
double step_of(double magnitude) {
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), -6) : -6;
  return std::exp2(exponent - 3);
}

/// `bits`: of d's element.
Element element_of(const RowValue& v, double found, double factor) {
  Element e;
  if (!is_finite(v)) {  // a NaN stays one, what is infinite becomes the largest number
    e.found = found;
    e.expected = std::isnan(v.value) ? v.value : std::copysign(kLargest, v.value);
    if (std::isnan(e.expected) && std::isnan(found)) e.found = e.expected = 0;
    return e;
  }
  e.found = found * factor;
  e.expected = std::clamp(v.value, -kLargest * factor, kLargest * factor);
  const double half = step_of((std::fabs(e.expected) + v.error) / factor) / 2 * factor;
  const double of_division = 4 * kU * std::fabs(v.value);
  e.bound = 1.0001 * half + v.error + of_division;
  e.expected_square = half * half + v.square;
  return e;
}

bool is_right(const Element& e) { return std::fabs(e.found - e.expected) <= e.bound; }

/// Rows in float64, each worked out once, and the factors that they have.
class Rows {
 public:
  Rows(const GatedInputs& in, I m, I n) : in_(in), m_(m), n_(n) {}

  const std::vector<RowValue>& values(I batch, I row) {
    std::vector<RowValue>& of_row = rows_[{batch, row}];
    if (of_row.empty()) {
      of_row.resize(static_cast<std::size_t>(n_));
      row_values(in_, batch, row, of_row);
    }
    return of_row;
  }
  I blocks() const { return blocks_of(n_); }
  bool has(I row, I block) const { return row >= 0 && row < m_ && block >= 0 && block < blocks(); }
  /// The largest magnitude of those columns of a block that `takes` names, counted from its first.
  double largest(I batch, I row, I block, const std::function<bool(I column)>& takes = {}) {
    const std::vector<RowValue>& of_row = values(batch, row);
    double amax = 0;
    for (I c = block * kScaleBlock; c < std::min(n_, (block + 1) * kScaleBlock); ++c) {
      const double magnitude = std::fabs(of_row[static_cast<std::size_t>(c)].value);
      if (!std::isnan(magnitude) && (!takes || takes(c - block * kScaleBlock))) amax = std::max(amax, magnitude);
    }
    return amax;
  }
  double factor(I batch, I row, I block) {
    return static_cast<double>(factor_of(largest(batch, row, block), in_.check.facts.d_scale_values));
  }

 private:
  const GatedInputs& in_;
  const I m_, n_;
  std::map<std::pair<I, I>, std::vector<RowValue>> rows_;
};

/// Of factors, at [matrix, row, block].
std::vector<Suspect> factor_suspects(Rows& rows, ScaleValues numbers) {
  std::vector<Suspect> list;
  const auto guess = [](double value) { return Guess{value, 1e-3 * value}; };
  const auto moved = [&](std::string cause, I rows_on, I blocks_on) {
    list.push_back({std::move(cause), [=, &rows](const Coordinates& at) {
                      if (!rows.has(at[1] + rows_on, at[2] + blocks_on)) return Guess{0, -1};
                      return guess(rows.factor(at[0], at[1] + rows_on, at[2] + blocks_on));
                    }});
  };
  moved("a block of columns has the factor of d (sfd) of the next 128", 0, 1);
  moved("a block of columns has the factor of d (sfd) of the 128 before", 0, -1);
  moved("a row has the factor of d (sfd) of the row behind", 1, 0);
  moved("a row has the factor of d (sfd) of the row before", -1, 0);
  for (const I distance : {I{8}, I{16}, I{64}, I{128}}) {
    moved(fmt::format("a row has the factor of d (sfd) {} rows behind", distance), distance, 0);
    moved(fmt::format("a row has the factor of d (sfd) {} rows before", distance), -distance, 0);
  }
  const auto fewer = [&](const char* cause, bool (*takes)(I column)) {
    list.push_back({cause, [=, &rows](const Coordinates& at) {
                      return guess(factor_of(rows.largest(at[0], at[1], at[2], takes), numbers));
                    }});
  };
  fewer("a factor of d (sfd) is that of the first 64 columns of its block", [](I c) { return c < 64; });
  fewer("a factor of d (sfd) is that of the last 64 columns of its block", [](I c) { return c >= 64; });
  for (I of = 0; of < 4; ++of)
    list.push_back(
        {"a factor of d (sfd) is that of one thread's columns, two of each eight", [=, &rows](const Coordinates& at) {
           const auto takes = [of](I c) { return c % 8 / 2 == of; };
           return guess(factor_of(rows.largest(at[0], at[1], at[2], takes), numbers));
         }});
  list.push_back({"factors of d (sfd) are the other way round: what elements are multiplied by",
                  [=, &rows](const Coordinates& at) { return guess(1 / rows.factor(at[0], at[1], at[2])); }});
  const ScaleValues other = numbers == ScaleValues::any ? ScaleValues::pow2 : ScaleValues::any;
  list.push_back(
      {other == ScaleValues::pow2 ? "factors of d (sfd) are powers of two" : "factors of d (sfd) are no powers of two",
       [=, &rows](const Coordinates& at) { return guess(factor_of(rows.largest(at[0], at[1], at[2]), other)); }});
  return list;
}

/// Of d's elements, which were multiplied by what another factor asks for.
std::vector<Suspect> element_suspects(Rows& rows) {
  std::vector<Suspect> list;
  const auto add = [&](std::string cause, I rows_on, I blocks_on) {
    list.push_back({std::move(cause), [=, &rows](const Coordinates& at) {
                      const I row = at[1] + rows_on, own = at[2] / kScaleBlock, block = own + blocks_on;
                      if (!rows.has(row, block)) return Guess{0, -1};
                      const double factor = rows.factor(at[0], at[1], own);
                      const double result = rows.values(at[0], at[1])[static_cast<std::size_t>(at[2])].value;
                      const double held = std::clamp(result / rows.factor(at[0], row, block), -kLargest, kLargest);
                      return Guess{held * factor, 0.6 * step_of(std::fabs(held)) * factor};
                    }});
  };
  add("elements of d are divided by the factor of the next 128 columns", 0, 1);
  add("elements of d are divided by the factor of the 128 columns before", 0, -1);
  add("elements of d are divided by the factor of the row behind", 1, 0);
  add("elements of d are divided by the factor of the row before", -1, 0);
  add("elements of d are divided by the factor 8 rows behind", 8, 0);
  add("elements of d are divided by the factor 8 rows before", -8, 0);
  return list;
}

/// What is wrong, and the likely cause.
void report(std::string problem, const std::vector<Mismatch>& mismatches, const std::vector<Suspect>& suspects,
            Comparison& result) {
  if (!problem.empty()) result.problems.push_back(std::move(problem));
  if (std::string cause = likely_cause(mismatches, suspects); !cause.empty())
    result.problems.push_back(std::move(cause));
}

}  // namespace

Comparison check_d_factors(const GatedInputs& in, const TensorView& d) {
  const I l = d.shape[0], m = d.shape[1], n = d.shape[2];
  const TensorView& sfd = *in.check.sfd;
  const ScaleValues numbers = in.check.facts.d_scale_values;
  const auto factor_at = [&](I batch, I row, I block) { return sfd.at(place_of(sfd, batch, row, block)); };
  const I blocks = blocks_of(n);
  const auto looks_unwritten = [&](I batch, I row) {
    for (I block = 0; block < blocks; ++block)
      if (std::isnan(factor_at(batch, row, block))) return true;
    for (I column = 0; column < n; ++column)
      if (d.bits_at(place_of(d, batch, row, column)) == kPoisonByte) return true;
    return false;
  };
  std::mutex mutex;
  ElementSums of_factors;
  I checked = 0;
  const ElementSums sums = over_rows(
      in, m, n, looks_unwritten, checked, [&](I batch, I row, const std::vector<RowValue>& values, ElementSums& part) {
        for (I block = 0; block < blocks; ++block) {
          const I first = block * kScaleBlock, count = std::min<I>(n - first, kScaleBlock);
          const std::span<const RowValue> of_block(values.data() + first, static_cast<std::size_t>(count));
          const Largest largest = largest_of(of_block);
          const double least = factor_of(largest.low, numbers), most = factor_of(largest.high, numbers);
          const double found = factor_at(batch, row, block);
          int exponent = 0;
          const bool is_number = numbers == ScaleValues::any || std::frexp(found, &exponent) == 0.5;
          Element factor{.found = found, .expected = (least + most) / 2, .at = {batch, row, block, 0, 0}};
          factor.bound = is_number && found >= least && found <= most ? std::fabs(found - factor.expected) : -1;
          {
            const std::lock_guard lock(mutex);
            of_factors.add(factor);
          }
          const double right = std::clamp(found, least, most);  // of a NaN neither
          const bool has_exact_bits = in.check.is_exact && !in.up;
          const float inverse = 1.0F / static_cast<float>(least);
          for (I i = 0; i < count; ++i) {
            const RowValue& v = of_block[static_cast<std::size_t>(i)];
            const I place = place_of(d, batch, row, first + i);
            Element e = element_of(v, d.at(place), found > 0 && std::isfinite(found) ? found : least);
            if (!is_right(e)) e = element_of(v, d.at(place), right > 0 ? right : least);
            const double wanted = static_cast<double>(static_cast<float>(v.value) * inverse);
            if (has_exact_bits && found == least && !std::isnan(v.value) &&
                d.bits_at(place) != from_double(DType::e4m3, wanted)) {
              e = {.found = d.at(place), .expected = to_double(DType::e4m3, from_double(DType::e4m3, wanted))};
              e.bound = -1;
            }
            e.at = {batch, row, first + i, 0, 0};
            part.add(e);
          }
        }
      });
  Comparison result = conclude_rows(sums, in, l, m, n);
  Rows rows(in, m, n);
  if (sums.mismatched > 0) report({}, sums.mismatches, element_suspects(rows), result);
  if (of_factors.mismatched > 0)
    report(describe_mismatches(
               "sfd", of_factors,
               {{"matrix", l, {}}, {"row", m, {8, 16, 64, in.check.tile_m}}, {"block of 128 columns", blocks, {}}}),
           of_factors.mismatches, factor_suspects(rows, numbers), result);
  result.rows_checked = checked;
  result.rows_total = l * m;
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
