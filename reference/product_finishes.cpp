#include "reference/product_finishes.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::reference {

namespace {

using Finish = ProductSuspectInputs::Finish;

double element_at(const TensorView& view, const Coordinates& place) {
  return view.at(place[0] * view.strides[0] + place[1] * view.strides[1] + place[2] * view.strides[2]);
}

}  // namespace

std::vector<Finish> finishes_of_sum(const GemmInputs& in, const GemmCheck& check, const ProductFactors& f) {
  std::vector<Finish> list;
  const auto add = [&](std::string cause, double alpha, double beta, bool has_bias, Activation activation) {
    list.push_back({std::move(cause), [=, c = in.c, bias = in.bias](double sum, double, const Coordinates& place) {
                      double x = alpha * sum;
                      if (c && beta != 0) x += beta * element_at(*c, place);
                      if (bias && has_bias) x += bias->at(place[2] * bias->strides[0]);
                      return activated(activation, x);
                    }});
  };
  const double alpha = check.alpha, beta = check.beta;
  const Activation activation = check.facts.activation;
  add("", alpha, beta, true, activation);
  const auto without = [&](const char* name, double factor) {
    if (factor != 1 && factor != 0)
      add(fmt::format("{} does not count (taken as 1)", name), alpha / factor, beta, true, activation);
  };
  without("alpha", f.alpha);
  without("scale_a", f.scale_a);
  without("scale_b", f.scale_b);
  if (in.c) {
    if (beta != 0) add("beta * c is not added", alpha, 0, true, activation);
    if (beta != 1) add("c is added without beta", alpha, 1, true, activation);
  }
  if (in.bias) add("the bias is not added", alpha, beta, false, activation);
  if (activation != Activation::none) add("the activation is left out", alpha, beta, true, Activation::none);
  return list;
}

std::vector<Finish> finishes_of_gate(const GemmCheck& right, double alpha_up, const OfColumn& bias,
                                     const OfColumn& bias_up) {
  const double alpha = right.alpha;
  std::vector<Finish> list;
  // `of` has both products without their biases, and these.
  const auto add = [&](std::string cause, std::function<double(double, double, double, double)> of) {
    list.push_back(
        {std::move(cause), [of = std::move(of), bias, bias_up](double gate, double up, const Coordinates& place) {
           const auto at = [&](const OfColumn& of_column) { return of_column ? of_column(place[2]) : 0; };
           return of(gate, up, at(bias), at(bias_up));
         }});
  };
  const auto add_as = [&](std::string cause, const GemmCheck& check) {
    add(std::move(cause), [=](double gate, double up, double b, double b_up) {
      return gated_value(check, alpha * gate + b, alpha_up * up + b_up);
    });
  };
  const auto activated_gate = [=](double x) {  // up that is multiplied as 1
    return gated_value(right, x, right.facts.gate_activation == GateActivation::gpt_oss ? 0 : 1);
  };
  const std::string_view name = right.facts.gate_activation == GateActivation::silu        ? "silu"
                                : right.facts.gate_activation == GateActivation::gelu      ? "gelu"
                                : right.facts.gate_activation == GateActivation::gelu_tanh ? "gelu_tanh"
                                                                                           : "gpt_oss";
  add_as("", right);
  add("gate and up have changed places", [=](double gate, double up, double b, double b_up) {
    return gated_value(right, alpha_up * up + b_up, alpha * gate + b);
  });
  if (right.facts.gate_limit > 0) {
    GemmCheck check = right;
    check.facts.gate_limit = 0;
    add_as("the gate's limit is left out", check);
  }
  if (bias)
    add("the bias is not added",
        [=](double gate, double up, double, double) { return gated_value(right, alpha * gate, alpha_up * up); });
  for (const GateActivation other :
       {GateActivation::silu, GateActivation::gelu, GateActivation::gelu_tanh, GateActivation::gpt_oss}) {
    if (other == right.facts.gate_activation) continue;
    GemmCheck check = right;
    check.facts.gate_activation = other;
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

}  // namespace tessera::reference
