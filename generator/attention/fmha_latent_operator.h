// Attention over keys that are values too (v_is_k) on sm_90a for the planner, like fmha_operator.h: the same Problem,
// launch and reference, a Config and templates of its own. What the Config means: spec/fmha_latent.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/fact_fields.h"
#include "generator/plan_sources.h"
#include "spec/fmha_latent.h"
#include "tessera/plan.h"

namespace tessera::fmha_latent {

struct FmhaLatentOperator {
  using Problem = Fmha;
  using Config = fmha_latent::Config;
  using Verdict = tessera::Verdict<fmha_latent::Rule>;
  static constexpr std::string_view kName = "fmha";
  static constexpr std::string_view kTemplates = "fmha_latent";

  static bool serves(const Fmha& problem) { return problem.v_is_k == VIsK::on; }

  /// Throws Error{unsupported} for facts that no kernel is made for.
  static void require_facts(const Fmha& problem);
  /// One: nothing but facts, heads and the split differ. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Fmha& problem);
  static double score(const Config&, const Fmha&) { return 1; }
  static std::string merit(const Config& config, const Fmha& problem);

  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);

  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);

  static std::string launch_bounds();
  static std::string call_of_step(const Config& config, std::size_t step);
  static MergeCode merge_code(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);
  /// Producers and consumers. Whole where a CTA widens a cache for itself alone: of dealt keys pieces took 1 to 7 %
  /// longer on an H200.
  static int pieces(const Config& config) { return has_cache(config.facts) && !shares_keys(config) ? 1 : 2; }

  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [facts, tile_m, tile_n, stages, swizzle, mma_kind, pack_gqa, split_kv] = config;
    visit_facts(facts, visit);
    visit("tile_m", tile_m);
    visit("tile_n", tile_n);
    visit("stages", stages);
    visit("swizzle", swizzle);
    visit("mma_kind", mma_kind);
    visit("pack_gqa", pack_gqa);
    visit("split_kv", split_kv);
  }
  /// Those that a Problem may pin: of dense keys no size of pages.
  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit_fields(config, [&](std::string_view name, const auto& value) {
      const bool has_pages = config.facts.kv_layout == KvLayout::paged || has_cache(config.facts);
      if (has_pages || name != "page_size") visit(name, value);
    });
  }
};

}  // namespace tessera::fmha_latent

namespace tessera {

using fmha_latent::FmhaLatentOperator;

}  // namespace tessera
