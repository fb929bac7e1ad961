#include "reference/indexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/likely_cause.h"
#include "reference/number.h"
#include "reference/parallel.h"
#include "reference/poison.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

using Tensors = std::map<std::string, Tensor>;
constexpr std::int64_t kGroup = 32;

std::int64_t integer_at(const Tensor& tensor, std::int64_t i) {
  std::int32_t value = 0;
  std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
  return value;
}

const std::array<double, 256>& values_of_e4m3() {
  static const std::array<double, 256> table = [] {
    std::array<double, 256> values{};
    for (std::uint64_t bits = 0; bits < 256; ++bits) values[bits] = to_double(DType::e4m3, bits);
    return values;
  }();
  return table;
}

/// A key as numbers; zeros where a page is none.
struct Key {
  std::vector<double> elements;
  double scale = 0;
};

/// Codes of e2m1 in their order.
constexpr std::array<double, 16> kE2m1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

double value_of_ue8m0(std::byte code) {
  return code == std::byte{0xff} ? std::numeric_limits<double>::quiet_NaN()
                                 : std::ldexp(1.0, std::to_integer<int>(code) - 127);
}

/// What a kernel with a mistake would take instead.
struct Mistake {
  int scale_of = 0;   ///< of the key so many further, in its page or tensor
  int page_of = 0;    ///< of the table's entry so many further
  int weight_of = 0;  ///< xor-ed to the head
  int query_of = 0;   ///< xor-ed to the query whose weights are taken
  bool leaves_relu = false, leaves_scale = false;
  int block_of = 0;          ///< mxfp4: xor-ed to the block whose scale of a key is taken
  int head_of = 0;           ///< mxfp4: xor-ed to the head whose scales are taken
  bool swaps_codes = false;  ///< mxfp4: of a key's bytes the upper code is the first
  bool takes_no_page_for_first = false;
};

class Scores {
 public:
  Scores(const IndexerRun& run, const Tensors& inputs)
      : run_(run),
        q_(inputs.at("q")),
        weights_(inputs.at("weights")),
        table_(nullptr),
        keys_(nullptr),
        scales_(nullptr),
        q_scales_(run.format == IndexFormat::mxfp4 ? &inputs.at("q_scales") : nullptr) {
    if (run.is_paged) {
      table_ = &inputs.at("block_table");
      keys_ = &inputs.at("cache");
    } else {
      keys_ = &inputs.at("k");
      scales_ = &inputs.at("k_scales");
    }
  }

  std::vector<double> query(std::int64_t i, const Mistake& mistake = {}) const {
    const std::int64_t count = run_.heads * run_.head_dim;
    std::vector<double> elements(static_cast<std::size_t>(count));
    if (q_scales_ != nullptr) {
      for (std::int64_t head = 0; head < run_.heads; ++head) {
        const std::int64_t of_head = i * run_.heads + head, of_scales = i * run_.heads + (head ^ mistake.head_of);
        widen(q_.bytes.data() + of_head * run_.head_dim / 2, q_scales_->bytes.data() + 4 * of_scales, {},
              elements.data() + head * run_.head_dim);
      }
      return elements;
    }
    for (std::int64_t e = 0; e < count; ++e)
      elements[static_cast<std::size_t>(e)] = number(q_.bytes[static_cast<std::size_t>(i * count + e)]);
    return elements;
  }

  void read_key(std::int64_t query, std::int64_t j, const Mistake& mistake, Key& key) const {
    key.elements.assign(static_cast<std::size_t>(run_.head_dim), 0.0);
    key.scale = 0;
    const std::byte* elements = nullptr;
    const std::byte* scale = nullptr;
    const std::int64_t row = index_row_bytes(run_);
    if (run_.is_paged) {
      const std::int64_t entry = std::min(j / run_.page_size + mistake.page_of, run_.max_pages - 1);
      std::int64_t page = integer_at(*table_, query / run_.next_n * run_.max_pages + entry);
      if ((page < 0 || page >= run_.pages) && mistake.takes_no_page_for_first) page = 0;
      if (page < 0 || page >= run_.pages) return;
      const std::byte* const begin = keys_->bytes.data() + page * run_.page_size * (row + 4);
      const std::int64_t at = j % run_.page_size;
      elements = begin + at * row;
      scale = begin + run_.page_size * row + 4 * ((at + mistake.scale_of) % run_.page_size);
    } else {
      elements = keys_->bytes.data() + j * row;
      scale = scales_->bytes.data() + 4 * std::min(j + mistake.scale_of, run_.n - 1);
    }
    if (q_scales_ != nullptr) {
      widen(elements, scale, mistake, key.elements.data());
      key.scale = 1.0;
      return;
    }
    for (std::int64_t e = 0; e < run_.head_dim; ++e) key.elements[static_cast<std::size_t>(e)] = number(elements[e]);
    float value = 0;
    std::memcpy(&value, scale, 4);
    key.scale = mistake.leaves_scale ? 1.0 : value;
  }

  double weight(std::int64_t query, std::int64_t head) const { return weights_.at(query * run_.heads + head); }

  /// head_dim codes of e2m1 with their scales.
  void widen(const std::byte* codes, const std::byte* scales, const Mistake& mistake, double* to) const {
    for (std::int64_t e = 0; e < run_.head_dim; ++e) {
      const bool is_upper = (e % 2 == 1) != mistake.swaps_codes;
      const auto code = std::to_integer<std::size_t>(codes[e / 2] >> (is_upper ? 4 : 0)) & 15;
      const double scale = mistake.leaves_scale ? 1.0 : value_of_ue8m0(scales[e / kGroup ^ mistake.block_of]);
      to[e] = kE2m1[code] * scale;
    }
  }

  Element score(std::int64_t i, const std::vector<double>& query, const Key& key, const Mistake& mistake = {}) const {
    Element element;
    const double cut = std::ldexp(1.0, -run_.fraction_bits);
    double magnitude = 0;
    for (std::int64_t head = 0; head < run_.heads; ++head) {
      const double* const a = query.data() + head * run_.head_dim;
      double sum = 0, bound = 0, top = 0, all = 0;
      for (std::int64_t first = 0; first < run_.head_dim; first += kGroup) {
        double of_group = 0, largest = 0;
        for (std::int64_t e = first; e < first + kGroup; ++e) {
          const double product = a[e] * key.elements[static_cast<std::size_t>(e)];
          of_group += product;
          largest = std::max(largest, std::fabs(product));
          all += std::fabs(product);
        }
        top = std::max({top, largest, std::fabs(sum) + bound});
        sum += of_group;
        bound += cut * (33 * top + std::max(top, std::fabs(sum) + bound));
      }
      double square = top * top * cut * cut * 12 * static_cast<double>(run_.head_dim / kGroup);
      if (q_scales_ != nullptr) {
        const auto steps = static_cast<double>(run_.head_dim / 16);
        bound = steps * 5.25 * 0x1p-23 * all;
        square = steps * 0x1p-46 * top * top;
      }
      const double w = weight(std::min(i ^ mistake.query_of, run_.m - 1), head ^ mistake.weight_of);
      const double relu = mistake.leaves_relu ? sum : std::max(sum, 0.0);
      element.expected += w * relu;
      magnitude += std::fabs(w) * std::fabs(relu);
      element.bound += std::fabs(w) * bound;
      element.expected_square += w * w * square;
    }
    const double scale = std::fabs(key.scale);
    element.expected *= key.scale;
    const double rounded = (static_cast<double>(run_.heads) / 4 + 8) * kU * scale * magnitude + 0x1p-126;
    element.bound = element.bound * scale + rounded;
    element.expected_square = element.expected_square * scale * scale + rounded * rounded;
    if (run_.score_dtype != DType::f32) {
      const double u = unit_roundoff(run_.score_dtype);
      element.bound += u * (std::fabs(element.expected) + element.bound) + half_subnormal(run_.score_dtype);
      element.expected_square += u * u * element.expected * element.expected;
    }
    return element;
  }

 private:
  static double number(std::byte bits) { return values_of_e4m3()[static_cast<std::size_t>(bits)]; }

  const IndexerRun& run_;
  const Tensor& q_;
  const Tensor& weights_;
  const Tensor* table_;
  const Tensor* keys_;
  const Tensor* scales_;
  const Tensor* q_scales_;  ///< of mxfp4
};

std::vector<std::int64_t> chosen_rows(const IndexerRun& run, const Tensors& inputs) {
  std::vector<std::int64_t> rows;
  std::int64_t left = run.max_multiply_adds;
  const auto take = [&](std::int64_t row) {
    const KeyRange range = indexer_range(run, inputs, row);
    left -= (range.end - range.begin) * run.heads * run.head_dim;
    rows.push_back(row);
  };
  // In an order that begins with the ends and is spread over all rows: a step that has no divisor with m in common.
  std::int64_t step = std::max<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(run.m) * 0.618), 1);
  while (std::gcd(step, run.m) != 1) ++step;
  for (std::int64_t i = 0, row = run.m - 1; i < run.m && left >= 0; ++i, row = (row + step) % run.m) take(row);
  std::sort(rows.begin(), rows.end());
  return rows;
}

struct RowResult {
  ElementSums sums;
  std::int64_t outside_wrong = 0, unwritten = 0;
  std::int64_t first_outside = -1, first_unwritten = -1;
};

std::vector<Suspect> suspects(const IndexerRun& run, const Scores& scores) {
  const auto guess = [&run, &scores](const Coordinates& at, const Mistake& mistake) -> Guess {
    Key key;
    scores.read_key(at[0], at[2], mistake, key);
    const Element element = scores.score(at[0], scores.query(at[0], mistake), key, mistake);
    return {element.expected, element.bound};
  };
  const auto suspect = [&](const char* cause, const Mistake& mistake) {
    return Suspect{cause, [=](const Coordinates& at) { return guess(at, mistake); }};
  };
  std::vector<Suspect> list = {suspect("negative products are not left out", {.leaves_relu = true}),
                               suspect("weights of neighbouring heads are exchanged", {.weight_of = 1}),
                               suspect("weights of another query are taken", {.query_of = 1}),
                               suspect("a key has the scale of the next one", {.scale_of = 1}),
                               suspect("scales of keys are left out", {.leaves_scale = true})};
  if (run.format == IndexFormat::mxfp4) {
    list.push_back(suspect("scales of neighbouring blocks of a key are exchanged", {.block_of = 1}));
    list.push_back(suspect("scales of neighbouring heads are exchanged", {.head_of = 1}));
    list.push_back(suspect("of a byte of keys the upper code is taken for the first", {.swaps_codes = true}));
  }
  if (run.is_paged) {
    list.push_back(suspect("keys of the table's next page are taken", {.page_of = 1}));
    Suspect first_page =
        suspect("an entry of the table that is no page is taken for page 0", {.takes_no_page_for_first = true});
    list.push_back(first_page);
    first_page.gives_nan = true;  // where nobody wrote to page 0
    list.push_back(std::move(first_page));
  }
  return list;
}

}  // namespace

KeyRange indexer_range(const IndexerRun& run, const Tensors& inputs, std::int64_t query) {
  KeyRange range;
  if (run.is_paged) {
    const std::int64_t of_last = run.next_n - 1 - query % run.next_n;
    const bool is_own = run.context_lengths == ContextLengths::query;
    const std::int64_t length = integer_at(inputs.at("context_lens"), is_own ? query : query / run.next_n);
    range.end = std::min({is_own ? length : length - of_last, run.max_pages * run.page_size, run.columns});
  } else {
    range.begin = std::max<std::int64_t>(integer_at(inputs.at("ks"), query), 0);
    range.end = std::min(integer_at(inputs.at("ke"), query), run.n);
    range.end = std::min(range.end, run.score_columns == ScoreColumns::keys ? run.columns : range.begin + run.columns);
  }
  if (range.end <= range.begin) return {};
  return range;
}

Comparison check_indexer(const IndexerRun& run, const Tensors& inputs, const TensorView& found, int jobs) {
  if (found.shape != std::vector{run.m, run.columns} ||
      inputs.at("q").elements() != run.m * run.heads * index_row_bytes(run))
    throw Error(ErrorKind::usage, "q and scores must have shapes that fit each other");
  const Scores scores(run, inputs);
  const std::vector<std::int64_t> rows = run.m > 0 ? chosen_rows(run, inputs) : std::vector<std::int64_t>{};
  std::vector<RowResult> pieces(static_cast<std::size_t>(run.m));
  const std::uint64_t poison = run.score_dtype == DType::f32 ? 0xffffffffu : 0xffffu;
  const std::uint64_t minus_inf = run.score_dtype == DType::f32 ? 0xff800000u : 0xff80u;
  const bool is_compressed = run.score_columns == ScoreColumns::compressed;
  parallel_for(run.m, jobs, [&](std::int64_t row) {
    RowResult& result = pieces[static_cast<std::size_t>(row)];
    const KeyRange range = indexer_range(run, inputs, row);
    const std::int64_t shift = is_compressed ? range.begin : 0, begin = row * found.strides[0];
    for (std::int64_t column = 0; column < run.columns; ++column) {
      const std::int64_t key = column + shift;
      const std::uint64_t bits = found.bits_at(begin + column);
      if (key >= range.begin && key < range.end) {
        if (bits == poison && result.unwritten++ == 0) result.first_unwritten = column;
      } else if (bits != (run.outside == Outside::minus_inf ? minus_inf : poison)) {
        if (result.outside_wrong++ == 0) result.first_outside = column;
      }
    }
    if (!std::binary_search(rows.begin(), rows.end(), row)) return;
    const std::vector<double> query = scores.query(row);
    Key key;
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      scores.read_key(row, j, {}, key);
      Element element = scores.score(row, query, key);
      element.found = found.at(begin + j - shift);
      element.at = {row, j - shift, j, 0, 0};
      result.sums.add(element);
    }
  });
  ElementSums sums;
  std::int64_t outside_wrong = 0, unwritten = 0;
  std::string first_outside, first_unwritten;
  for (std::int64_t row = 0; row < run.m; ++row) {
    const RowResult& piece = pieces[static_cast<std::size_t>(row)];
    sums.merge(piece.sums);
    if (piece.outside_wrong > 0 && outside_wrong == 0)
      first_outside = fmt::format("[{}, {}]", row, piece.first_outside);
    if (piece.unwritten > 0 && unwritten == 0) first_unwritten = fmt::format("[{}, {}]", row, piece.first_unwritten);
    outside_wrong += piece.outside_wrong;
    unwritten += piece.unwritten;
  }
  Comparison result;
  result.rel_error = sums.rel_error();
  result.rel_bound = sums.rel_bound();
  result.max_abs_error = sums.max_abs_error;
  result.cosine = sums.cosine();
  result.rows_checked = static_cast<std::int64_t>(rows.size());
  result.rows_total = run.m;
  result.mismatches = sums.mismatches;
  if (outside_wrong > 0)
    result.problems.push_back(fmt::format("scores: {} elements outside of ranges are not {}; first at {}",
                                          outside_wrong, run.outside == Outside::minus_inf ? "-inf" : "left alone",
                                          first_outside));
  if (unwritten > 0)
    result.problems.push_back(
        fmt::format("scores: {} elements of ranges were not written; first at {}", unwritten, first_unwritten));
  if (sums.mismatched > 0) {
    result.problems.push_back(describe_mismatches(
        "scores", sums,
        {{"row", run.m, {run.next_n, 2, 4, 8}}, {"column", run.columns, {8, 16, 64, 128}}, {"key", run.n, {}}}));
    if (std::string cause = likely_cause(sums.mismatches, suspects(run, scores)); !cause.empty())
      result.problems.push_back(std::move(cause));
  }
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
