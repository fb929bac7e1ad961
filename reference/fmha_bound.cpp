#include "reference/fmha_bound.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reference/number.h"

namespace tessera::reference {

namespace {
constexpr double kTensorCoreStep = 5.25 * 0x1p-23;
constexpr double kLongStepOf8Bit = 9.25 * 0x1p-23;
constexpr double k8BitCut = 0x1p-13;
constexpr double k8BitStep = 34 * k8BitCut;
constexpr double kKeptSum = 0x1p-11;     // f16
constexpr double kHalfOfKept = 0x1p-31;  // half a subnormal step of f16, of O / l times 2^6
constexpr double kEx2 = 2.1 * 0x1p-23;
constexpr double kSecondOrder = 1.01;
constexpr double kFlush = 0x1p-126;
constexpr double kMostDeviations = 6;  // root mean squares that an element may err by

double groups_of(std::int64_t n, std::int64_t size) { return static_cast<double>((n + size - 1) / size); }
}  // namespace

double largest_term(const std::vector<double>& q, const std::vector<double>& k) {
  double largest = 0, sum = 0;
  for (std::size_t d = 0; d < q.size(); ++d) {
    const double product = q[d] * k[d];
    sum += product;
    largest = std::max(largest, std::fabs(product));
    if (d % 32 == 31) largest = std::max(largest, std::fabs(sum));
  }
  return largest;
}

FmhaRowBound::FmhaRowBound(const FmhaRowFacts& facts) {
  const bool is_8_bit = dtype_bytes(facts.dtype) == 1;
  const auto steps = static_cast<double>(facts.steps);
  const double scale = std::fabs(facts.scale);
  eps_d_ = 0x1p-23 + (facts.has_descales ? 2 : 1) * kU;
  eps_v_ = facts.has_descales ? kU : 0;
  u_out_ = unit_roundoff(facts.output_dtype);
  half_out_ = half_subnormal(facts.output_dtype);
  if (is_8_bit) largest_p_ = 448;
  if (facts.promote_every > 0 && facts.has_f16_sums) takeovers_ = groups_of(facts.visible, facts.promote_every);
  eps_a_ = takeovers_ * kKeptSum;
  half_kept_ = takeovers_ * kHalfOfKept * facts.v_unit;
  if (facts.is_exact) return;
  const double of_norms = scale * facts.q_norm * facts.max_k_norm;
  delta_s_ = !is_8_bit             ? groups_of(facts.head_dim, 16) * kTensorCoreStep * of_norms
             : facts.has_long_sums ? groups_of(facts.head_dim, 32) * kLongStepOf8Bit * of_norms
                                   : scale * groups_of(facts.head_dim, 32) * k8BitStep * facts.max_term;
  double largest = scale * facts.max_abs_score;
  if (facts.softcap > 0) {
    largest = std::fmin(largest, facts.softcap);
    delta_s_ += 12 * kU * facts.softcap;
  }
  if (facts.max_bias > 0) of_bias_ = 9 * kU * (largest + facts.max_bias);
  const double z = std::numbers::log2e * (largest + facts.max_bias + delta_s_);
  const double delta_x = std::numbers::ln2 * (is_8_bit ? 15 : facts.has_descales ? 11 : 9) * z * kU;
  eps_p_ = std::expm1(delta_s_ + delta_x) + kEx2;
  eps_r_ = steps * (kEx2 + kU + 2 * std::numbers::ln2 * z * kU);
  eps_a_ = (groups_of(facts.visible, 16) + 1) * kTensorCoreStep;
  eps_l_ = (static_cast<double>(facts.visible) + steps + 8) * kU;
  u_p_ = unit_roundoff(facts.dtype);
  half_p_ = half_subnormal(facts.dtype) + kFlush;
  if (!is_8_bit) return;
  half_p_ = std::ldexp(half_p_, -facts.lowered);
  if (facts.has_long_sums) {
    eps_a_ = (groups_of(facts.visible, 32) + 1) * kLongStepOf8Bit;
    return;
  }
  visible_ = static_cast<double>(facts.visible);
  chunk_ = facts.promote_every > 0 ? std::min(visible_, static_cast<double>(facts.promote_every)) : visible_;
  const double groups = std::ceil(chunk_ / 32) + 1;
  eps_a_ = std::fmin(groups * k8BitStep, 1 + 2 * groups * k8BitCut) + takeovers_ * kKeptSum;
  is_statistical_ = facts.has_random_signs;
  delta_rms_ = scale * k8BitCut * facts.max_term * std::sqrt(12 * groups_of(facts.head_dim, 32));
  eps_p_rms_ = std::expm1(delta_rms_ + delta_x) + kEx2;
}

double FmhaRowBound::remainder(const Column& column, double eps_p, double eps_a) const {
  const double divisor = column.is_normalized ? column.sum : 1.0;
  const double of_value = column.is_normalized ? eps_p + eps_r_ + eps_l_ + eps_d_ : eps_v_;
  return kSecondOrder * ((column.abs_sum * (eps_p + eps_r_ + eps_a) + column.v_abs_sum * half_p_) / divisor +
                         std::fabs(column.value) * of_value) +
         half_out_ + half_kept_ * (column.is_normalized ? 1 : column.sum) +
         (column.is_normalized ? kFlush * (1 + largest_p_ * column.v_abs_sum) : 0);
}

double FmhaRowBound::any_element(const Column& column) const {
  const double divisor = column.is_normalized ? column.sum : 1.0;
  const double before_rounding = remainder(column, eps_p_, eps_a_) + kSecondOrder * column.abs_sum * u_p_ / divisor;
  return before_rounding + u_out_ * (std::fabs(column.value) + before_rounding);
}

double FmhaRowBound::element(const Column& column) const {
  const double bound = any_element(column);
  return is_statistical_ ? std::fmin(bound, kMostDeviations * std::sqrt(element_square(column))) : bound;
}

double FmhaRowBound::accumulation_square(const Column& column) const {
  const double divisor = column.is_normalized ? column.sum : 1.0;
  const double value = std::fabs(column.value), largest = value + 3 * std::sqrt(column.square_sum) / divisor;
  const double share = column.abs_sum > 0 ? std::fmin(1.0, value * divisor / column.abs_sum) : 0;
  const double one_way = chunk_ * k8BitCut / 2 * largest * share, cut = k8BitCut * largest;
  const double kept = kKeptSum * largest;
  return one_way * one_way + cut * cut * 12 * (std::ceil(visible_ / 32) + 1) + kept * kept * takeovers_;
}

double FmhaRowBound::element_square(const Column& column) const {
  const double divisor = column.is_normalized ? column.sum * column.sum : 1.0;
  const double value_square = column.value * column.value;
  const double rest = is_statistical_ ? remainder(column, 0, 0) : remainder(column, eps_p_, eps_a_);
  const double of_p = u_p_ * u_p_ + eps_p_rms_ * eps_p_rms_;
  return of_p * (column.square_sum / divisor + value_square) + u_out_ * u_out_ * value_square + rest * rest +
         (is_statistical_ ? accumulation_square(column) : 0);
}

double FmhaRowBound::row_max(double value) const {
  const double delta = is_statistical_ ? std::fmin(delta_s_, kMostDeviations * delta_rms_) : delta_s_;
  return delta + of_bias_ + 4 * kU * std::fabs(value);
}

double FmhaRowBound::sum_error() const {
  const double eps_p = is_statistical_ ? std::fmin(eps_p_, kMostDeviations * eps_p_rms_) : eps_p_;
  return kSecondOrder * (eps_p + eps_r_ + eps_l_);
}

double FmhaRowBound::row_sum(double value) const { return sum_error() * std::fabs(value); }

double FmhaRowBound::lse(double value, double maximum) const {
  return row_max(maximum) + sum_error() + std::numbers::ln2 * 2.8e-7 + 4 * kU * (std::fabs(value) + std::fabs(maximum));
}

}  // namespace tessera::reference
