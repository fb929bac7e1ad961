#include "reference/mhc_product.h"

#include <cmath>
#include <vector>

#include "reference/parallel.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

constexpr double kU = 0x1p-24, kOfB = 0x1p-17;
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
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
