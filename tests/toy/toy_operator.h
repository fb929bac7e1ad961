// The planner of the toy: what generator/copy2d/copy2d_operator.h says of each function. Its two families differ in how
// many elements a thread has.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/operator_words.h"
#include "spec/toy_scale.h"
#include "tests/toy/toy_problem.h"

namespace tessera {

template <int kElements>
struct ToyScaleOperator {
  using Problem = ToyScale;
  using Config = toy_scale::Config;
  using Verdict = tessera::Verdict<toy_scale::Rule>;
  static constexpr std::string_view kName = "toy_scale";

  static void require_facts(const ToyScale&) {}
  static std::vector<Config> candidates(const ToyScale& problem) {
    std::vector<Config> list;
    for (const int threads : {128, 256})
      list.push_back(
          {.activation = problem.activation, .threads = problem.threads.value_or(threads), .elements = kElements});
    return list;
  }
  static double score(const Config& config, const ToyScale& problem) {
    return problem.n < 0 || problem.n > config.threads * kElements ? config.threads : 1.0 / config.threads;
  }
  static std::string merit(const Config& config, const ToyScale&) { return fmt::format("{} threads", config.threads); }
  static std::string subject(const Config& config) { return "toy_scale " + label(config); }
  static std::string label(const Config& config) { return fmt::format("{} threads", config.threads); }
  static std::string explain(const Config&, const Verdict& verdict) {
    return fmt::format("{} threads, a multiple of 32 up to 1,024 needed", verdict.found);
  }
  static std::string kernel_name(Arch arch, const Config& config) {
    return fmt::format("toy_scale_{}_{}_t{}_e{}", arch_name(arch.to_string()), to_word(config.activation),
                       config.threads, config.elements);
  }

  static void describe(const Config& config, Plan& plan) {
    plan.operands = {plain_operand("x", "f32", "read"), plain_operand("y", "f32", "written")};
    plan.roles = {{.name = "scale", .first_warp = 0, .warps = config.threads / 32, .registers = 0}};
    LaunchPlan& launch = plan.launch;
    launch.op = kName;
    launch.arch = plan.arch.to_string();
    add_size(launch, "n", 0, 1 << 30, "elements");
    launch.scalars = {{.name = "alpha", .default_value = 1, .help = "factor"}};
    for (const auto& [name, role] : {std::pair("x", BufferRole::input), std::pair("y", BufferRole::output)})
      launch.buffers.push_back({.name = name,
                                .role = role,
                                .dtype = "f32",
                                .shape = {Expression::parse("n")},
                                .strides = {Expression(1)},
                                .alignment = 4});
    LaunchStep step;
    step.entry = plan.kernel;
    step.grid[0] = expression("ceil_div(n, {})", config.threads * config.elements);
    step.block[0] = static_cast<std::uint32_t>(config.threads);
    step.parameters = {pointer_parameter("x", "x"), pointer_parameter("y", "y"),
                       size_parameter("n", ParameterKind::i32, Expression::parse("n"))};
    step.parameters.push_back(
        {.name = "alpha", .kind = ParameterKind::f32, .value = {}, .source = "alpha", .offset_bytes = {}});
    launch.steps.push_back(std::move(step));
  }

  static std::string launch_bounds() { return "kConfig.threads"; }
  static std::string call(const Config&) { return "tessera::toy_scale::kernel<kConfig>(x, y, n, alpha)"; }
  static std::vector<SourceFile> generated_headers(const Config&) { return {}; }

  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [activation, threads, elements] = config;
    visit("activation", activation);
    visit("threads", threads);
    visit("elements", elements);
  }
};

}  // namespace tessera
