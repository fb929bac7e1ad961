// quantize for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/quantize.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/plan.h"
#include "spec/quantize.h"

namespace tessera {

struct QuantizeOperator {
  using Problem = Quantize;
  using Config = quantize::Config;
  using Verdict = tessera::Verdict<quantize::Rule>;
  static constexpr std::string_view kName = "quantize";

  static bool has_arch(Arch arch) noexcept;
  static void require_facts(const Quantize& problem);
  static std::vector<Config> candidates(const Quantize& problem);
  static double score(const Config& config, const Quantize& problem);
  static std::string merit(const Config& config, const Quantize& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call(const Config& config);
  /// The call of a step; the last one is call(config).
  static std::string call_of_step(const Config& config, std::size_t step);
  static std::vector<SourceFile> generated_headers(const Config& config);
};

}  // namespace tessera
