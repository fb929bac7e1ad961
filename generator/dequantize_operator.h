// dequantize for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/dequantize.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/plan.h"
#include "spec/dequantize.h"

namespace tessera {

struct DequantizeOperator {
  using Problem = Dequantize;
  using Config = dequantize::Config;
  using Verdict = tessera::Verdict<dequantize::Rule>;
  static constexpr std::string_view kName = "dequantize";

  static bool has_arch(Arch arch) noexcept;
  static void require_facts(const Dequantize& problem);
  static std::vector<Config> candidates(const Dequantize& problem);
  static double score(const Config& config, const Dequantize& problem);
  static std::string merit(const Config& config, const Dequantize& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);
};

}  // namespace tessera
