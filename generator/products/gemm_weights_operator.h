// Products with 4-bit weights on Hopper, for the planner: which Configs are considered, how one is scored and named,
// and its launch as data. What a Config means and which are legal: spec/gemm_weights.h.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "generator/fact_fields.h"
#include "generator/products/product_pins.h"
#include "spec/gemm_weights.h"
#include "tessera/plan.h"

namespace tessera::gemm_weights {

struct GemmWeightsOperator {
  using Problem = Gemm;
  using Config = gemm_weights::Config;
  using Verdict = tessera::Verdict<gemm_weights::Rule>;
  static constexpr std::string_view kName = "gemm";
  static constexpr std::string_view kTemplates = "gemm_weights";
  static constexpr bool kHasAccumulation = false;

  /// Whether b has a format of four bits and a an element type, on a target with wgmma.
  static bool serves(const Gemm& problem);
  /// Throws Error{unsupported} for types, facts or pins that no kernel is made for.
  static void require_facts(const Gemm& problem);
  /// In order of preference among equal scores; not empty, may repeat. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Gemm& problem);
  /// The inverse of the modelled time.
  static double score(const Config& config, const Gemm& problem);
  static std::string merit(const Config& config, const Gemm& problem);

  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  /// Precondition: !verdict.ok().
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call(const Config& config);
  /// Of the step that packs weights too, where there is one.
  static std::string call_of_step(const Config& config, std::size_t step);
  static std::vector<SourceFile> generated_headers(const Config& config);

  /// In the order of generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [facts, b_group, zero_points, scale_form, mma_kind, tile_m, tile_n, stages, split_k, raster] = config;
    visit_facts<kHasAccumulation>(facts, visit);
    visit("b_group", b_group);
    visit("zero_points", zero_points);
    visit("scale_form", scale_form);
    visit("mma_kind", mma_kind);
    visit("tile_m", tile_m);
    visit("tile_n", tile_n);
    visit("stages", stages);
    visit("split_k", split_k);
    visit("raster", raster);
  }

  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit_product_pins(
        false, false, [&](auto&& field) { visit_fields(config, field); }, visit);
  }
};

}  // namespace tessera::gemm_weights

namespace tessera {

using gemm_weights::GemmWeightsOperator;

}  // namespace tessera
