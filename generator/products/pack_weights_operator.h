// pack_weights for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/pack_weights.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/pack_weights.h"
#include "tessera/plan.h"

namespace tessera::pack_weights {

struct PackWeightsOperator {
  using Problem = PackWeights;
  using Config = pack_weights::Config;
  using Verdict = tessera::Verdict<pack_weights::Rule>;
  static constexpr std::string_view kName = "pack_weights";

  static void require_facts(const PackWeights& problem);
  static std::vector<Config> candidates(const PackWeights& problem);
  static double score(const Config& config, const PackWeights& problem);
  static std::string merit(const Config& config, const PackWeights& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);

  /// In the order of generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [format, scale_form, dtype, group, zero_points] = config;
    visit("format", format);
    visit("scale_form", scale_form);
    visit("dtype", dtype);
    visit("group", group);
    visit("zero_points", zero_points);
  }
};

/// The launch of a kernel of that name, which products with weights in rows have in front of theirs too.
LaunchPlan pack_weights_launch(const Config& config, const std::string& arch, const std::string& kernel);

}  // namespace tessera::pack_weights

namespace tessera {

using pack_weights::PackWeightsOperator;

}  // namespace tessera
