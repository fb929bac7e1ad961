// Attention forward on tcgen05 for the planner, like fmha_operator.h for sm_90a: the same Problem, launch and
// reference, other Configs and templates. What a Config means and which are legal: spec/fmha_tcgen05.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/attention/fmha_facts.h"
#include "generator/fact_fields.h"
#include "generator/plan_sources.h"
#include "spec/fmha_tcgen05.h"
#include "tessera/plan.h"

namespace tessera::fmha_tcgen05 {

struct FmhaTcgen05Operator {
  using Problem = Fmha;
  using Config = fmha_tcgen05::Config;
  using Verdict = tessera::Verdict<fmha_tcgen05::Rule>;
  static constexpr std::string_view kName = "fmha";
  static constexpr std::string_view kTemplates = "fmha_tcgen05";

  /// Throws Error{unsupported} for facts that no kernel is made for.
  static void require_facts(const Fmha& problem);
  /// In order of preference among equal scores; not empty, may repeat. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Fmha& problem);
  /// A model's estimate, 1 being the default tile's; nothing was measured. See fmha_tcgen05_operator.cpp.
  static double score(const Config& config, const Fmha& problem);
  static std::string merit(const Config& config, const Fmha& problem);

  /// "head_dim 256, tile 128x128, 3 stages": a Config in front of an explanation.
  static std::string subject(const Config& config);
  /// "tile 128x128, 3 stages, 128B, P in tmem": a Config among the candidates of one Problem.
  static std::string label(const Config& config);
  /// "640 columns of Tensor Memory, 512 allowed: ...". Precondition: !verdict.ok().
  static std::string explain(const Config& config, const Verdict& verdict);

  static std::string kernel_name(Arch arch, const Config& config);
  /// Fills in all that follows from the Config: operands, smem, tmem, roles, launch.
  static void describe(const Config& config, Plan& plan);

  /// The entry's launch bounds and each step's call, as generated code spells them.
  static std::string launch_bounds();
  static std::string call_of_step(const Config& config, std::size_t step);
  static MergeCode merge_code(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config&) { return {}; }

  /// visit("rank", 2), visit("dtype", DType::f32), ...: int, bool, an enumeration, or an array of int, in the order of
  /// generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [facts, tile_m, tile_n, stages, swizzle, mma_kind, kv_copy, p_path, cta_pair, pack_gqa, split_kv] =
        config;
    visit_facts(facts, visit);
    visit("tile_m", tile_m);
    visit("tile_n", tile_n);
    visit("stages", stages);
    visit("swizzle", swizzle);
    visit("mma_kind", mma_kind);
    visit("kv_copy", kv_copy);
    visit("p_path", p_path);
    visit("cta_pair", cta_pair);
    visit("pack_gqa", pack_gqa);
    visit("split_kv", split_kv);
  }
  /// Those that a Problem may pin.
  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit_fields(config, [&](std::string_view name, const auto& value) {
      if (may_pin(config.facts, name)) visit(name, value);
    });
  }
};

}  // namespace tessera::fmha_tcgen05

namespace tessera {

using fmha_tcgen05::FmhaTcgen05Operator;

}  // namespace tessera
