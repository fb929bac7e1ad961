// Attention of NVFP4 operands for the planner, like fmha_operator.h: the same Problem, a Config, templates and a launch
// of its own, since operands come in the units of attention_quantize. What the Config means: spec/fmha_nvfp4.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/fact_fields.h"
#include "generator/plan_sources.h"
#include "spec/fmha_nvfp4.h"
#include "tessera/plan.h"

namespace tessera::fmha_nvfp4 {

struct FmhaNvfp4Operator {
  using Problem = Fmha;
  using Config = fmha_nvfp4::Config;
  using Verdict = tessera::Verdict<fmha_nvfp4::Rule>;
  static constexpr std::string_view kName = "fmha";
  static constexpr std::string_view kTemplates = "fmha_nvfp4";

  static bool serves(const Fmha& problem) { return problem.format.has_value(); }
  /// Throws Error{unsupported} for facts, pins and targets that no kernel is made for.
  static void require_facts(const Fmha& problem);
  static std::vector<Config> candidates(const Fmha& problem);
  static double score(const Config& config, const Fmha& problem);
  static std::string merit(const Config& config, const Fmha& problem);
  static std::vector<CostSheet> costs(const Config& config, const Fmha& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call_of_step(const Config& config, std::size_t step);
  static MergeCode merge_code(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);

  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [facts, split_kv, tile_m, tile_n, stages, pack_gqa] = config;
    visit_facts(facts, [&](std::string_view name, const auto& value) {
      // Facts have no word for a type of four bits.
      if (name == "dtype" || name == "kv_dtype")
        visit(name, BlockFormat::nvfp4);
      else
        visit(name, value);
    });
    visit("split_kv", split_kv);
    visit("tile_m", tile_m);
    visit("tile_n", tile_n);
    visit("stages", stages);
    visit("pack_gqa", pack_gqa);
  }
  /// Those that a Problem may pin: keys are in no pages, and have the format of dtype.
  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit_fields(config, [&](std::string_view name, const auto& value) {
      if (name != "page_size" && name != "kv_dtype") visit(name, value);
    });
  }
};

}  // namespace tessera::fmha_nvfp4

namespace tessera {

using fmha_nvfp4::FmhaNvfp4Operator;

}  // namespace tessera
