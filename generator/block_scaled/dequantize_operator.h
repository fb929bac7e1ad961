// dequantize for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/dequantize.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/dequantize.h"
#include "tessera/plan.h"

namespace tessera {

struct DequantizeOperator {
  using Problem = Dequantize;
  using Config = dequantize::Config;
  using Verdict = tessera::Verdict<dequantize::Rule>;
  static constexpr std::string_view kName = "dequantize";

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

  /// visit("rank", 2), visit("dtype", DType::f32), ...: int, bool, an enumeration, or an array of int, in the order of
  /// generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [dtype, format, scale_form, global_scale, conversion, threads] = config;
    visit("dtype", dtype);
    visit("format", format);
    visit("scale_form", scale_form);
    visit("global_scale", global_scale);
    visit("conversion", conversion);
    visit("threads", threads);
  }
};

}  // namespace tessera
