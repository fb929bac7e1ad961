// merge for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/merge.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/merge.h"
#include "tessera/plan.h"

namespace tessera {

struct MergeOperator {
  using Problem = Merge;
  using Config = merge::Config;
  using Verdict = tessera::Verdict<merge::Rule>;
  static constexpr std::string_view kName = "merge";

  static void require_facts(const Merge& problem);
  static std::vector<Config> candidates(const Merge& problem);
  static double score(const Config& config, const Merge& problem);
  static std::string merit(const Config& config, const Merge& problem);
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
    const auto& [head_dim_v, dtype, o_dtype, sink, threads, at_once] = config;
    visit("head_dim_v", head_dim_v);
    visit("dtype", dtype);
    visit("o_dtype", o_dtype);
    visit("sink", sink);
    visit("threads", threads);
    visit("at_once", at_once);
  }
};

}  // namespace tessera
