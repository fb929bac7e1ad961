// mhc_product for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/mhc_product.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/mhc_product.h"
#include "tessera/plan.h"

namespace tessera {

struct MhcProductOperator {
  using Problem = MhcProduct;
  using Config = mhc_product::Config;
  using Verdict = tessera::Verdict<mhc_product::Rule>;
  static constexpr std::string_view kName = "mhc_product";

  static void require_facts(const MhcProduct& problem);
  static std::vector<Config> candidates(const MhcProduct& problem);
  static double score(const Config& config, const MhcProduct& problem);
  static std::string merit(const Config& config, const MhcProduct& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);

  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [n, splits, warps_m, warps_k, ctas, stages] = config;
    visit("n", n);
    visit("splits", splits);
    visit("warps_m", warps_m);
    visit("warps_k", warps_k);
    visit("ctas", ctas);
    visit("stages", stages);
  }
};

}  // namespace tessera
