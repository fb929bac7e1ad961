// Attention by mma.sync for the planner: for targets that have nothing else, and on Hopper by pin. The Config and its
// templates are those of fmha_operator.h, with mma_kind mma.f16 (spec/fmha_warps.h); candidates and scores are others.
#pragma once

#include <string>
#include <vector>

#include "generator/attention/fmha_operator.h"

namespace tessera {

struct FmhaMmaOperator : FmhaOperator {
  static constexpr std::string_view kTemplates = "fmha";
  /// Whole: joined code of sm_120a has not run on any GPU.
  static int pieces(const Config&) { return 1; }

  /// Whether a target has neither wgmma nor tcgen05, or mma.sync is pinned where there is wgmma.
  static bool serves(const Fmha& problem);
  /// Throws Error{unsupported} for facts and pins that no kernel is made for.
  static void require_facts(const Fmha& problem);
  /// In order of preference among equal scores; not empty, may repeat. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Fmha& problem);
  /// The inverse of the modelled time; see fmha_mma_cost.h.
  static double score(const Config& config, const Fmha& problem);
  static double most_score(const Config& config, const Fmha& problem) = delete;  // the bound is of another model
  /// The modelled time, and what limits it, on each device of the target.
  static std::string merit(const Config& config, const Fmha& problem);
  static std::vector<CostSheet> costs(const Config& config, const Fmha& problem);
};

}  // namespace tessera
