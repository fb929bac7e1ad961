#include "reference/mhc_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/likely_cause.h"
#include "reference/number.h"
#include "reference/parallel.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

constexpr double kOfB = 0x1p-17;
constexpr std::int64_t kChunk = 64;

std::int64_t first_column(const MhcProductRun& run, std::int64_t split) {
  const std::int64_t chunks = (run.k + kChunk - 1) / kChunk;
  return std::min(chunks * split / run.splits * kChunk, run.k);
}

/// One row by all rows of b, over columns [from, to).
struct RowProduct {
  std::vector<double> sums, magnitudes, squares;
  double of_row = 0;

  RowProduct(const MhcProductRun& run, const TensorView& a, const TensorView& b, std::int64_t row, std::int64_t from,
             std::int64_t to)
      : sums(static_cast<std::size_t>(run.n)), magnitudes(sums), squares(sums) {
    for (std::int64_t i = from; i < to; ++i) {
      const double element = a.at(row * a.strides[0] + i);
      of_row += element * element;
      for (std::int64_t j = 0; j < run.n; ++j) {
        const double product = element * b.at(j * b.strides[0] + i);
        sums[static_cast<std::size_t>(j)] += product;
        magnitudes[static_cast<std::size_t>(j)] += std::fabs(product);
        squares[static_cast<std::size_t>(j)] += product * product;
      }
    }
  }
};

/// A sum over the columns of a split of a(row, column) b(column).
template <class OfB>
double sum_of(const MhcProductRun& run, const TensorView& a, std::int64_t split, std::int64_t row, const OfB& b) {
  double sum = 0;
  for (std::int64_t i = first_column(run, split); i < first_column(run, split + 1); ++i)
    sum += a.at(row * a.strides[0] + i) * b(i);
  return sum;
}

double bf16_of(double x) { return to_double(DType::bf16, from_double(DType::bf16, x)); }

std::vector<Suspect> suspects_of_d(const MhcProductRun& run, const TensorView& a, const TensorView& b) {
  // What b as one bf16 number errs by is far above a right one's error, and far below its value.
  const auto guess = [&run, &a, &b](const Coordinates& at, std::int64_t row, std::int64_t j, auto&& of_b) -> Guess {
    if (j >= run.n) return {};
    const double value = sum_of(run, a, at[0], row, [&](std::int64_t i) { return of_b(b.at(j * b.strides[0] + i)); });
    return {value, 1e-5 * std::fabs(value) + 1e-4};
  };
  const auto same = [](double x) { return x; };
  return {{"b is taken as one bf16 number", [=](const Coordinates& at) { return guess(at, at[1], at[2], bf16_of); }},
          {"the first bf16 number of b is left out",
           [=](const Coordinates& at) {
             return guess(at, at[1], at[2], [](double x) { return bf16_of(x - bf16_of(x)); });
           }},
          {"neighbouring rows of b are exchanged",
           [=](const Coordinates& at) { return guess(at, at[1], at[2] ^ 1, same); }},
          // Behind the last row it is the last again.
          {"rows i and i + 8 of a are exchanged",
           [=, m = run.m](const Coordinates& at) { return guess(at, std::min(at[1] ^ 8, m - 1), at[2], same); }}};
}

std::vector<Suspect> suspects_of_squares(const MhcProductRun& run, const TensorView& a) {
  const auto squares_where = [&](const Coordinates& at, auto&& counts) -> Guess {
    double sum = 0;
    for (std::int64_t i = first_column(run, at[0]); i < first_column(run, at[0] + 1); ++i)
      if (counts(i)) sum += a.at(at[1] * a.strides[0] + i) * a.at(at[1] * a.strides[0] + i);
    return {sum, 1e-5 * sum};
  };
  return {
      {"squares of the second 32 of each 64 columns are left out",
       [=, &run, &a](const Coordinates& at) { return squares_where(at, [](std::int64_t i) { return i % 64 < 32; }); }},
      {"squares are counted twice", [=, &run, &a](const Coordinates& at) {
         Guess found = squares_where(at, [](std::int64_t) { return true; });
         return Guess{2 * found.value, 2 * found.slack};
       }}};
}

void add_cause(const ElementSums& sums, const std::vector<Suspect>& suspects, std::vector<std::string>& problems) {
  if (std::string cause = likely_cause(sums.mismatches, suspects); !cause.empty()) problems.push_back(std::move(cause));
}

}  // namespace

std::map<std::string, Tensor> mhc_product_inputs(const MhcProductRun& run, Fill kind, std::uint64_t seed) {
  std::map<std::string, Tensor> made;
  Tensor a(DType::bf16, {run.m, run.k}), b(DType::f32, {run.n, run.k});
  const Fill used = kind == Fill::standard ? Fill::normal : kind;
  fill(a, used, seed, 0);
  fill(b, used, seed, 1);
  made.emplace("a", std::move(a));
  made.emplace("b", std::move(b));
  return made;
}

Comparison check_mhc_product(const MhcProductRun& run, const TensorView& a, const TensorView& b, const TensorView& d,
                             const TensorView& sum_squares, int jobs) {
  const bool is_split = run.splits > 1;
  const std::vector<std::int64_t> of_d = is_split ? std::vector{run.splits, run.m, run.n} : std::vector{run.m, run.n};
  const std::vector<std::int64_t> of_squares = is_split ? std::vector{run.splits, run.m} : std::vector{run.m};
  if (a.shape != std::vector{run.m, run.k} || b.shape != std::vector{run.n, run.k} || d.shape != of_d ||
      sum_squares.shape != of_squares)
    throw Error(ErrorKind::usage, "a, b, d and sum_squares must have shapes that fit each other");
  std::vector<std::pair<ElementSums, ElementSums>> pieces(static_cast<std::size_t>(run.m));
  parallel_for(run.m, jobs, [&](std::int64_t row) {
    auto& [products, squares] = pieces[static_cast<std::size_t>(row)];
    for (std::int64_t split = 0; split < run.splits; ++split) {
      const std::int64_t from = first_column(run, split), to = first_column(run, split + 1);
      const RowProduct expected(run, a, b, row, from, to);
      const double added = 4 * kU * (static_cast<double>(to - from) / 8 + 64);
      for (std::int64_t j = 0; j < run.n; ++j) {
        const auto at = static_cast<std::size_t>(j);
        Element element;
        element.found =
            d.at((is_split ? split * d.strides[0] : 0) + row * d.strides[is_split ? 1 : 0] + j * d.strides.back());
        element.expected = expected.sums[at];
        element.bound = (kOfB + added) * expected.magnitudes[at];
        const double random = std::sqrt(expected.squares[at]);
        element.expected_square = std::pow((kOfB + added) * random, 2) + std::pow(added * element.expected, 2);
        element.at = {split, row, j, 0, 0};
        products.add(element);
      }
      Element element;
      element.found =
          sum_squares.at((is_split ? split * sum_squares.strides[0] : 0) + row * sum_squares.strides.back());
      element.expected = expected.of_row;
      element.bound = kU * (static_cast<double>(to - from) / 4 + 64) * expected.of_row;
      element.expected_square = element.bound * element.bound;
      element.at = {split, row, 0, 0, 0};
      squares.add(element);
    }
  });
  ElementSums products, squares;
  for (const auto& [of_piece, squares_of_piece] : pieces) {
    products.merge(of_piece);
    squares.merge(squares_of_piece);
  }
  Comparison result;
  result.rel_error = products.rel_error();
  result.rel_bound = products.rel_bound();
  result.max_abs_error = products.max_abs_error;
  result.cosine = products.cosine();
  result.rows_checked = result.rows_total = run.m;
  result.mismatches = products.mismatches;
  if (products.mismatched > 0)
    result.problems.push_back(describe_mismatches(
        "d", products, {{"split", run.splits, {}}, {"row", run.m, {8, 16, 32, 128}}, {"column", run.n, {8}}}));
  if (squares.mismatched > 0)
    result.problems.push_back(
        describe_mismatches("sum_squares", squares, {{"split", run.splits, {}}, {"row", run.m, {8, 16, 32, 128}}}));
  if (products.mismatched > 0) add_cause(products, suspects_of_d(run, a, b), result.problems);
  if (squares.mismatched > 0) add_cause(squares, suspects_of_squares(run, a), result.problems);
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
