// Matrix products for the planner: which Configs are considered, how one is scored and named, and its launch as data.
// What a Config means and which are legal: spec/gemm.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/fact_fields.h"
#include "generator/products/product_pins.h"
#include "spec/gemm.h"
#include "tessera/plan.h"

namespace tessera::gemm {

struct GemmOperator {
  using Problem = Gemm;
  using Config = gemm::Config;
  using Verdict = tessera::Verdict<gemm::Rule>;
  static constexpr std::string_view kName = "gemm";

  /// Throws Error{unsupported} for types or layouts that no kernel is made for.
  static void require_facts(const Gemm& problem);
  /// In order of preference among equal scores; not empty, each once. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Gemm& problem);
  static constexpr bool kCandidatesDiffer = true;
  static constexpr bool kHasAccumulation = true;
  /// The inverse of the modelled time; see gemm_cost.h.
  static double score(const Config& config, const Gemm& problem);
  /// What the score of a legal Config is not above, in a fraction of the time.
  static double most_score(const Config& config, const Gemm& problem);
  /// What the score stands on: "modelled at 187 us: 97 % of the tensor cores' rate over 4 rounds", ...
  static std::string merit(const Config& config, const Gemm& problem);

  /// "gemm bf16, tile 128x256, 4 stages, cluster 2x1": a Config in front of an explanation.
  static std::string subject(const Config& config);
  /// "tile 128x256, 4 stages, cluster 2x1": a Config among the candidates of one Problem.
  static std::string label(const Config& config);
  /// "229,504 bytes of shared memory, 227,328 allowed: drop a stage". Precondition: !verdict.ok().
  static std::string explain(const Config& config, const Verdict& verdict);

  static std::string kernel_name(Arch arch, const Config& config);
  /// Fills in all that follows from the Config: operands, smem, roles, launch.
  static void describe(const Config& config, Plan& plan);

  /// The entry's launch bounds and the body's call, as generated code spells them.
  static std::string launch_bounds();
  static std::string call(const Config& config);
  /// Headers that exist for this Config only: the wgmma instructions in use.
  static std::vector<SourceFile> generated_headers(const Config& config);

  /// visit("rank", 2), visit("dtype", DType::f32), ...: int, bool, an enumeration, or an array of int, in the order of
  /// generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [facts, tile_m, tile_n, stages, cluster_m, cluster_n, split_k, kernel_schedule, raster, swap_ab, box_m,
                 has_whole_panels] = config;  // the last one: of other kernels alone
    visit_facts<kHasAccumulation>(facts, visit);
    visit("tile_m", tile_m);
    visit("tile_n", tile_n);
    visit("stages", stages);
    visit("cluster_m", cluster_m);
    visit("cluster_n", cluster_n);
    visit("split_k", split_k);
    visit("kernel_schedule", kernel_schedule);
    visit("raster", raster);
    visit("swap_ab", swap_ab);
    visit("box_m", box_m);
  }

  /// The pins of a Config: with swap_ab its m is the product's n (spec/gemm.h), and pins are of the product. A gate's
  /// interleave is a pin too, of other families.
  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit("b_dtype", element_type(config.facts.b_type));
    visit_product_pins(
        gemm::is_swapped(config), false, [&](auto&& field) { visit_fields(config, field); }, visit);
  }
};

}  // namespace tessera::gemm

namespace tessera {

using gemm::GemmOperator;

}  // namespace tessera
