#include "reference/fmha_nvfp4_rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "reference/number.h"
#include "reference/quantize.h"

namespace tessera::reference {

namespace {

constexpr double kEx2 = 2.1 * 0x1p-23, kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMmaStep = 5 * 0x1p-25 + 0x1p-23;
constexpr double kLargest = 448.0 * 6.0;
constexpr double kFlush = 0x1p-126, kSecondOrder = 1.01;

double norm_of(const float* row, std::int64_t columns) {
  double sum = 0;
  for (std::int64_t i = 0; i < columns; ++i) sum += static_cast<double>(row[i]) * row[i];
  return std::sqrt(sum);
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

/// What keys of a row add up to, P as it is raised, relative to the largest logit; and how much each may err.
struct Part {
  explicit Part(std::size_t columns) : sums(columns), allowed(columns), magnitudes(columns), of_values(columns) {}
  std::vector<double> sums, allowed, magnitudes, of_values;
  double maximum = -kInfinity, maximum_error = 0;  ///< times the factor it is log2 of an exponential
  double sum = 0, sum_error = 0;
};

struct Score {
  double value = -kInfinity, error = 0;
  bool is_hidden() const { return value == -kInfinity; }
};

class Rows {
 public:
  Rows(const Nvfp4Inputs& in, const Nvfp4Sizes& s, const Nvfp4Check& check) : in_(in), s_(s), check_(check) {}

  Nvfp4Row row(const UnitHead& q, const Nvfp4KeyHead& keys, std::int64_t batch, std::int64_t head,
               std::int64_t row) const {
    const Place at{q, keys, batch, head, row, norm_of(q.row(row), s_.head_dim), shift_of(batch, head, row)};
    std::vector<Part> parts;
    for (const auto& [first, end] : blocks_of(row)) parts.push_back(attend(at, first, end));
    return result_of(parts, at);
  }

 private:
  struct Place {
    const UnitHead& q;
    const Nvfp4KeyHead& keys;
    std::int64_t batch, head, row;
    double q_norm, shift;
  };
  using Range = std::pair<std::int64_t, std::int64_t>;

  bool caps() const { return check_.softcap > 0; }
  double outer() const { return std::numbers::log2e * (caps() ? check_.softcap : check_.softmax_scale); }
  double factor() const { return check_.alibi_slopes ? 1 : std::fabs(outer()); }
  double shift_of(std::int64_t batch, std::int64_t head, std::int64_t row) const {
    return in_.row_shift.at((batch * s_.heads_q + head) * s_.seqlen_q + row);
  }
  /// Of a row's logits what its scores have not, times log2(e).
  double apart_of(const Place& at) const { return caps() ? 0 : check_.softmax_scale * std::numbers::log2e * at.shift; }

  Range visible(std::int64_t row) const {
    const std::int64_t beside = row + s_.seqlen_k - s_.seqlen_q;
    std::int64_t begin = 0, end = s_.seqlen_k;
    if (check_.mask == Mask::causal) end = std::min(end, beside + 1);
    if (check_.window_size_right >= 0) end = std::min(end, beside + check_.window_size_right + 1);
    if (check_.window_size_left >= 0) begin = std::max<std::int64_t>(0, beside - check_.window_size_left);
    if (check_.attention_chunk > 0 && beside >= 0) begin = beside / check_.attention_chunk * check_.attention_chunk;
    return {begin, std::max(begin, end)};
  }

  /// The blocks of tile_n keys that a row's tile walks over: of each part.
  std::vector<Range> blocks_of(std::int64_t row) const {
    const std::int64_t first_row = row / check_.tile_m * check_.tile_m;
    const std::int64_t last_row = std::min(first_row + check_.tile_m, s_.seqlen_q) - 1;
    const std::int64_t first = visible(first_row).first / check_.tile_n;
    const std::int64_t end = std::max<std::int64_t>(first, ceil_div(visible(last_row).second, check_.tile_n));
    if (check_.num_splits == 0) return {{first, end}};
    const std::int64_t of_part =
        check_.split_size > 0 ? check_.split_size / check_.tile_n : ceil_div(end - first, check_.num_splits);
    std::vector<Range> parts;
    for (std::int64_t i = 0; i < check_.num_splits; ++i) {
      const std::int64_t begin = std::min(end, first + i * of_part);
      parts.emplace_back(begin, std::min(end, begin + of_part));
    }
    return parts;
  }

  bool is_hidden_by_tree(const Place& at, std::int64_t key) const {
    const std::int64_t of_queries = key - (s_.seqlen_k - s_.seqlen_q);
    if (!check_.tree_mask || of_queries < 0) return false;
    const TensorView& tree = *check_.tree_mask;
    if (of_queries / 32 >= tree.shape[2]) return true;
    const auto word = static_cast<std::int64_t>(
        tree.at(at.batch * tree.strides[0] + at.row * tree.strides[1] + of_queries / 32 * tree.strides[2]));
    return (word >> (of_queries % 32) & 1) == 0;
  }

  Score score_of(const Place& at, std::int64_t key) const {
    if (is_hidden_by_tree(at, key)) return {};
    const std::int64_t delta_row = (at.head * s_.batch + at.batch) * s_.q_blocks() + at.row / nvfp4::kBlockRows;
    const double delta = in_.delta_s.at(delta_row * s_.key_blocks() * nvfp4::kBlockRows + key);
    double score = delta;
    for (std::int64_t c = 0; c < s_.head_dim; ++c)
      score += static_cast<double>(at.q.row(at.row)[c]) * at.keys.k.row(key)[c];
    const double instructions = static_cast<double>(s_.head_dim) / 64;
    double error =
        instructions * kMmaStep * (at.q_norm * at.keys.k_norms[static_cast<std::size_t>(key)] + std::fabs(delta));
    if (caps()) {
      score += at.shift;
      error = std::fabs(check_.softmax_scale) / check_.softcap * (error + kU * std::fabs(score)) + 12 * kU;
      score = std::tanh(check_.softmax_scale * score / check_.softcap);
    } else if (!check_.alibi_slopes && check_.softmax_scale < 0) {
      score = -score;
    }
    if (!check_.alibi_slopes) return {score, error};
    const double slope = check_.alibi_slopes->at(at.head * check_.alibi_slopes->strides[0]);
    const double bias =
        slope * std::numbers::log2e * std::fabs(static_cast<double>(at.row + s_.seqlen_k - s_.seqlen_q - key));
    const double lowered = score * outer() - bias;
    return {lowered, std::fabs(outer()) * (error + 2 * kU * std::fabs(score)) + 4 * kU * std::fabs(bias) +
                         kU * std::fabs(lowered)};
  }

  Part attend(const Place& at, std::int64_t first_block, std::int64_t end_block) const {
    const double f = factor();
    const auto [begin, end] = visible(at.row);
    const auto columns = static_cast<std::size_t>(s_.head_dim);
    Part part(columns);
    double eps_r = 0, changes = 0, instructions_of_o = 0, seen = 0;
    std::vector<Score> scores;
    std::vector<Probability> p;
    for (std::int64_t block = first_block; block < end_block; ++block) {
      instructions_of_o += static_cast<double>(check_.tile_n) / 64;
      const std::int64_t first = block * check_.tile_n;
      const std::int64_t last = std::min<std::int64_t>(first + check_.tile_n, end), from = std::max(first, begin);
      scores.clear();
      double largest = part.maximum, largest_error = part.maximum_error;
      for (std::int64_t key = from; key < last; ++key) {
        scores.push_back(score_of(at, key));
        largest_error = std::max(largest_error, scores.back().error);
        largest = std::max(largest, scores.back().value);
      }
      if (largest == -kInfinity || scores.empty()) continue;
      if (largest > part.maximum || largest_error > part.maximum_error) {
        // A row's largest may grow by what it errs by: counted as a change.
        const double change = part.maximum == -kInfinity ? 0 : f * (largest - part.maximum);
        const double rescale = part.maximum == -kInfinity ? 0 : std::exp2(-change);
        for (std::size_t c = 0; c < columns; ++c) {
          part.sums[c] *= rescale;
          part.allowed[c] *= rescale;
          part.magnitudes[c] *= rescale;
        }
        part.sum *= rescale;
        part.sum_error *= rescale;
        eps_r += kEx2 + kU + 2 * std::numbers::ln2 * kU * change;
        changes += 1;
        part.maximum = largest;
        part.maximum_error = largest_error;
      }
      seen += static_cast<double>(last - from);
      // Groups of 16 begin at multiples of 16, whatever the row sees of them.
      for (std::int64_t group = first; group < last; group += nvfp4::kGroup) {
        p.clear();
        const std::int64_t group_from = std::max(group, from), group_end = std::min(group + nvfp4::kGroup, last);
        for (std::int64_t key = group_from; key < group_end; ++key) {
          const Score& score = scores[static_cast<std::size_t>(key - from)];
          if (score.is_hidden()) {
            p.push_back({});
            continue;
          }
          const double distance = f * (part.maximum - score.value);
          const double x = std::log2(kLargest) - distance;
          const double delta_x = f * (score.error + part.maximum_error) +
                                 kU * (2 * distance + 2 * f * std::fabs(part.maximum) + 24 + std::fabs(x));
          const double value = x < -126 ? 0 : std::exp2(x);
          const double error = std::expm1(std::numbers::ln2 * delta_x) + kEx2;
          p.push_back({value, error});
          part.sum += value;
          part.sum_error += value * error + kFlush;
        }
        if (p.empty()) continue;
        quantize_group(p.data(), p.size());
        for (std::int64_t key = group_from; key < group_end; ++key) {
          const auto& [value, error] = p[static_cast<std::size_t>(key - group_from)];
          for (std::size_t c = 0; c < columns; ++c) {
            const double v = at.keys.v.row(key)[c];
            part.sums[c] += value * v;
            part.magnitudes[c] += (value + error) * std::fabs(v);
            part.allowed[c] += error * std::fabs(v);
            part.of_values[c] += std::fabs(v);
          }
        }
      }
    }
    part.sum_error += part.sum * ((seen / 4 + changes + 8) * kU + eps_r);
    for (std::size_t c = 0; c < columns; ++c)
      part.allowed[c] += part.magnitudes[c] * (instructions_of_o * kMmaStep + eps_r);
    return part;
  }

  /// What a maximum that leaves the kernel errs by, as log2.
  double maximum_error(const Part& part, const Place& at) const {
    const double of_scores = factor() * std::fabs(part.maximum), apart = apart_of(at);
    return factor() * part.maximum_error +
           kU * (3 * of_scores + 4 * std::fabs(apart) + std::fabs(factor() * part.maximum + apart));
  }

  Part merged(const std::vector<Part>& parts, const Place& at) const {
    Part all(static_cast<std::size_t>(s_.head_dim));
    const Part* largest = nullptr;
    for (const Part& part : parts)
      if (part.maximum > all.maximum) {
        largest = &part;
        all.maximum = part.maximum;
      }
    if (largest == nullptr) return all;
    all.maximum_error = largest->maximum_error;
    for (const Part& part : parts) {
      if (part.sum == 0) continue;
      const double distance = factor() * (all.maximum - part.maximum), weight = std::exp2(-distance);
      const double eps =
          std::expm1(std::numbers::ln2 * (maximum_error(part, at) + maximum_error(*largest, at) + kU * distance)) +
          kEx2 + (4 + static_cast<double>(parts.size())) * kU;
      for (std::size_t c = 0; c < all.sums.size(); ++c) {
        all.sums[c] += weight * part.sums[c];
        all.magnitudes[c] += weight * part.magnitudes[c];
        all.allowed[c] += weight * (part.allowed[c] + part.magnitudes[c] * eps);
        all.of_values[c] += part.of_values[c];
      }
      all.sum += weight * part.sum;
      all.sum_error += weight * (part.sum_error + part.sum * eps) + kFlush;
    }
    return all;
  }

  Nvfp4Row result_of(const std::vector<Part>& parts, const Place& at) const {
    const auto columns = static_cast<std::size_t>(s_.head_dim);
    Nvfp4Row result;
    result.o.resize(columns);
    result.bound.resize(columns);
    const Part all = check_.num_splits == 0 ? parts.front() : merged(parts, at);
    if (all.sum == 0) return result;
    const double apart = apart_of(at), log_largest = std::log2(kLargest);
    const double reference = factor() * all.maximum + apart, of_reference = maximum_error(all, at);
    const double eps_sum = all.sum_error / all.sum, flush = kFlush * static_cast<double>(parts.size());
    const bool is_divided = check_.output == Output::normalized;
    double whole = all.sum, eps_whole = eps_sum;
    if (check_.sink && is_divided) {
      const double sink = std::numbers::log2e * check_.sink->at(at.head * check_.sink->strides[0]);
      const double share = std::exp2(sink - reference + log_largest);
      if (share > 0) {
        const double eps = std::expm1(std::numbers::ln2 *
                                      (of_reference + kU * (2 * std::fabs(sink) + 24 + std::fabs(sink - reference)))) +
                           kEx2;
        whole += share;
        eps_whole = (std::isinf(whole) ? 0 : (all.sum_error + share * eps) / whole) + kU;
      }
    }
    const double divisor = is_divided ? whole : kLargest;
    const double of_divisor = is_divided ? eps_whole + 0x1p-23 + kU : 2 * kU;
    const bool may_vanish = is_divided && whole > 0x1p125;
    for (std::size_t c = 0; c < columns; ++c) {
      result.o[c] = all.sums[c] / divisor;
      result.bound[c] = kSecondOrder * (all.allowed[c] / divisor + std::fabs(result.o[c]) * of_divisor) +
                        flush * (1 + all.of_values[c]) + (may_vanish ? std::fabs(result.o[c]) : 0);
    }
    const double logarithm = std::log2(all.sum);
    result.lse = std::numbers::ln2 * (reference + logarithm - log_largest);
    result.lse_bound = kSecondOrder * eps_sum + std::numbers::ln2 * (2.8e-7 + of_reference) +
                       8 * kU * (factor() * std::fabs(all.maximum) + std::fabs(logarithm) + 12 + std::fabs(apart));
    result.row_max = std::numbers::ln2 * reference;
    result.row_max_bound = std::numbers::ln2 * of_reference + 2 * kU * std::fabs(result.row_max);
    result.row_sum = all.sum / kLargest;
    result.row_sum_bound = kSecondOrder * (eps_sum + 3 * kU) * result.row_sum;
    return result;
  }

  const Nvfp4Inputs& in_;
  const Nvfp4Sizes& s_;
  const Nvfp4Check& check_;
};

}  // namespace

Nvfp4KeyHead keys_of(const Nvfp4Inputs& in, const Nvfp4Sizes& s, std::int64_t batch, std::int64_t head) {
  const std::int64_t key_head = head / (s.heads_q / s.heads_kv), first = batch * s.key_blocks();
  Nvfp4KeyHead keys{decode_units(in.k, UnitOperand::k, s.head_dim, key_head, first, s.seqlen_k),
                    decode_units(in.v, UnitOperand::v, s.head_dim, key_head, first, s.seqlen_k),
                    {}};
  for (std::int64_t key = 0; key < s.seqlen_k; ++key) keys.k_norms.push_back(norm_of(keys.k.row(key), s.head_dim));
  return keys;
}

Nvfp4Row nvfp4_row(const Nvfp4Inputs& in, const Nvfp4Sizes& s, const Nvfp4Check& check, const UnitHead& q,
                   const Nvfp4KeyHead& keys, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return Rows(in, s, check).row(q, keys, batch, head, row);
}

}  // namespace tessera::reference
