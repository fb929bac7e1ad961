// convert_scales for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/convert_scales.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/convert_scales.h"
#include "tessera/plan.h"

namespace tessera {

struct ConvertScalesOperator {
  using Problem = ConvertScales;
  using Config = convert_scales::Config;
  using Verdict = tessera::Verdict<convert_scales::Rule>;
  static constexpr std::string_view kName = "convert_scales";

  static void require_facts(const ConvertScales& problem);
  static std::vector<Config> candidates(const ConvertScales& problem);
  static double score(const Config& config, const ConvertScales& problem);
  static std::string merit(const Config& config, const ConvertScales& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);

  /// visit("rank", 2), visit("dtype", DType::f32), ...: int, bool, an enumeration, or an array of int, in the order of
  /// generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [to] = config;
    visit("to", to);
  }
};

}  // namespace tessera
