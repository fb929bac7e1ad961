// Matrix products by mma.sync, for the planner: which Configs are considered, how one is scored and named, and its
// launch as data. What a Config means and which are legal: spec/gemm_mma.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/fact_fields.h"
#include "generator/family.h"
#include "generator/products/product_pins.h"
#include "spec/gemm_mma.h"
#include "tessera/plan.h"

namespace tessera::gemm_mma {

struct GemmMmaOperator {
  using Problem = Gemm;
  using Config = gemm_mma::Config;
  using Verdict = tessera::Verdict<gemm_mma::Rule>;
  static constexpr std::string_view kName = "gemm";
  static constexpr std::string_view kTemplates = "gemm_mma";
  static constexpr bool kHasAccumulation = false;

  /// Whether a target has neither wgmma nor tcgen05, or the pinned mma_kind is not the target's.
  static bool serves(const Gemm& problem);
  /// Throws Error{unsupported} for types, layouts or pins that no kernel is made for.
  static void require_facts(const Gemm& problem);
  /// In order of preference among equal scores; not empty, may repeat. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Gemm& problem);
  /// The inverse of the modelled time; see gemm_mma_cost.h.
  static double score(const Config& config, const Gemm& problem);
  static std::string merit(const Config& config, const Gemm& problem);
  static std::vector<CostSheet> costs(const Config& config, const Gemm& problem);

  /// "gemm bf16, tile 128x256, 2 stages": a Config in front of an explanation.
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  /// Precondition: !verdict.ok().
  static std::string explain(const Config& config, const Verdict& verdict);

  static std::string kernel_name(Arch arch, const Config& config);
  /// Fills in all that follows from the Config: operands, memory, roles, launch.
  static void describe(const Config& config, Plan& plan);

  static std::string launch_bounds();
  static std::string call(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);

  /// In the order of generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [facts, tile_m, tile_n, stages, cluster_m, cluster_n, split_k, raster, swap_ab, scale_form] = config;
    visit_facts<kHasAccumulation>(facts, visit);
    visit("tile_m", tile_m);
    visit("tile_n", tile_n);
    visit("stages", stages);
    visit("cluster_m", cluster_m);
    visit("cluster_n", cluster_n);
    visit("split_k", split_k);
    visit("raster", raster);
    visit("swap_ab", swap_ab);
    visit("scale_form", scale_form);
  }

  /// The pins of a Config, by the names of the product.
  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit_product_pins(
        gemm_mma::is_swapped(config), true, [&](auto&& field) { visit_fields(config, field); }, visit);
  }
};

}  // namespace tessera::gemm_mma

namespace tessera {

using gemm_mma::GemmMmaOperator;

}  // namespace tessera
