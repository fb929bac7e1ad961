#include "generator/products/gemm_weights_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/plan_sources.h"
#include "generator/products/pack_weights_operator.h"
#include "generator/words.h"

namespace tessera::gemm_weights {

namespace {

bool is_int4(const Config& c) { return c.facts.b_type == OperandType::int4; }

pack_weights::Config packing_of(const Config& c) {
  pack_weights::Config packing{.format = is_int4(c)                             ? WeightFormat::int4
                                         : c.facts.b_type == OperandType::nvfp4 ? WeightFormat::nvfp4
                                                                                : WeightFormat::mxfp4};
  if (is_int4(c)) {
    packing.dtype = gemm_weights::a_dtype(c);
    packing.group = c.b_group;
    packing.zero_points = c.zero_points;
  }
  return packing;
}

/// pack_weights' buffers under the names that a product gives them.
std::string name_in_product(const std::string& name) {
  return name == "values" ? "b" : name == "scales" ? "sfb" : name == "packed" ? "workspace" : name;
}

}  // namespace

void add_packing(const Config& config, Plan& plan) {
  LaunchPlan& launch = plan.launch;
  LaunchPlan packing = pack_weights_launch(packing_of(config), plan.arch.to_string(), plan.kernel + "_pack");
  const auto b = std::find_if(launch.buffers.begin(), launch.buffers.end(),
                              [](const BufferSpec& buffer) { return buffer.name == "b"; });
  launch.workspace.bytes = Expression::parse(fmt::format("l * {}", b->strides[0].text()));
  const auto at = launch.buffers.erase(b);
  std::vector<BufferSpec> rows;
  for (BufferSpec& buffer : packing.buffers) {
    if (buffer.role == BufferRole::output) continue;
    buffer.name = name_in_product(buffer.name);
    rows.push_back(std::move(buffer));
  }
  launch.buffers.insert(at, rows.begin(), rows.end());
  // The first is that of k, which the product has too.
  launch.domain.insert(launch.domain.end(), packing.domain.begin() + 1, packing.domain.end());
  launch.domain.push_back(
      {.lhs = Expression::parse("l"),
       .relation = Relation::at_most,
       .rhs = Expression(kMaxBatch),
       .message = fmt::format("l must be at most {} (weights that are packed first)", grouped(kMaxBatch))});
  for (LaunchStep& step : launch.steps)
    for (KernelParameter& parameter : step.parameters)
      if (parameter.name == "b") parameter.source = "workspace";
  LaunchStep step = std::move(packing.steps.front());
  for (KernelParameter& parameter : step.parameters)
    if (parameter.kind == ParameterKind::pointer) parameter.source = name_in_product(parameter.source);
  launch.steps.insert(launch.steps.begin(), std::move(step));
  const auto of_b = std::find_if(plan.operands.begin(), plan.operands.end(),
                                 [](const OperandPlan& operand) { return operand.name == "b"; });
  of_b->use = "weights in rows, two a byte: packed into the workspace first";
  plan.operands.insert(of_b + 1, plain_operand("sfb", is_int4(config) ? to_word(gemm_weights::a_dtype(config)) : "u8",
                                               "scales of b, in rows"));
  if (config.zero_points == ZeroPoints::given)
    plan.operands.push_back(plain_operand("zeros", "u8", "zero points of b, in rows"));
}

std::string packing_call(const Config& config) {
  return fmt::format("tessera::pack_weights::kernel<tessera::gemm_weights::kPacking>(values, scales, {}, packed, n, k)",
                     config.zero_points == ZeroPoints::given ? "zeros" : "nullptr");
}

SourceFile packing_header(const Config& config) {
  const pack_weights::Config c = packing_of(config);
  return {"packing.cuh", fmt::format("// Generated: how the weights of one product are packed.\n"
                                     "#pragma once\n\n"
                                     "#include \"pack_weights/kernel.cuh\"\n\n"
                                     "namespace tessera::gemm_weights {{\n\n"
                                     "inline constexpr pack_weights::Config kPacking{{\n"
                                     "    .format = {}, .dtype = {}, .group = {}, .zero_points = {}}};\n\n"
                                     "}}  // namespace tessera::gemm_weights\n",
                                     initialiser(c.format), initialiser(c.dtype), c.group, initialiser(c.zero_points))};
}

}  // namespace tessera::gemm_weights
