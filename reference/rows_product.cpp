#include "reference/rows_product.h"

#include <algorithm>
#include <cmath>

#include "reference/mhc_coefficients.h"
#include "reference/number.h"
#include "spec/row_facts.h"
#include "tessera/row_chain.h"

namespace tessera::reference {

namespace {

constexpr double kOfWeight = 0x1p-17;  // as two bf16 numbers
/// mma.sync's, of sixteen products and a sum each, both numbers of a weight one after the other; what each cuts off.
constexpr double kOfProduct = (rows::kPartColumns * kStreams / 8 + 8) * 4 * kU;
constexpr double kOfSquares = (rows::kPartColumns * kStreams / 4 + 64) * kU;

void add(ElementSums& sums, std::int64_t row, std::int64_t column, double found, double expected, double bound) {
  Element element;
  element.found = found;
  element.expected = expected;
  element.bound = bound;
  element.expected_square = bound * bound;
  element.at = {row, column};
  sums.add(element);
}

}  // namespace

void check_product(const RowsRun& run, const std::map<std::string, Tensor>& in,
                   const std::map<std::string, Tensor>& out, const RowStepNames& names, std::int64_t row,
                   ElementSums& sums) {
  const Tensor &streams = out.at(names.out), &weight = in.at(names.in3);
  const std::int64_t all = kStreams * run.columns, parts = rows::parts_of_product(static_cast<int>(run.columns));
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t from = part * rows::kPartColumns, to = std::min(from + rows::kPartColumns, run.columns);
    double product[kMixColumns] = {}, magnitude[kMixColumns] = {}, squares = 0;
    for (std::int64_t i = from; i < to; ++i)
      for (std::int64_t s = 0; s < kStreams; ++s) {
        const double element = streams.at(row * all + s * run.columns + i);
        squares += element * element;
        for (std::int64_t j = 0; j < kMixColumns; ++j) {
          const double one = element * weight.at(j * all + s * run.columns + i);
          product[j] += one;
          magnitude[j] += std::fabs(one);
        }
      }
    for (std::int64_t j = 0; j < kMixColumns; ++j)
      add(sums, row, part * rows::kTotals + j, out.at(names.out2).at((part * run.rows + row) * kMixColumns + j),
          product[j], (kOfWeight + kOfProduct) * magnitude[j]);
    add(sums, row, part * rows::kTotals + kMixColumns, out.at(names.out3).at(part * run.rows + row), squares,
        kOfSquares * squares);
  }
}

void check_mix(const RowValues& values, const Tensor& out, std::int64_t row, ElementSums& sums) {
  for (std::int64_t i = 0; i < kMixColumns; ++i)
    add(sums, row, i, out.at(row * kMixColumns + i), values.mix[static_cast<std::size_t>(i)],
        values.mix_errors[static_cast<std::size_t>(i)]);
}

void add_product_inputs(const RowsRun& run, const RowStep& step, const RowStepNames& names, std::uint64_t seed,
                        std::map<std::string, Tensor>& made) {
  const auto normal = [&](const std::string& name, std::vector<std::int64_t> shape, std::uint64_t stream) {
    Tensor tensor(DType::f32, std::move(shape));
    fill(tensor, Fill::normal, seed, stream);
    made.emplace(name, std::move(tensor));
  };
  if (step.kind == RowPart::mhc_post) return normal(names.in3, {kMixColumns, kStreams * run.columns}, 80);
  normal(names.in, {run.parts, run.rows, kMixColumns}, 81);
  normal(names.in3, {kMixColumns}, 82);
  slow_sinkhorn(made.at(names.in3), step.iterations, seed);
  normal(names.in4, {3}, 83);
  const CounterRandom random(seed, 84);
  Tensor squares(DType::f32, {run.parts, run.rows});
  const double each = static_cast<double>(kStreams * run.columns) / static_cast<double>(run.parts);
  for (std::int64_t i = 0; i < squares.elements(); ++i)
    squares.set(i, each * (0.1 + random.uniform(static_cast<std::uint64_t>(i))));
  made.emplace(names.in2, std::move(squares));
}

}  // namespace tessera::reference
