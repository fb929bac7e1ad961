#include "reference/fmha_bound.h"

#include <cmath>
#include <numbers>

#include "reference/number.h"

namespace tessera::reference {

namespace {
constexpr double kU = 0x1p-24;
constexpr double kTensorCoreStep = 5.25 * 0x1p-23;
constexpr double kEx2 = 2.1 * 0x1p-23;
constexpr double kSecondOrder = 1.01;
constexpr double kFlush = 0x1p-126;
}  // namespace

FmhaRowBound::FmhaRowBound(const FmhaRowFacts& facts) {
  const auto groups = [](std::int64_t n) { return static_cast<double>((n + 15) / 16); };
  const auto steps = static_cast<double>(facts.steps);
  const double scale = std::fabs(facts.scale);
  eps_d_ = 0x1p-23 + (facts.has_descales ? 2 : 1) * kU;
  eps_v_ = facts.has_descales ? kU : 0;
  u_out_ = unit_roundoff(facts.output_dtype);
  half_out_ = half_subnormal(facts.output_dtype);
  if (facts.is_exact) return;
  delta_s_ = scale * groups(facts.head_dim) * kTensorCoreStep * facts.q_norm * facts.max_k_norm;
  double largest = scale * facts.max_abs_score;
  if (facts.softcap > 0) {
    largest = std::fmin(largest, facts.softcap);
    delta_s_ += 12 * kU * facts.softcap;
  }
  if (facts.max_bias > 0) of_bias_ = 9 * kU * (largest + facts.max_bias);
  const double z = std::numbers::log2e * (largest + facts.max_bias + delta_s_);
  eps_p_ = std::expm1(delta_s_ + std::numbers::ln2 * (facts.has_descales ? 11 : 9) * z * kU) + kEx2;
  eps_r_ = steps * (kEx2 + kU + 2 * std::numbers::ln2 * z * kU);
  eps_a_ = (groups(facts.visible) + 1) * kTensorCoreStep;
  eps_l_ = (static_cast<double>(facts.visible) + steps + 8) * kU;
  u_p_ = unit_roundoff(facts.dtype);
  half_p_ = half_subnormal(facts.dtype) + kFlush;
}

double FmhaRowBound::remainder(const Column& column) const {
  const double divisor = column.is_normalized ? column.sum : 1.0;
  const double of_value = column.is_normalized ? eps_p_ + eps_r_ + eps_l_ + eps_d_ : eps_v_;
  return kSecondOrder * ((column.abs_sum * (eps_p_ + eps_r_ + eps_a_) + column.v_abs_sum * half_p_) / divisor +
                         std::fabs(column.value) * of_value) +
         half_out_ + (column.is_normalized ? kFlush * (1 + column.v_abs_sum) : 0);
}

double FmhaRowBound::element(const Column& column) const {
  const double divisor = column.is_normalized ? column.sum : 1.0;
  const double before_rounding = remainder(column) + kSecondOrder * column.abs_sum * u_p_ / divisor;
  return before_rounding + u_out_ * (std::fabs(column.value) + before_rounding);
}

double FmhaRowBound::element_square(const Column& column) const {
  const double divisor = column.is_normalized ? column.sum * column.sum : 1.0;
  const double value_square = column.value * column.value;
  const double rest = remainder(column);
  return u_p_ * u_p_ * (column.square_sum / divisor + value_square) + u_out_ * u_out_ * value_square + rest * rest;
}

double FmhaRowBound::row_max(double value) const { return delta_s_ + of_bias_ + 4 * kU * std::fabs(value); }

double FmhaRowBound::row_sum(double value) const {
  return kSecondOrder * (eps_p_ + eps_r_ + eps_l_) * std::fabs(value);
}

double FmhaRowBound::lse(double value, double maximum) const {
  return row_max(maximum) + kSecondOrder * (eps_p_ + eps_r_ + eps_l_) + std::numbers::ln2 * 2.8e-7 +
         4 * kU * (std::fabs(value) + std::fabs(maximum));
}

}  // namespace tessera::reference
