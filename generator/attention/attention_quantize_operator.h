// attention_quantize for the planner: see copy2d_operator.h for what each function says. The contract with the device
// code: spec/attention_quantize.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/attention_quantize.h"
#include "tessera/plan.h"

namespace tessera {

struct AttentionQuantizeOperator {
  using Problem = AttentionQuantize;
  using Config = attention_quantize::Config;
  using Verdict = tessera::Verdict<attention_quantize::Rule>;
  static constexpr std::string_view kName = "attention_quantize";

  static void require_facts(const AttentionQuantize& problem);
  static std::vector<Config> candidates(const AttentionQuantize& problem);
  static double score(const Config&, const AttentionQuantize&) { return 1; }
  static std::string merit(const Config& config, const AttentionQuantize& problem);
  /// Of sm_120 and sm_121; see attention_quantize_cost.h.
  static std::vector<CostSheet> costs(const Config& config, const AttentionQuantize& problem);
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
    const auto& [head_dim, dtype, q_layout, kv_layout, page_size, seqused, conversion] = config;
    visit("head_dim", head_dim);
    visit("dtype", dtype);
    visit("q_layout", q_layout);
    visit("kv_layout", kv_layout);
    visit("page_size", page_size);
    visit("seqused", seqused);
    visit("conversion", conversion);
  }
};

}  // namespace tessera
