#include "reference/topk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/parallel.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

using Tensors = std::map<std::string, Tensor>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What a person may have done in place of what was asked.
struct Slips {
  bool takes_other_ties = false;  ///< of equals the others
  bool has_nan_first = false;
  bool splits_zeros = false;        ///< -0 stands behind +0
  bool exchanges_last = false;      ///< the k-th and the next
  bool ignores_lengths = false;     ///< all columns
  bool ignores_starts = false;      ///< from column 0 on
  bool is_absolute = false;         ///< columns of the matrix, not of the row's range
  bool has_own_sequence = false;    ///< row i has sequence i
  int page_shift = 0;               ///< the page beside it
  bool looks_up_minus_one = false;  ///< -1 behind the results goes through the table too
  bool forgets_form = false;        ///< indices are columns
  bool has_other_order = false;     ///< by index where values are asked for, and the other way round
};

struct Expected {
  std::vector<std::int64_t> indices, columns;  ///< columns of the matrix; -1: no result
  double kth = -kInfinity;                     ///< the k-th value; -inf: fewer were taken, or a NaN
};

std::int64_t integer_of(const Tensors& in, const char* name, std::int64_t at) {
  return static_cast<std::int64_t>(in.at(name).at(at));
}

/// Of place `j` in the row's range; -1 stays itself.
std::int64_t index_of(const TopkRun& run, const Tensors& in, std::int64_t row, std::int64_t j, const Slips& slips) {
  if (slips.forgets_form) return j;
  if (run.index_form == IndexForm::offsets) return j < 0 ? -1 : j + integer_of(in, "offsets", row);
  if (run.index_form == IndexForm::columns || (j < 0 && !slips.looks_up_minus_one)) return j;
  const std::int64_t sequence = slips.has_own_sequence ? row : integer_of(in, "row_sequences", row);
  const std::int64_t column = std::max<std::int64_t>(j, 0);
  const std::int64_t page = column / run.page_size + slips.page_shift;
  if (sequence < 0 || sequence >= run.sequences || page >= run.max_pages || page < 0) return -1;
  const std::int64_t entry = integer_of(in, "block_table", sequence * run.max_pages + page);
  return entry < 0 ? -1 : entry * run.page_size + column % run.page_size;
}

Expected expected_of(const TopkRun& run, const Tensors& in, std::int64_t row, const Slips& slips) {
  std::int64_t start = 0, length = run.n;
  if (run.range == RowRange::starts && !slips.ignores_starts)
    start = std::clamp<std::int64_t>(integer_of(in, "row_starts", row), 0, run.n);
  if (run.range != RowRange::all && !slips.ignores_lengths) length = integer_of(in, "lengths", row);
  length = std::clamp<std::int64_t>(length, 0, run.n - start);
  const Tensor& scores = in.at("scores");
  std::vector<double> x(static_cast<std::size_t>(length));
  for (std::int64_t j = 0; j < length; ++j) x[static_cast<std::size_t>(j)] = scores.at(row * run.n + start + j);
  const bool is_smaller_first = (run.ties == Ties::smaller) != slips.takes_other_ties;
  const auto precedes = [&](std::int64_t a, std::int64_t b) {
    const double u = x[static_cast<std::size_t>(a)], v = x[static_cast<std::size_t>(b)];
    if (std::isnan(u) != std::isnan(v)) return std::isnan(u) == slips.has_nan_first;
    if (u != v && !std::isnan(u)) return u > v;
    if (slips.splits_zeros && std::signbit(u) != std::signbit(v)) return std::signbit(v);
    return is_smaller_first ? a < b : a > b;
  };
  std::vector<std::int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  const auto taken = static_cast<std::size_t>(std::min(length, run.k));
  const std::size_t sorted = std::min(order.size(), taken + 1);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(sorted), order.end(), precedes);
  if (slips.exchanges_last && sorted > taken && taken > 0) std::swap(order[taken - 1], order[taken]);
  order.resize(taken);
  double kth = -kInfinity;
  if (taken == static_cast<std::size_t>(run.k) && taken > 0)
    if (const double last = x[static_cast<std::size_t>(order.back())]; !std::isnan(last)) kth = last;
  if ((run.order == ResultOrder::index) != slips.has_other_order) std::sort(order.begin(), order.end());
  order.resize(static_cast<std::size_t>(run.k), -1);
  Expected expected;
  expected.kth = kth;
  for (const std::int64_t j : order) {
    expected.indices.push_back(index_of(run, in, row, slips.is_absolute && j >= 0 ? j + start : j, slips));
    expected.columns.push_back(j < 0 ? -1 : start + j);
  }
  return expected;
}

/// Bits of a value, -inf where there is none.
std::uint64_t value_bits(const TopkRun& run, const Tensor& scores, std::int64_t row, std::int64_t column) {
  if (column >= 0) return scores.view().bits_at(row * run.n + column);
  return run.dtype == DType::f32 ? 0xff800000u : run.dtype == DType::f16 ? 0xfc00u : 0xff80u;
}

struct Judged {
  ElementSums indices, values, kth;
};

Judged judge(const TopkRun& run, const Tensors& in, const Tensors& out, const Slips& slips, std::int64_t rows,
             int jobs) {
  std::vector<Judged> pieces(static_cast<std::size_t>(rows));
  const bool has_values = run.values == WithValues::on;
  parallel_for(rows, jobs, [&](std::int64_t row) {
    Judged& piece = pieces[static_cast<std::size_t>(row)];
    const Expected expected = expected_of(run, in, row, slips);
    if (run.guesses == WithGuesses::on) {
      Element element;
      element.found = out.at("kth").at(row);
      element.expected = expected.kth;
      if (element.found == element.expected && !std::isfinite(element.found)) element.found = element.expected = 0;
      if (!std::isfinite(element.found) || !std::isfinite(element.expected)) element.expected = 0, element.found = 1;
      element.at = {row, 0, 0, 0, 0};
      piece.kth.add(element);
    }
    const TensorView indices = out.at("indices").view();
    for (std::int64_t slot = 0; slot < run.k; ++slot) {
      const std::int64_t at = row * run.k + slot;
      Element element;
      element.found = indices.at(at);
      element.expected = static_cast<double>(expected.indices[static_cast<std::size_t>(slot)]);
      element.at = {row, slot, 0, 0, 0};
      piece.indices.add(element);
      if (!has_values) continue;
      const std::uint64_t found = out.at("values").view().bits_at(at);
      const std::uint64_t wanted =
          value_bits(run, in.at("scores"), row, expected.columns[static_cast<std::size_t>(slot)]);
      element.found = out.at("values").at(at);
      element.expected = found == wanted ? element.found : to_double(run.dtype, wanted);
      // A NaN or an infinity that is right differs from itself, or by no number; one that is wrong differs always.
      if (found == wanted && !std::isfinite(element.found)) element.found = element.expected = 0;
      if (found != wanted &&
          (!std::isfinite(element.found) || !std::isfinite(element.expected) || element.found == element.expected))
        element.expected = 0, element.found = 1;
      piece.values.add(element);
    }
  });
  Judged all;
  for (const Judged& piece : pieces) {
    all.indices.merge(piece.indices);
    all.values.merge(piece.values);
    all.kth.merge(piece.kth);
  }
  return all;
}

std::string cause_of(const TopkRun& run, const Tensors& in, const Tensors& out, int jobs) {
  const std::pair<const char*, Slips> slips[] = {
      {"of equals those with the other index are taken", {.takes_other_ties = true}},
      {"a NaN stands before every number", {.has_nan_first = true}},
      {"-0 stands behind +0", {.splits_zeros = true}},
      {"the k-th is exchanged with the next", {.exchanges_last = true}},
      {"lengths are ignored", {.ignores_lengths = true}},
      {"row_starts are ignored", {.ignores_starts = true}},
      {"indices are columns of the matrix, not of the row's range", {.is_absolute = true}},
      {"row i has the table of sequence i", {.has_own_sequence = true}},
      {"pages are those of the next entry of the table", {.page_shift = 1}},
      {"pages are those of the entry before", {.page_shift = -1}},
      {"-1 behind the results is taken for a column", {.looks_up_minus_one = true}},
      {"indices stay columns", {.forgets_form = true}},
      {"results stand in the other order", {.has_other_order = true}},
  };
  const std::int64_t rows = std::min<std::int64_t>(run.m, 64);
  for (const auto& [cause, slip] : slips) {
    if (run.index_form != IndexForm::pages &&
        (slip.has_own_sequence || slip.page_shift != 0 || slip.looks_up_minus_one))
      continue;
    const Judged judged = judge(run, in, out, slip, rows, jobs);
    if (judged.indices.mismatched == 0)
      return fmt::format("likely cause: {} (explains the {} rows that were looked at)", cause, rows);
  }
  return {};
}

/// One row of scores: see topk_inputs().
void fill_row(const TopkRun& run, Tensor& scores, std::int64_t row, const CounterRandom& random) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::int64_t kind = row % 9;
  for (std::int64_t j = 0; j < run.n; ++j) {
    const std::int64_t at = row * run.n + j;
    const auto draw = static_cast<std::uint64_t>(at);
    const std::int64_t one_of = random.integer(draw, 0, 7);
    if (kind == 1) scores.set(at, static_cast<double>(one_of % 5) - 2);
    if (kind == 2) scores.set(at, static_cast<double>(j) / 64 - 30);
    if (kind == 3) scores.set(at, 30 - static_cast<double>(j) / 64);
    if (kind == 4) scores.set(at, -1.5);
    if (kind == 5) scores.set(at, one_of == 0 ? -1.0 : one_of % 2 == 0 ? 0.0 : -0.0);
    if (kind == 6 && one_of < 3) scores.set(at, one_of == 0 ? nan : one_of == 1 ? kInfinity : -kInfinity);
    if (kind == 7 && (j * 2 > run.k || one_of < 4)) scores.set(at, one_of == 0 ? nan : -kInfinity);
  }
}

}  // namespace

Tensors topk_inputs(const TopkRun& run, Fill kind, std::uint64_t seed) {
  Tensors made;
  Tensor scores(run.dtype, {run.m, run.n});
  fill(scores, kind, seed, 0);
  const CounterRandom random(seed, 3), more(seed, 4);
  for (std::int64_t row = 0; row < run.m && !run.is_usual; ++row) fill_row(run, scores, row, random);
  made.emplace("scores", std::move(scores));
  const auto list = [&](const char* name, auto&& value) {
    Tensor tensor(DType::s32, {run.m});
    for (std::int64_t row = 0; row < run.m; ++row)
      tensor.set(row, static_cast<double>(value(row, static_cast<std::uint64_t>(row) * 8)));
    made.emplace(name, std::move(tensor));
  };
  if (run.range != RowRange::all)
    list("lengths", [&](std::int64_t row, std::uint64_t at) -> std::int64_t {
      // Row 3 has k numbers, and no NaN or infinity among them; rows that follow soon have one less, one more, and
      // none.
      const std::int64_t some[] = {run.n, run.k, run.k + 1, 0, run.k - 1, run.n + 7, -3, 1};
      if (run.is_usual) return run.n;
      if (row % 16 == 4) return run.k - 1;
      return row % 2 == 1 ? some[row / 2 % 8] : more.integer(at, 0, run.n);
    });
  if (run.range == RowRange::starts)
    list("row_starts", [&](std::int64_t row, std::uint64_t at) -> std::int64_t {
      const std::int64_t some[] = {0, 1, run.n / 3, run.n + 1, -2};
      return row % 3 == 2 ? some[row / 3 % 5] : more.integer(at + 1, 0, run.n / 2);
    });
  if (run.index_form == IndexForm::pages) {
    Tensor table(DType::s32, {run.sequences, run.max_pages});
    const CounterRandom pages(seed, 5);
    for (std::int64_t i = 0; i < run.sequences * run.max_pages; ++i) {
      const auto at = static_cast<std::uint64_t>(i) * 2;
      table.set(i, pages.integer(at, 0, 15) == 0 ? -1.0 : static_cast<double>(pages.integer(at + 1, 0, 9999)));
    }
    made.emplace("block_table", std::move(table));
    list("row_sequences", [&](std::int64_t row, std::uint64_t at) -> std::int64_t {
      return row % 7 == 6 ? (row % 2 == 0 ? -1 : run.sequences) : more.integer(at + 2, 0, run.sequences - 1);
    });
  }
  if (run.index_form == IndexForm::offsets)
    list("offsets", [&](std::int64_t, std::uint64_t at) { return more.integer(at + 3, 0, 1 << 20); });
  if (run.guesses == WithGuesses::on) {
    // Off by so much of the range of ordinary numbers; a row of equals meets each too.
    constexpr double kOff[] = {0, -0.05, 0.3, -1, -kInfinity, std::numeric_limits<double>::quiet_NaN(), kInfinity};
    Tensor guesses(DType::f32, {run.m});
    for (std::int64_t row = 0; row < run.m; ++row)
      guesses.set(row, expected_of(run, made, row, {}).kth + kOff[(row + row / 9) % 7]);
    made.emplace("guesses", std::move(guesses));
  }
  return made;
}

Comparison check_topk(const TopkRun& run, const Tensors& in, const Tensors& out, int jobs) {
  const bool has_values = run.values == WithValues::on;
  if (!out.contains("indices") || (has_values && !out.contains("values")) ||
      (run.guesses == WithGuesses::on && !out.contains("kth")))
    throw Error(ErrorKind::usage, "an output of topk is missing");
  const Judged judged = judge(run, in, out, {}, run.m, jobs);
  Comparison result;
  result.rel_error = judged.indices.rel_error();
  result.max_abs_error = judged.indices.max_abs_error;
  result.cosine = judged.indices.cosine();
  result.rows_checked = result.rows_total = run.m;
  result.mismatches = judged.indices.mismatches;
  const std::vector<Axis> axes{{"row", run.m, {9}}, {"place", run.k, {32, 128}}};
  if (judged.indices.mismatched > 0) result.problems.push_back(describe_mismatches("indices", judged.indices, axes));
  if (judged.values.mismatched > 0) result.problems.push_back(describe_mismatches("values", judged.values, axes));
  if (judged.kth.mismatched > 0) result.problems.push_back(describe_mismatches("kth", judged.kth, axes));
  if (judged.indices.mismatched > 0) {
    const std::string cause = cause_of(run, in, out, jobs);
    if (!cause.empty()) result.problems.push_back(cause);
  }
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
