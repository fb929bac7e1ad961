// gemv for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/gemv.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/gemv.h"
#include "tessera/plan.h"

namespace tessera {

struct GemvOperator {
  using Problem = Gemv;
  using Config = gemv::Config;
  using Verdict = tessera::Verdict<gemv::Rule>;
  static constexpr std::string_view kName = "gemv";

  static void require_facts(const Gemv& problem);
  static std::vector<Config> candidates(const Gemv& problem);
  static double score(const Config& config, const Gemv& problem);
  static std::string merit(const Config& config, const Gemv& problem);
  /// Of sm_120 and sm_121; see gemv_cost.h.
  static std::vector<CostSheet> costs(const Config& config, const Gemv& problem);
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
    const auto& [dtype, format, b_format, scale_form, conversion, warp_rows, k_warps, k_panel] = config;
    visit("dtype", dtype);
    visit("format", format);
    visit("b_format", b_format);
    visit("scale_form", scale_form);
    visit("conversion", conversion);
    visit("warp_rows", warp_rows);
    visit("k_warps", k_warps);
    visit("k_panel", k_panel);
  }
};

}  // namespace tessera
