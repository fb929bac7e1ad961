// moe_route for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/moe_route.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/moe_route.h"
#include "tessera/plan.h"

namespace tessera::moe_route {

struct MoeRouteOperator {
  using Problem = MoeRoute;
  using Config = moe_route::Config;
  using Verdict = tessera::Verdict<moe_route::Rule>;
  static constexpr std::string_view kName = "moe_route";

  static void require_facts(const MoeRoute& problem);
  static std::vector<Config> candidates(const MoeRoute& problem);
  static double score(const Config&, const MoeRoute&) { return 0; }
  static std::string merit(const Config& config, const MoeRoute& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call_of_step(const Config& config, std::size_t step);
  static std::vector<SourceFile> generated_headers(const Config& config);

  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [dtype, experts, top_k, expert_groups, topk_groups, scoring, bias, renormalize, grouping, alignment] =
        config;
    visit("dtype", dtype);
    visit("experts", experts);
    visit("top_k", top_k);
    visit("expert_groups", expert_groups);
    visit("topk_groups", topk_groups);
    visit("scoring", scoring);
    visit("bias", bias);
    visit("renormalize", renormalize);
    visit("grouping", grouping);
    visit("alignment", alignment);
  }
};

}  // namespace tessera::moe_route

namespace tessera {

using moe_route::MoeRouteOperator;

}  // namespace tessera
