#include "reference/tcgen05_suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "reference/product_suspects.h"

namespace tessera::reference {

namespace {

using gemm_tcgen05::Config;
using Finish = ProductSuspectInputs::Finish;

double at(const TensorView& view, const Coordinates& place) {
  return view.at(place[0] * view.strides[0] + place[1] * view.strides[1] + place[2] * view.strides[2]);
}

/// activation(alpha * sum + beta * c + bias), and what it may lack.
std::vector<Finish> finishes_of_sum(const Config& config, const GatedInputs& in, const Tcgen05Factors& f) {
  std::vector<Finish> list;
  const auto add = [&](std::string cause, double alpha, double beta, bool has_bias, Activation activation) {
    list.push_back(
        {std::move(cause), [=, c = in.product.c, bias = in.product.bias](double sum, double, const Coordinates& place) {
           double x = alpha * sum;
           if (c && beta != 0) x += beta * at(*c, place);
           if (bias && has_bias) x += bias->at(place[2] * bias->strides[0]);
           return activated(activation, x);
         }});
  };
  const double alpha = in.check.alpha, beta = in.check.beta;
  const Activation activation = config.facts.activation;
  add("", alpha, beta, true, activation);
  const auto without = [&](const char* name, double factor) {
    if (factor != 1 && factor != 0)
      add(fmt::format("{} does not count (taken as 1)", name), alpha / factor, beta, true, activation);
  };
  without("alpha", f.alpha);
  without("scale_a", f.scale_a);
  without("scale_b", f.scale_b);
  if (in.product.c) {
    if (beta != 0) add("beta * c is not added", alpha, 0, true, activation);
    if (beta != 1) add("c is added without beta", alpha, 1, true, activation);
  }
  if (in.product.bias) add("the bias is not added", alpha, beta, false, activation);
  if (activation != Activation::none) add("the activation is left out", alpha, beta, true, Activation::none);
  return list;
}

/// What a gate makes of alpha * gate + bias and alpha_up * up + bias, and what may be wrong with it.
std::vector<Finish> finishes_of_gate(const GatedInputs& in) {
  const double alpha = in.check.alpha, alpha_up = in.alpha_up;
  const GemmCheck right = in.check;
  std::vector<Finish> list;
  // `of` has both products without their biases, and these.
  const auto add = [&](std::string cause, std::function<double(double, double, double, double)> of) {
    list.push_back({std::move(cause), [of = std::move(of), bias = in.product.bias, bias_up = in.bias_up](
                                          double gate, double up, const Coordinates& place) {
                      const auto at = [&](const std::optional<TensorView>& view) {
                        return view ? view->at(place[2] * view->strides[0]) : 0;
                      };
                      return of(gate, up, at(bias), at(bias_up));
                    }});
  };
  const auto add_as = [&](std::string cause, const GemmCheck& check) {
    add(std::move(cause), [=](double gate, double up, double b, double b_up) {
      return gated_value(check, alpha * gate + b, alpha_up * up + b_up);
    });
  };
  const auto activated_gate = [=](double x) {  // up that is multiplied as 1
    return gated_value(right, x, right.gate_activation == GateActivation::gpt_oss ? 0 : 1);
  };
  const std::string_view name = right.gate_activation == GateActivation::silu        ? "silu"
                                : right.gate_activation == GateActivation::gelu      ? "gelu"
                                : right.gate_activation == GateActivation::gelu_tanh ? "gelu_tanh"
                                                                                     : "gpt_oss";
  add_as("", right);
  add("gate and up have changed places", [=](double gate, double up, double b, double b_up) {
    return gated_value(right, alpha_up * up + b_up, alpha * gate + b);
  });
  if (right.gate_limit > 0) {
    GemmCheck check = right;
    check.gate_limit = 0;
    add_as("the gate's limit is left out", check);
  }
  if (in.product.bias)
    add("the bias is not added",
        [=](double gate, double up, double, double) { return gated_value(right, alpha * gate, alpha_up * up); });
  for (const GateActivation other :
       {GateActivation::silu, GateActivation::gelu, GateActivation::gelu_tanh, GateActivation::gpt_oss}) {
    if (other == right.gate_activation) continue;
    GemmCheck check = right;
    check.gate_activation = other;
    if (other == GateActivation::silu) add_as(fmt::format("the gate is silu's, not {}'s", name), check);
    if (other == GateActivation::gpt_oss) add_as(fmt::format("the gate is gpt_oss', not {}'s", name), check);
  }
  add(fmt::format("{} is left out", name),
      [=](double gate, double up, double b, double b_up) { return (alpha * gate + b) * (alpha_up * up + b_up); });
  add(fmt::format("the factor is applied behind {}, not before", name),
      [=](double gate, double up, double b, double b_up) {
        return gated_value(right, gate + b, up + b_up) * alpha * alpha_up;
      });
  add("the gate alone is stored",
      [=](double gate, double, double b, double) { return activated_gate(alpha * gate + b); });
  add("up alone is stored", [=](double, double up, double, double b_up) { return alpha_up * up + b_up; });
  if (alpha != alpha_up)
    add("up is multiplied by the gate's factor", [=](double gate, double up, double b, double b_up) {
      return gated_value(right, alpha * gate + b, alpha * up + b_up);
    });
  return list;
}

/// How near a right result of these sums is to float64's. Of a block-scaled d half a step of its values, roughly: the
/// block's largest is not known here, but of sums of random signs it is some standard deviations.
std::function<double(double, double)> slack_of(const Config& config, double factor, std::int64_t k, DType dtype) {
  const double deviation = std::fabs(factor) / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
  if (gemm_tcgen05::is_quantized(config)) {
    const bool is_four_bit = value_bits(block_format(config.facts.d_format)) == 4;
    const double relative = is_four_bit ? 0.2 : 0.07, absolute = is_four_bit ? 0.15 : 0.01;
    return [=](double result, double magnitude) {
      return relative * std::fabs(result) + absolute * deviation * magnitude;
    };
  }
  if (config.facts.d_dtype == DType::s32) return [](double, double) { return 0.0; };
  const double relative = 2 * unit_roundoff(dtype) + (config.facts.gate == Gate::none ? 2e-6 : 1e-3);
  const double least = half_subnormal(dtype);
  return [=](double result, double magnitude) {
    return relative * std::fabs(result) + 1e-5 * std::fabs(factor) * magnitude + least;
  };
}

}  // namespace

std::vector<Suspect> tcgen05_suspects(const Config& config, const GatedInputs& in, const Tcgen05Factors& factors,
                                      const Tcgen05Sources& sources, const TensorView& d) {
  const bool is_swapped = gemm_tcgen05::is_swapped(config);
  const std::int64_t lanes = gemm_tcgen05::kLanes, columns = gemm_tcgen05::column_rows(config);
  ProductSuspectInputs product;
  product.a = sources.a;
  product.b = sources.b;
  product.b2 = sources.b2;
  product.has_gate = config.facts.gate != Gate::none;
  product.rows = in.product.a.shape[1];
  product.columns = gemm_tcgen05::columns_of_d(config, static_cast<int>(sources.b.rows()));
  product.steps = {.step = gemm_tcgen05::tile_k(config),
                   .chunk = gemm_tcgen05::chunk_k(config),
                   .split_k = config.split_k,
                   .bits = gemm_tcgen05::smem_bits(config),
                   .tile_a = gemm_tcgen05::is_mn_major(config, !is_swapped) ? 0
                             : is_swapped                                   ? columns
                                                                            : lanes,
                   .tile_b = gemm_tcgen05::is_mn_major(config, is_swapped) ? 0
                             : is_swapped                                  ? lanes
                                                                           : columns};
  product.finishes = config.facts.gate == Gate::none ? finishes_of_sum(config, in, factors) : finishes_of_gate(in);
  product.slack =
      slack_of(config, in.check.alpha * (config.facts.gate == Gate::none ? 1 : in.alpha_up), sources.a.k, d.dtype);
  const auto in_turn = [](std::int64_t together) {
    return [=](std::int64_t column, bool is_up) {
      return column / together * 2 * together + column % together + (is_up ? together : 0);
    };
  };
  if (config.facts.gate != Gate::interleaved) return product_suspects(product);
  product.row_of_b = in_turn(config.facts.interleave);
  std::vector<Suspect> list = product_suspects(product);
  for (const int other : {1, 2, 4, 8, 16, 32}) {
    if (other == config.facts.interleave || sources.b.rows() % (2 * other) != 0) continue;
    ProductSuspectInputs wrong = product;
    wrong.row_of_b = in_turn(other);
    list.push_back(
        {fmt::format("gate and up are taken in turns of {}, interleave is {}", other, config.facts.interleave),
         product_guess(wrong)});
  }
  return list;
}

}  // namespace tessera::reference
