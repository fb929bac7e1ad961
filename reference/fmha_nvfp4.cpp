#include "reference/fmha_nvfp4.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <utility>
#include <vector>

#include "reference/attention_quantize.h"
#include "reference/fmha_sample.h"
#include "reference/number.h"
#include "reference/parallel.h"
#include "reference/quantize.h"
#include "spec/nvfp4_units.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

constexpr double kEx2 = 2.1 * 0x1p-23, kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMmaStep = 5 * 0x1p-25 + 0x1p-23;
constexpr double kLargest = 448.0 * 6.0;
constexpr double kFlush = 0x1p-126, kSecondOrder = 1.01;

struct Sizes {
  std::int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim;
  std::int64_t q_blocks() const { return ceil_div(seqlen_q, nvfp4::kBlockRows); }
  std::int64_t key_blocks() const { return ceil_div(seqlen_k, nvfp4::kBlockRows); }
};

Sizes sizes_of(const Nvfp4Inputs& in, const Nvfp4Outputs& out, const Nvfp4Check& check) {
  if (out.o.shape.size() != 4 || in.k.shape.size() != 3 || in.k.shape[0] == 0)
    throw Error(ErrorKind::usage, "o [batch, seqlen_q, heads_q, head_dim] and k [heads_kv, key_blocks, bytes] needed");
  const Sizes s{out.o.shape[0], out.o.shape[2], in.k.shape[0], out.o.shape[1], check.seqlen_k, out.o.shape[3]};
  const std::int64_t q_blocks = s.batch * s.q_blocks(), key_blocks = s.batch * s.key_blocks();
  const int head_dim = static_cast<int>(s.head_dim);
  const std::vector<std::int64_t> keys{s.heads_kv, key_blocks, nvfp4::key_block_bytes(head_dim)};
  if (in.q.shape != std::vector<std::int64_t>{s.heads_q, q_blocks, nvfp4::q_block_bytes(head_dim)} ||
      in.k.shape != keys || in.v.shape != keys ||
      in.delta_s.shape != std::vector<std::int64_t>{s.heads_q, q_blocks, s.key_blocks() * nvfp4::kBlockRows} ||
      in.row_shift.shape != std::vector<std::int64_t>{s.batch, s.heads_q, s.seqlen_q})
    throw Error(ErrorKind::usage, "q, k, v, delta_s and row_shift must have shapes that fit o and seqlen_k");
  return s;
}

/// K and V of one head of one sequence.
struct KeyHead {
  UnitHead k, v;
  std::vector<double> k_norms;
};

double norm_of(const float* row, std::int64_t columns) {
  double sum = 0;
  for (std::int64_t i = 0; i < columns; ++i) sum += static_cast<double>(row[i]) * row[i];
  return std::sqrt(sum);
}

/// Those that a query head reads.
KeyHead keys_of(const Nvfp4Inputs& in, const Sizes& s, std::int64_t batch, std::int64_t head) {
  const std::int64_t key_head = head / (s.heads_q / s.heads_kv), first = batch * s.key_blocks();
  KeyHead keys{decode_units(in.k, UnitOperand::k, s.head_dim, key_head, first, s.seqlen_k),
               decode_units(in.v, UnitOperand::v, s.head_dim, key_head, first, s.seqlen_k),
               {}};
  for (std::int64_t key = 0; key < s.seqlen_k; ++key) keys.k_norms.push_back(norm_of(keys.k.row(key), s.head_dim));
  return keys;
}

struct Probability {
  double value = 0, error = 0;
};
/// The scale's value of a group whose largest is `largest`.
double scale_of(double largest) {
  return decode_scale(ScaleType::ue4m3, encode_ue4m3(static_cast<float>(largest / nvfp4::kLargestValue)));
}
double quantized(double p, double scale) {
  return scale == 0
             ? 0
             : scale * decode_value(ValueType::e2m1, encode_value(ValueType::e2m1, static_cast<float>(p / scale)));
}

/// 16 keys: p and their relative errors to what the kernel multiplies, in place.
void quantize_group(Probability* group, std::size_t keys) {
  double largest = 0, low = 0, high = 0;
  for (std::size_t i = 0; i < keys; ++i) {
    const auto& [p, error] = group[i];
    largest = std::max(largest, p);
    low = std::max(low, p * (1 - error - 3 * kU));
    high = std::max(high, p * (1 + error + 3 * kU));
  }
  const double scale = scale_of(largest), others[] = {scale_of(low), scale_of(high)};
  for (std::size_t i = 0; i < keys; ++i) {
    const double p = group[i].value, error = group[i].error + 0x1p-23 + 2 * kU;
    const double value = quantized(p, scale);
    double most = 0;
    for (const double other : {scale, others[0], others[1]})
      for (const double end : {p * (1 - error), p * (1 + error)})
        most = std::max(most, std::fabs(quantized(end, other) - value));
    group[i] = {value, most};
  }
}

/// A row's result, and how much it may err.
struct Row {
  std::vector<double> o, bound;
  double lse = -kInfinity, lse_bound = 0;
};

class Rows {
 public:
  Rows(const Nvfp4Inputs& in, const Sizes& s, const Nvfp4Check& check) : in_(in), s_(s), check_(check) {}

  Row row(const UnitHead& q, const KeyHead& keys, std::int64_t batch, std::int64_t head, std::int64_t row) const {
    const double factor = std::fabs(check_.softmax_scale) * std::numbers::log2e,
                 sign = check_.softmax_scale < 0 ? -1 : 1;
    const std::int64_t beside = row + s_.seqlen_k - s_.seqlen_q;
    std::int64_t begin = 0, end = s_.seqlen_k;
    if (check_.mask == Mask::causal) end = std::min(end, beside + 1);
    if (check_.window_size_right >= 0) end = std::min(end, beside + check_.window_size_right + 1);
    if (check_.window_size_left >= 0) begin = std::max<std::int64_t>(0, beside - check_.window_size_left);
    const auto columns = static_cast<std::size_t>(s_.head_dim);
    Row result{std::vector<double>(columns), std::vector<double>(columns), -kInfinity, 0};
    const double q_norm = norm_of(q.row(row), s_.head_dim), instructions = static_cast<double>(s_.head_dim) / 64;
    const std::int64_t delta_row = (head * s_.batch + batch) * s_.q_blocks() + row / nvfp4::kBlockRows;
    const std::int64_t delta_first = delta_row * s_.key_blocks() * nvfp4::kBlockRows;
    std::vector<double> sums(columns), allowed(columns), magnitudes(columns), of_values(columns);
    double maximum = -kInfinity, maximum_error = 0, sum = 0, sum_error = 0, eps_r = 0, changes = 0,
           instructions_of_o = 0;
    std::vector<double> scores, errors;
    std::vector<Probability> p;
    for (std::int64_t first = begin / check_.tile_n * check_.tile_n; first < end; first += check_.tile_n) {
      const std::int64_t last = std::min<std::int64_t>(first + check_.tile_n, end), from = std::max(first, begin);
      scores.assign(static_cast<std::size_t>(last - from), 0);
      errors = scores;
      double largest = maximum, largest_error = maximum_error;
      for (std::int64_t key = from; key < last; ++key) {
        const double delta = in_.delta_s.at(delta_first + key);
        double score = delta;
        for (std::int64_t c = 0; c < s_.head_dim; ++c) score += static_cast<double>(q.row(row)[c]) * keys.k.row(key)[c];
        const auto i = static_cast<std::size_t>(key - from);
        scores[i] = sign * score;
        errors[i] = instructions * kMmaStep * (q_norm * keys.k_norms[static_cast<std::size_t>(key)] + std::fabs(delta));
        largest_error = std::max(largest_error, errors[i]);
        largest = std::max(largest, scores[i]);
      }
      if (largest > maximum || largest_error > maximum_error) {
        // A row's largest may grow by what it errs by: counted as a change.
        const double change = maximum == -kInfinity ? 0 : factor * (largest - maximum);
        const double rescale = maximum == -kInfinity ? 0 : std::exp2(-change);
        for (std::size_t c = 0; c < columns; ++c) {
          sums[c] *= rescale;
          allowed[c] *= rescale;
          magnitudes[c] *= rescale;
        }
        sum *= rescale;
        sum_error *= rescale;
        eps_r += kEx2 + kU + 2 * std::numbers::ln2 * kU * change;
        changes += 1;
        maximum = largest;
        maximum_error = largest_error;
      }
      // Groups of 16 begin at multiples of 16, whatever the row sees of them.
      for (std::int64_t group = first; group < last; group += nvfp4::kGroup) {
        p.clear();
        const std::int64_t group_from = std::max(group, from), group_end = std::min(group + nvfp4::kGroup, last);
        for (std::int64_t key = group_from; key < group_end; ++key) {
          const auto i = static_cast<std::size_t>(key - from);
          const double distance = factor * (maximum - scores[i]);
          const double x = std::log2(kLargest) - distance;
          const double delta_x = factor * (errors[i] + maximum_error) +
                                 kU * (2 * distance + 2 * factor * std::fabs(maximum) + 24 + std::fabs(x));
          const double value = x < -126 ? 0 : std::exp2(x);
          const double error = std::expm1(std::numbers::ln2 * delta_x) + kEx2;
          p.push_back({value, error});
          sum += value;
          sum_error += value * error + kFlush;
        }
        if (p.empty()) continue;
        quantize_group(p.data(), p.size());
        for (std::int64_t key = group_from; key < group_end; ++key) {
          const auto& [value, error] = p[static_cast<std::size_t>(key - group_from)];
          for (std::size_t c = 0; c < columns; ++c) {
            const double v = keys.v.row(key)[c];
            sums[c] += value * v;
            magnitudes[c] += (value + error) * std::fabs(v);
            allowed[c] += error * std::fabs(v);
            of_values[c] += std::fabs(v);
          }
        }
      }
      instructions_of_o += static_cast<double>(check_.tile_n) / 64;
    }
    if (sum == 0) return result;
    const double seen = static_cast<double>(end - begin);
    const double eps_sum = sum_error / sum + (seen / 4 + changes + 8) * kU + eps_r;
    const double eps_a = instructions_of_o * kMmaStep + eps_r;
    for (std::size_t c = 0; c < columns; ++c) {
      result.o[c] = sums[c] / sum;
      result.bound[c] = kSecondOrder * (allowed[c] / sum + magnitudes[c] / sum * eps_a +
                                        std::fabs(result.o[c]) * (eps_sum + 0x1p-23 + kU)) +
                        kFlush * (1 + of_values[c]);
    }
    const double shift = check_.softmax_scale * in_.row_shift.at((batch * s_.heads_q + head) * s_.seqlen_q + row);
    const double logarithm = std::log2(sum);
    result.lse = std::numbers::ln2 * (factor * maximum + logarithm - std::log2(kLargest)) + shift;
    result.lse_bound = kSecondOrder * eps_sum + std::numbers::ln2 * (2.8e-7 + factor * maximum_error) +
                       8 * kU * (factor * std::fabs(maximum) + std::fabs(logarithm) + 12 + std::fabs(shift));
    return result;
  }

 private:
  const Nvfp4Inputs& in_;
  const Sizes& s_;
  const Nvfp4Check& check_;
};

}  // namespace

std::vector<std::vector<double>> fmha_nvfp4_rows(const Nvfp4Inputs& in, const FmhaSizes& sizes, const Nvfp4Check& check,
                                                 std::int64_t batch, std::int64_t head,
                                                 std::span<const std::int64_t> rows) {
  const Sizes s{sizes.batch, sizes.heads_q, sizes.heads_kv, sizes.seqlen_q, sizes.seqlen_k, sizes.head_dim};
  const UnitHead q = decode_units(in.q, UnitOperand::q, s.head_dim, head, batch * s.q_blocks(), s.seqlen_q);
  const KeyHead keys = keys_of(in, s, batch, head);
  const Rows of(in, s, check);
  std::vector<std::vector<double>> values;
  for (const std::int64_t row : rows) values.push_back(of.row(q, keys, batch, head, row).o);
  return values;
}

Comparison check_fmha_nvfp4(const Nvfp4Inputs& in, const Nvfp4Outputs& out, const Nvfp4Check& check) {
  const Sizes s = sizes_of(in, out, check);
  FmhaCheck sampling;
  sampling.tile_m = check.tile_m;
  sampling.max_multiply_adds = check.max_multiply_adds / 4;  // codes cost more than products
  sampling.seed = check.seed;
  const std::vector<HeadRows> chosen =
      choose_rows({s.batch, s.heads_q, s.heads_kv, s.seqlen_q, s.seqlen_k, s.head_dim}, sampling);
  struct Sums {
    ElementSums o, lse;
    std::int64_t rows = 0;
  };
  std::vector<Sums> parts(chosen.size());
  const Rows rows(in, s, check);
  parallel_for(static_cast<std::int64_t>(chosen.size()), check.jobs, [&](std::int64_t i) {
    const HeadRows& of = chosen[static_cast<std::size_t>(i)];
    Sums& sums = parts[static_cast<std::size_t>(i)];
    const UnitHead q = decode_units(in.q, UnitOperand::q, s.head_dim, of.head, of.batch * s.q_blocks(), s.seqlen_q);
    const KeyHead keys = keys_of(in, s, of.batch, of.head);
    const double roundoff = unit_roundoff(out.o.dtype), least = half_subnormal(out.o.dtype);
    for (const std::int64_t row : of.rows) {
      const Row result = rows.row(q, keys, of.batch, of.head, row);
      ++sums.rows;
      for (std::int64_t c = 0; c < s.head_dim; ++c) {
        Element element;
        element.expected = result.o[static_cast<std::size_t>(c)];
        const double rest = result.bound[static_cast<std::size_t>(c)], value = std::fabs(element.expected);
        element.found = out.o.at(of.batch * out.o.strides[0] + row * out.o.strides[1] + of.head * out.o.strides[2] +
                                 c * out.o.strides[3]);
        element.bound = rest + roundoff * (value + rest) + least;
        element.expected_square = roundoff * roundoff * value * value + rest * rest + least * least;
        element.at = {of.batch, row, of.head, c, 0};
        sums.o.add(element);
      }
      if (!out.lse) continue;
      Element element;
      element.expected = result.lse;
      element.found =
          out.lse->at(of.batch * out.lse->strides[0] + of.head * out.lse->strides[1] + row * out.lse->strides[2]);
      element.at = {of.batch, of.head, row, 0, 0};
      element.bound = result.lse_bound;
      element.expected_square = result.lse_bound * result.lse_bound;
      if (std::isinf(element.expected) && element.found == element.expected) element = {};
      sums.lse.add(element);
    }
  });
  Sums sums;
  for (const Sums& part : parts) {
    sums.o.merge(part.o);
    sums.lse.merge(part.lse);
    sums.rows += part.rows;
  }
  Comparison result;
  result.rel_error = sums.o.rel_error();
  result.rel_bound = sums.o.rel_bound();
  result.max_abs_error = sums.o.max_abs_error;
  result.cosine = sums.o.cosine();
  result.rows_checked = sums.rows;
  result.rows_total = s.batch * s.heads_q * s.seqlen_q;
  result.mismatches = sums.o.mismatches;
  if (sums.o.mismatched > 0)
    result.problems.push_back(describe_mismatches("o", sums.o,
                                                  {{"batch", s.batch, {}},
                                                   {"seqlen_q", s.seqlen_q, {8, 16, check.tile_m}},
                                                   {"heads_q", s.heads_q, {}},
                                                   {"head_dim", s.head_dim, {2, 8, 32}}}));
  if (sums.lse.mismatched > 0)
    result.problems.push_back(describe_mismatches(
        "lse", sums.lse, {{"batch", s.batch, {}}, {"heads_q", s.heads_q, {}}, {"seqlen_q", s.seqlen_q, {8, 16}}}));
  if (result.problems.empty() && result.rel_error > result.rel_bound)
    result.problems.push_back(fmt::format(
        "o: relative error {:.3g} over all checked rows, at most {:.3g} is explained by independent roundings",
        result.rel_error, result.rel_bound));
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
