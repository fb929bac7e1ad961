// quantize_blocks for the planner: see copy2d_operator.h for what each function says. The contract with the device
// code: spec/quantize_blocks.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/quantize_blocks.h"
#include "tessera/plan.h"

namespace tessera {

struct QuantizeBlocksOperator {
  using Problem = QuantizeBlocks;
  using Config = quantize_blocks::Config;
  using Verdict = tessera::Verdict<quantize_blocks::Rule>;
  static constexpr std::string_view kName = "quantize_blocks";

  static void require_facts(const QuantizeBlocks& problem);
  static std::vector<Config> candidates(const QuantizeBlocks& problem);
  static double score(const Config& config, const QuantizeBlocks& problem);
  static std::string merit(const Config& config, const QuantizeBlocks& problem);
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
    const auto& [dtype, scale_block, scale_values] = config;
    visit("dtype", dtype);
    visit("scale_block", scale_block);
    visit("scale_values", scale_values);
  }
};

}  // namespace tessera
