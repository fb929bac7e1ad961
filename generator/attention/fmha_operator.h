// Attention forward for the planner: which Configs are considered, how one is scored and named, and its launch as data.
// What a Config means and which are legal: spec/fmha.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/attention/fmha_facts.h"
#include "generator/fact_fields.h"
#include "generator/facts.h"
#include "generator/plan_sources.h"
#include "spec/fmha_tiles.h"
#include "tessera/plan.h"

namespace tessera::fmha {

struct FmhaOperator {
  using Problem = Fmha;
  using Config = fmha::Config;
  using Verdict = tessera::Verdict<fmha::Rule>;
  static constexpr std::string_view kName = "fmha";

  /// Whether mma.sync is not pinned: see fmha_mma_operator.h.
  static bool serves(const Fmha& problem) { return !is_mma_sync(problem.mma_kind); }
  /// Throws Error{unsupported} for a head_dim or type that no kernel is made for.
  static void require_facts(const Fmha& problem);
  /// In order of preference among equal scores; not empty, may repeat. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Fmha& problem);
  /// Where all sizes are expected ones, by a model of the time (fmha_cost.h); else how much of the default tile's speed
  /// is expected, 1 being all of it.
  static double score(const Config& config, const Fmha& problem);
  /// No less than the score of a legal Config, for a fraction of its time.
  static double most_score(const Config& config, const Fmha& problem);
  /// What the score stands on: "modelled at 12.5 us", "the default for head_dim 128", ...
  static std::string merit(const Config& config, const Fmha& problem);

  /// "head_dim 256, tile 128x128, 3 stages": a Config in front of an explanation.
  static std::string subject(const Config& config);
  /// "tile 128x128, 3 stages, 128B": a Config among the candidates of one Problem.
  static std::string label(const Config& config);
  /// "229,504 bytes of shared memory, 227,328 allowed: drop a stage". Precondition: !verdict.ok().
  static std::string explain(const Config& config, const Verdict& verdict);

  static std::string kernel_name(Arch arch, const Config& config);
  /// Fills in all that follows from the Config: operands, smem, roles, launch.
  static void describe(const Config& config, Plan& plan);

  /// The entry's launch bounds and the body's call, as generated code spells them.
  static std::string launch_bounds();
  static std::string call_of_step(const Config& config, std::size_t step);
  static MergeCode merge_code(const Config& config);
  /// Headers that exist for this Config only: the wgmma instructions in use.
  static std::vector<SourceFile> generated_headers(const Config& config);
  /// How many compiles side by side make the kernel: producers and consumers, or all in one.
  static int pieces(const Config& config);
  /// Of one of them, from 1 on (SourcePiece).
  static bool keeps_values(const Config& config, int piece);

  /// visit("rank", 2), visit("dtype", DType::f32), ...: int, bool, an enumeration, or an array of int, in the order of
  /// generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [facts, tile_m, tile_n, stages, q_stages, swizzle, mma_kind, kv_copy, ping_pong, cta_pair, pack_gqa,
                 split_kv, promote_every, sm_smem_bytes] = config;
    visit_facts(facts, visit);
    visit("tile_m", tile_m);
    visit("tile_n", tile_n);
    visit("stages", stages);
    visit("q_stages", q_stages);
    visit("swizzle", swizzle);
    visit("mma_kind", mma_kind);
    visit("kv_copy", kv_copy);
    visit("ping_pong", ping_pong);
    visit("cta_pair", cta_pair);
    visit("pack_gqa", pack_gqa);
    visit("split_kv", split_kv);
    visit("promote_every", promote_every);
    visit("sm_smem_bytes", sm_smem_bytes);
  }
  /// Those that a Problem may pin; the instruction by the operands' name.
  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit_fields(config, [&](std::string_view name, const auto& value) {
      if (name == "mma_kind") return;
      if (may_pin(config.facts, name)) visit(name, value);
    });
    visit("mma_kind", fmha::uses_mma_sync(config) ? mma_sync_kind(config.facts) : config.mma_kind);
  }
};

}  // namespace tessera::fmha

namespace tessera {

using fmha::FmhaOperator;

/// What the launch of an attention kernel is made from, whichever templates the kernel has.
struct FmhaLaunch {
  AttentionFacts facts;
  Swizzle swizzle = Swizzle::b128;
  int pack_gqa = 1;
  int padded_heads = 1;  ///< packed rows of a query, pack_gqa or more
  bool is_split = false;
  bool is_dealt = false;     ///< so that all CTAs have the same number of key blocks, or of parts of split_size keys
  bool joins_tails = false;  ///< dealt keys that are values too: CTAs say which parts are there, and which are added
  bool has_cuts = false;     ///< dealt keys beside whole tiles: CTAs write where their ranges begin
  bool walks_sequences = false;  ///< a sequence's tiles are CTAs side by side, over ranges of its keys; they store o
  bool copies_keys = false;      ///< threads load k and v, no tensor map
  bool copies_q = false;         ///< threads load q; they store o too
  bool stores_o = false;         ///< threads store o beside operands of 8 bits, or with mma.sync
  bool swizzles_keys = false;    ///< 8-bit ones too, by the span of a row
  int tile_rows = 0;             ///< packed rows of a CTA, or of a pair
  int tile_n = 0;                ///< keys of a step
  int merge_rows = 1;            ///< of a CTA of the kernel that merges split keys
  int merge_warps = 1;           ///< of that CTA
  int ctas_per_tile = 1;
  int tiles_per_cluster = 1;  // of neighbours that exchange nothing, and are to be near each other
  int ctas_per_sm = 1;
  int threads = 0;
  std::int64_t smem_bytes = 0;
  struct Box {
    std::vector<std::uint32_t> extents;  ///< innermost first
  };
  Box q, k, v, o;
  std::vector<int> part_keys = {};  ///< of the boxes of further maps of k and v
};

/// The calls of generated entries: the kernel's, in the namespace of its templates, and that of the kernel that merges
/// split keys.
std::string fmha_call(const FmhaLaunch& config, std::string_view templates);
std::string fmha_merge_call(const FmhaLaunch& config);

/// The launch of an attention kernel as data. merge: the entry that merges, where keys are split.
LaunchPlan fmha_launch(const FmhaLaunch& config, const std::string& arch, const std::string& kernel,
                       const std::string& merge);

}  // namespace tessera
