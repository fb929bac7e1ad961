// Pieces of a head go to threads: scores, maximum, sum and output of each row in float64, every element compared
// under its own bound, then the row is forgotten, so memory does not grow with the problem.
#include "reference/fmha.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>
#include <tuple>

#include "reference/fmha_bound.h"
#include "reference/fmha_sample.h"
#include "reference/parallel.h"
#include "reference/poison.h"
#include "spec/attention_facts.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMaxTrail = 8 * std::numbers::ln2;

FmhaSizes sizes_of(const FmhaInputs& in) {
  const auto demand = [](bool holds, const TensorView& view, const char* name) {
    if (!holds)
      throw Error(ErrorKind::usage, fmt::format("{}: shape [{}] does not fit the other tensors ([batch, seqlen, heads, "
                                                "head_dim]; heads_q a multiple of heads_kv)",
                                                name, fmt::join(view.shape, ", ")));
  };
  demand(in.q.shape.size() == 4, in.q, "q");
  demand(in.k.shape.size() == 4 && in.k.shape[0] == in.q.shape[0] && in.k.shape[3] == in.q.shape[3], in.k, "k");
  demand(in.v.shape.size() == 4 && std::equal(in.k.shape.begin(), in.k.shape.begin() + 3, in.v.shape.begin()), in.v,
         "v");
  demand(in.k.shape[2] > 0 && in.q.shape[2] % in.k.shape[2] == 0, in.k, "k");
  return {in.q.shape[0], in.q.shape[2], in.k.shape[2], in.q.shape[1], in.k.shape[1], in.q.shape[3], in.v.shape[3]};
}

std::int64_t offset_of(const TensorView& view, std::int64_t a, std::int64_t b, std::int64_t c) {
  return a * view.strides[0] + b * view.strides[1] + c * view.strides[2];
}

// As many values as `out` holds from `offset` on.
void read_row(const TensorView& view, std::int64_t offset, std::vector<double>& out) {
  for (std::size_t d = 0; d < out.size(); ++d)
    out[d] = view.at(offset + static_cast<std::int64_t>(d) * view.strides[3]);
}

std::int64_t used(const std::optional<TensorView>& lengths, std::int64_t batch, std::int64_t length) {
  return lengths ? std::clamp<std::int64_t>(std::llround(lengths->at(batch)), 0, length) : length;
}
std::int64_t key_beside(const FmhaInputs& in, const FmhaSizes& sizes, std::int64_t batch, std::int64_t row) {
  return row + used(in.seqused_k, batch, sizes.seqlen_k) - used(in.seqused_q, batch, sizes.seqlen_q);
}

double logit_of(double product, const FmhaCheck& check) {
  const double score = product * check.softmax_scale;
  return check.softcap > 0 ? check.softcap * std::tanh(score / check.softcap) : score;
}

bool sees_in_tree(const FmhaInputs& in, const FmhaSizes& sizes, const FmhaCheck& check, std::int64_t batch,
                  std::int64_t row, std::int64_t key) {
  const std::int64_t of_queries =
      key - used(in.seqused_k, batch, sizes.seqlen_k) + used(in.seqused_q, batch, sizes.seqlen_q);
  const std::int64_t words = check.tree_mask->shape.back();
  if (of_queries < 0) return true;
  if (of_queries >= 32 * words) return false;
  const std::int64_t first =
      check.tree_starts.empty() ? batch * sizes.seqlen_q : check.tree_starts[static_cast<std::size_t>(batch)];
  const auto word = static_cast<std::int64_t>(check.tree_mask->at((first + row) * words + of_queries / 32));
  return (word >> of_queries % 32 & 1) != 0;
}

// As read_row, times a factor of the sequence and head.
void read_scaled_row(const TensorView& view, const std::optional<TensorView>& descale, std::int64_t batch,
                     std::int64_t row, std::int64_t head, std::vector<double>& out) {
  read_row(view, offset_of(view, batch, row, head), out);
  if (!descale) return;
  const double factor = descale->at(batch * descale->strides[0] + head * descale->strides[1]);
  for (double& value : out) value *= factor;
}

// The keys [first, second) that a row sees.
std::pair<std::int64_t, std::int64_t> visible_keys(const FmhaInputs& in, const FmhaSizes& sizes, const FmhaCheck& check,
                                                   std::int64_t batch, std::int64_t row) {
  const std::int64_t queries = used(in.seqused_q, batch, sizes.seqlen_q);
  const std::int64_t keys = used(in.seqused_k, batch, sizes.seqlen_k);
  if (row >= queries) return {0, 0};
  const std::int64_t beside = row + keys - queries;
  std::int64_t end = keys, begin = 0;
  if (check.facts.mask == Mask::causal) end = std::min(end, beside + 1);
  if (check.window_size_right >= 0) end = std::min(end, beside + check.window_size_right + 1);
  if (check.window_size_left >= 0) begin = std::max<std::int64_t>(begin, beside - check.window_size_left);
  if (check.attention_chunk > 0 && beside >= 0)
    begin = std::max(begin, beside / check.attention_chunk * check.attention_chunk);
  return begin < end ? std::pair(begin, end) : std::pair<std::int64_t, std::int64_t>(0, 0);
}

// One row on its way: scores turn into p in place; sums over the keys per column.
struct RowWork {
  std::int64_t row = 0, begin = 0, end = 0;  // of the keys that it sees
  std::int64_t visible() const { return end - begin; }
  /// No key at all, or none whose score is more than -inf; a NaN among them is seen.
  bool sees_nothing() const { return visible() == 0 || (maximum == -kInfinity && sum == 0); }
  std::vector<double> q, p, value, abs_sum, square_sum, v_abs_sum;
  double maximum = -kInfinity, sum = 0, q_norm = 0, max_k_norm = 0, max_abs_score = 0, max_bias = 0, max_term = 0;
  double v_unit = 1;        // the descale of V
  std::int64_t beside = 0;  // the key beside the query
};

double norm(const std::vector<double>& x) {
  double square = 0;
  for (const double value : x) square += value * value;
  return std::sqrt(square);
}

// Rows of one head, all sums. Each key and value is decoded once for all of them.
std::vector<RowWork> compute_rows(const FmhaInputs& in, const FmhaSizes& sizes, const FmhaCheck& check,
                                  std::int64_t batch, std::int64_t head, std::span<const std::int64_t> rows) {
  const auto columns = static_cast<std::size_t>(sizes.head_dim);
  const auto v_columns = static_cast<std::size_t>(sizes.v_columns());
  const std::int64_t head_kv = head / (sizes.heads_q / sizes.heads_kv);
  const double slope = check.alibi_slopes ? check.alibi_slopes->at(head * check.alibi_slopes->strides[0]) : 0;
  std::vector<RowWork> work(rows.size());
  std::int64_t keys = 0, first_key = sizes.seqlen_k;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    RowWork& w = work[r];
    w.row = rows[r];
    if (in.v_descale)
      w.v_unit = std::fabs(in.v_descale->at(batch * in.v_descale->strides[0] + head_kv * in.v_descale->strides[1]));
    std::tie(w.begin, w.end) = visible_keys(in, sizes, check, batch, w.row);
    w.beside = key_beside(in, sizes, batch, w.row);
    w.q.resize(columns);
    read_row(in.q, offset_of(in.q, batch, w.row, head), w.q);
    if (in.q_descale) {
      const double factor = in.q_descale->at(batch * in.q_descale->strides[0] + head_kv * in.q_descale->strides[1]);
      for (double& value : w.q) value *= factor;
    }
    w.q_norm = norm(w.q);
    w.p.resize(static_cast<std::size_t>(w.visible()));
    for (auto* sums : {&w.value, &w.abs_sum, &w.square_sum, &w.v_abs_sum}) sums->assign(v_columns, 0.0);
    keys = std::max(keys, w.end);
    first_key = std::min(first_key, w.begin);
  }
  std::vector<double> element(columns);
  for (std::int64_t j = first_key; j < keys; ++j) {
    read_scaled_row(in.k, in.k_descale, batch, j, head_kv, element);
    const double k_norm = norm(element);
    for (RowWork& w : work) {
      if (j < w.begin || j >= w.end) continue;
      double score = 0;
      for (std::size_t d = 0; d < columns; ++d) score += w.q[d] * element[d];
      const bool is_seen = !check.tree_mask || sees_in_tree(in, sizes, check, batch, w.row, j);
      const double bias = slope * static_cast<double>(std::abs(w.beside - j));
      w.p[static_cast<std::size_t>(j - w.begin)] = !is_seen         ? -kInfinity
                                                   : check.is_exact ? score
                                                                    : logit_of(score, check) - bias;
      w.max_bias = std::max(w.max_bias, std::fabs(bias));
      w.max_abs_score = std::max(w.max_abs_score, std::fabs(score));
      w.max_k_norm = std::max(w.max_k_norm, k_norm);
      if (dtype_bytes(in.q.dtype) == 1) w.max_term = std::max(w.max_term, largest_term(w.q, element));
    }
  }
  for (RowWork& w : work) {
    for (const double s : w.p) w.maximum = std::max(w.maximum, s);
    // The exact scale is ln 2: exponentials of whole numbers to the base 2, without the rounding of ln 2. Where all
    // scores are -inf the row counts as one that sees no key.
    for (double& s : w.p) {
      const double distance = s == -kInfinity ? -kInfinity : s - w.maximum;
      w.sum += s = check.is_exact ? std::exp2(distance) : std::exp(distance);
    }
    if (check.is_exact) w.maximum *= check.softmax_scale;
  }
  element.resize(v_columns);
  for (std::int64_t j = first_key; j < keys; ++j) {
    read_scaled_row(in.v, in.v_descale, batch, j, head_kv, element);
    for (RowWork& w : work) {
      if (j < w.begin || j >= w.end) continue;
      const double p = w.p[static_cast<std::size_t>(j - w.begin)];
      for (std::size_t d = 0; d < v_columns; ++d) {
        const double product = p * element[d];
        w.value[d] += product;
        w.abs_sum[d] += std::fabs(product);
        w.square_sum[d] += product * product;
        w.v_abs_sum[d] += std::fabs(element[d]);
      }
    }
  }
  return work;
}

// Sums of all outputs over some rows.
struct Sums {
  ElementSums o, lse, row_max, row_sum;
};

class RowChecker {
 public:
  RowChecker(const FmhaInputs& inputs, const FmhaOutputs& outputs, const FmhaSizes& sizes, const FmhaCheck& check)
      : dtype_(dtype_bytes(inputs.k.dtype) < dtype_bytes(inputs.q.dtype) && !check.widens_to_queries ? DType::f16
                                                                                                     : inputs.q.dtype),
        has_descales_(inputs.q_descale || inputs.k_descale || inputs.v_descale),
        outputs_(outputs),
        sizes_(sizes),
        check_(check) {}

  void check(const RowWork& w, std::int64_t batch, std::int64_t head, Sums& sums) const {
    const FmhaRowBound bound(facts(w));
    const Coordinates at{batch, head, w.row, 0, 0};
    const bool is_empty = w.sees_nothing();
    const double lse = is_empty ? -kInfinity : w.maximum + std::log(w.sum);
    double rescale = 1;
    if (outputs_.row_max) {
      const double found = statistic(*outputs_.row_max, at);
      const double allowed = is_empty ? 0 : bound.row_max(w.maximum);
      // A kernel may leave its maximum behind the true one for a while, to save rescaling.
      const bool is_behind = !is_empty && found < w.maximum && found >= w.maximum - kMaxTrail - allowed;
      sums.row_max.add(judged({found, is_behind ? found : w.maximum, allowed, allowed * allowed, at}));
      // What is relative to the maximum is compared relative to the one that the kernel used.
      if (!check_.is_normalized() && !is_empty) rescale = rescale_from(w.maximum - found);
    }
    if (outputs_.row_sum) {
      const double value = w.sum * rescale;
      const double allowed = is_empty ? 0 : bound.row_sum(value) + maximum_roundings(w) * value;
      sums.row_sum.add(judged({statistic(*outputs_.row_sum, at), value, allowed, allowed * allowed, at}));
    }
    if (outputs_.lse) {
      const double allowed = is_empty ? 0 : bound.lse(lse, w.maximum);
      sums.lse.add(judged({statistic(*outputs_.lse, at), lse, allowed, allowed * allowed, at}));
    }
    check_columns(w, bound, at, rescale, sums.o);
  }

 private:
  FmhaRowFacts facts(const RowWork& w) const {
    FmhaRowFacts facts;
    facts.output_dtype = outputs_.o.dtype;
    facts.dtype = dtype_;
    facts.is_exact = check_.is_exact;
    facts.head_dim = sizes_.head_dim;
    facts.visible = w.visible();
    // A window may begin within a step.
    const std::int64_t more = (w.begin > 0 ? 1 : 0) + check_.num_splits - 1;
    facts.steps = more + (w.visible() + check_.tile_n - 1) / std::max(check_.tile_n, 1);
    facts.scale = check_.softmax_scale;
    facts.q_norm = w.q_norm;
    facts.max_k_norm = w.max_k_norm;
    facts.max_abs_score = w.max_abs_score;
    facts.softcap = check_.softcap;
    facts.max_bias = w.max_bias;
    facts.has_descales = has_descales_;
    facts.max_term = w.max_term;
    facts.has_f16_sums = keeps_f16_sums(check_.tile_m, sizes_.v_columns());
    facts.v_unit = w.v_unit;
    facts.promote_every = check_.promote_every;
    facts.lowered = check_.lowered;
    facts.has_long_sums = check_.has_long_sums;
    facts.has_random_signs = check_.judges_rel_error;
    return facts;
  }

  // exp(distance); of whole numbers exactly, whatever the roundings of ln 2 did to the distance.
  double rescale_from(double distance) const {
    return check_.is_exact ? std::exp2(std::nearbyint(distance / std::numbers::ln2)) : std::exp(distance);
  }

  // The kernel's maximum is known to us rounded and in other units: what that does to values relative to it.
  double maximum_roundings(const RowWork& w) const {
    return check_.is_normalized() || check_.is_exact ? 0.0 : 0x1p-22 * std::fabs(w.maximum);
  }

  /// Of inputs that are no numbers, or infinite, results are too, and no bound is a number: the same is right. That
  /// it was written is looked at for all of an output.
  static Element judged(const Element& element) {
    const bool is_same = (std::isnan(element.expected) && std::isnan(element.found)) ||
                         (std::isinf(element.expected) && element.found == element.expected);
    return is_same ? Element{.at = element.at} : element;
  }

  double statistic(const TensorView& view, const Coordinates& at) const {
    return view.at(at[0] * view.strides[0] + at[1] * view.strides[1] + at[2] * view.strides[2]);
  }

  /// exp(sink - m): what the head's sink adds to the sum.
  double sink_share(const RowWork& w, std::int64_t head) const {
    if (!check_.sink) return 0;
    const double logit = check_.sink->at(head * check_.sink->strides[0]);
    return check_.is_exact ? std::exp2((logit - w.maximum) / std::numbers::ln2) : std::exp(logit - w.maximum);
  }

  /// What the exponent of the sink errs by: its product with log2(e), which is rounded itself, and the difference; as
  /// a part of the sum, of which it may be all.
  double sink_roundings(const RowWork& w, std::int64_t head, double sum) const {
    if (!check_.sink || check_.is_exact) return 0;
    const double logit = check_.sink->at(head * check_.sink->strides[0]);
    if (std::isinf(logit)) return 0;  // none, or all of the sum: o is exactly 0
    const double part = std::isinf(sum) ? 1 : sink_share(w, head) / sum;
    return part > 0 ? part * 0x1p-22 * (std::fabs(logit) + std::fabs(w.maximum)) : 0;
  }

  void check_columns(const RowWork& w, const FmhaRowBound& bound, Coordinates at, double rescale,
                     ElementSums& sums) const {
    const std::int64_t offset = offset_of(outputs_.o, at[0], at[2], at[1]);
    for (std::size_t d = 0; d < w.value.size(); ++d) {
      at[3] = static_cast<std::int64_t>(d);
      Element element;
      element.at = at;
      element.found = outputs_.o.at(offset + at[3] * outputs_.o.strides[3]);
      if (!w.sees_nothing()) {
        FmhaRowBound::Column column;
        column.is_normalized = check_.is_normalized();
        column.abs_sum = w.abs_sum[d] * rescale;
        column.square_sum = w.square_sum[d] * rescale * rescale;
        column.v_abs_sum = w.v_abs_sum[d] * rescale;
        const double sum = w.sum + sink_share(w, at[1]);
        column.sum = sum * rescale;
        column.value = check_.is_normalized() ? w.value[d] / sum : w.value[d] * rescale;
        element.expected = column.value;
        const double extra = (maximum_roundings(w) + sink_roundings(w, at[1], sum)) * std::fabs(column.value);
        element.bound = bound.element(column) + extra;
        element.expected_square = bound.element_square(column) + extra * extra;
      }
      sums.add(judged(element));
    }
  }

  DType dtype_;
  bool has_descales_;
  const FmhaOutputs& outputs_;
  const FmhaSizes& sizes_;
  const FmhaCheck& check_;
};

void demand_shape(const TensorView& view, std::string_view name, const std::vector<std::int64_t>& shape) {
  if (view.shape != shape)
    throw Error(ErrorKind::usage, fmt::format("{}: shape [{}] found, [{}] expected", name, fmt::join(view.shape, ", "),
                                              fmt::join(shape, ", ")));
}

void report_output(std::string_view name, const ElementSums& sums, const std::vector<Axis>& axes,
                   const TensorView& view, Comparison& result) {
  const PoisonCount poison = count_poisoned(view);
  if (poison.poisoned > 0)
    result.problems.push_back(fmt::format("{}: {} of {} elements were never written, the first is element {}", name,
                                          poison.poisoned, element_count(view.shape), poison.first));
  if (sums.mismatched > 0) result.problems.push_back(describe_mismatches(name, sums, axes));
}

Comparison conclude(const Sums& sums, const FmhaOutputs& outputs, const FmhaSizes& sizes, const FmhaCheck& check) {
  Comparison result;
  const std::vector<Axis> rows = {{"batch", sizes.batch, {}},
                                  {"head", sizes.heads_q, {sizes.heads_q / sizes.heads_kv}},
                                  {"row", sizes.seqlen_q, {8, 16, 64, check.tile_m}}};
  std::vector<Axis> elements = rows;
  elements.push_back({"column", sizes.v_columns(), {2, 8, 16, 32, 64, 128}});
  report_output("o", sums.o, elements, outputs.o, result);
  if (outputs.lse) report_output("lse", sums.lse, rows, *outputs.lse, result);
  if (outputs.row_max) report_output("row_max", sums.row_max, rows, *outputs.row_max, result);
  if (outputs.row_sum) report_output("row_sum", sums.row_sum, rows, *outputs.row_sum, result);
  result.rel_error = sums.o.rel_error();
  result.rel_bound = sums.o.rel_bound();
  result.max_abs_error = sums.o.max_abs_error;
  result.cosine = sums.o.cosine();
  result.rows_checked = sums.o.checked / std::max<std::int64_t>(sizes.v_columns(), 1);
  result.rows_total = sizes.batch * sizes.heads_q * sizes.seqlen_q;
  if (check.judges_rel_error && !(result.rel_error <= result.rel_bound))
    result.problems.push_back(
        fmt::format("o: relative error {:.3g} over all checked rows, at most {:.3g} is explained by "
                    "independent roundings",
                    result.rel_error, result.rel_bound));
  result.pass = result.problems.empty();
  return result;
}

}  // namespace

TensorView first_columns(TensorView k, std::int64_t columns) {
  k.shape.back() = columns;
  return k;
}

FmhaRow fmha_row(const FmhaInputs& inputs, const FmhaCheck& check, std::int64_t batch, std::int64_t head,
                 std::int64_t row) {
  const FmhaSizes sizes = sizes_of(inputs);
  const RowWork work = std::move(compute_rows(inputs, sizes, check, batch, head, std::span(&row, 1)).front());
  FmhaRow result{work.value, work.maximum, work.sum, work.maximum + std::log(work.sum)};
  if (work.sees_nothing()) result.lse = -kInfinity;
  if (check.is_normalized() && !work.sees_nothing())
    for (double& value : result.o) value /= work.sum;
  return result;
}

Comparison check_fmha(const FmhaInputs& inputs, const FmhaOutputs& outputs, const FmhaCheck& check) {
  const FmhaSizes sizes = sizes_of(inputs);
  demand_shape(outputs.o, "o", {sizes.batch, sizes.seqlen_q, sizes.heads_q, sizes.v_columns()});
  for (const auto& [name, view] :
       {std::pair("lse", &outputs.lse), std::pair("row_max", &outputs.row_max), std::pair("row_sum", &outputs.row_sum)})
    if (*view) demand_shape(**view, name, {sizes.batch, sizes.heads_q, sizes.seqlen_q});
  if (!check.is_normalized() && !outputs.row_max)
    throw Error(ErrorKind::usage, "un-normalised outputs are compared relative to row_max: it must be given");
  // Pieces of a head keep the memory of their scores small and the threads busy.
  const auto rows_at_once = static_cast<std::size_t>(
      std::clamp<std::int64_t>((std::int64_t{1} << 21) / std::max<std::int64_t>(sizes.seqlen_k, 1), 1, 32));
  std::vector<HeadRows> pieces;
  for (const HeadRows& head : choose_rows(sizes, check))
    for (std::size_t first = 0; first < head.rows.size(); first += rows_at_once) {
      const std::size_t last = std::min(head.rows.size(), first + rows_at_once);
      pieces.push_back({head.batch,
                        head.head,
                        {head.rows.begin() + static_cast<std::ptrdiff_t>(first),
                         head.rows.begin() + static_cast<std::ptrdiff_t>(last)}});
    }
  const RowChecker checker(inputs, outputs, sizes, check);
  std::vector<Sums> parts(pieces.size());
  parallel_for(static_cast<std::int64_t>(pieces.size()), check.jobs, [&](std::int64_t i) {
    const HeadRows& piece = pieces[static_cast<std::size_t>(i)];
    for (const RowWork& work : compute_rows(inputs, sizes, check, piece.batch, piece.head, piece.rows))
      checker.check(work, piece.batch, piece.head, parts[static_cast<std::size_t>(i)]);
  });
  Sums sums;
  for (const Sums& part : parts) {
    sums.o.merge(part.o);
    sums.lse.merge(part.lse);
    sums.row_max.merge(part.row_max);
    sums.row_sum.merge(part.row_sum);
  }
  return conclude(sums, outputs, sizes, check);
}

FmhaTensors make_inputs(const FmhaSizes& s, DType dtype, Fill kind, std::uint64_t seed) {
  FmhaTensors t{Tensor(dtype, {s.batch, s.seqlen_q, s.heads_q, s.head_dim}),
                Tensor(dtype, {s.batch, s.seqlen_k, s.heads_kv, s.head_dim}),
                Tensor(dtype, {s.batch, s.seqlen_k, s.heads_kv, s.v_columns()})};
  fill(t.q, kind, seed, 0);
  fill(t.k, kind, seed, 1);
  fill(t.v, kind, seed, 2);
  return t;
}

Tensor make_tree_mask(const std::vector<std::int64_t>& queries, std::int64_t words, std::uint64_t seed) {
  Tensor mask(DType::s32, {std::accumulate(queries.begin(), queries.end(), std::int64_t{0}), words});
  std::mt19937_64 random(seed);
  std::int64_t first = 0;
  for (const std::int64_t count : queries) {
    std::vector<std::int64_t> parent;
    for (std::int64_t query = 0; query < count; ++query) {
      // A chain for the most part, with branches.
      const auto any = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(query + 1)) - 1;
      parent.push_back(random() % 3 != 0 ? query - 1 : any);
      std::vector<std::uint32_t> row(static_cast<std::size_t>(words));
      for (std::int64_t i = query; i >= 0; i = parent[static_cast<std::size_t>(i)])
        if (i < 32 * words) row[static_cast<std::size_t>(i / 32)] |= 1U << i % 32;
      for (std::int64_t i = 0; i < words; ++i)
        mask.set((first + query) * words + i, static_cast<std::int32_t>(row[static_cast<std::size_t>(i)]));
    }
    first += count;
  }
  return mask;
}

FmhaTensors make_integer_inputs(const FmhaSizes& sizes, DType dtype, std::uint64_t seed) {
  FmhaTensors t = make_inputs(sizes, dtype, Fill::integer, seed);
  fill(t.q, Fill::sparse_integer, seed, 0);
  fill(t.k, Fill::sign, seed, 1);
  return t;
}

}  // namespace tessera::reference
