// Matrix products on targets with tcgen05, for the planner: which Configs are considered, how one is scored and named,
// and its launch as data. What a Config means and which are legal: spec/gemm_tcgen05.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/fact_fields.h"
#include "generator/products/gemm_launch.h"
#include "spec/gemm_tcgen05.h"
#include "tessera/plan.h"

namespace tessera::gemm_tcgen05 {

struct GemmTcgen05Operator {
  using Problem = Gemm;
  using Config = gemm_tcgen05::Config;
  using Verdict = tessera::Verdict<gemm_tcgen05::Rule>;
  static constexpr std::string_view kName = "gemm";
  static constexpr std::string_view kTemplates = "gemm_tcgen05";
  static constexpr bool kHasAccumulation = false;

  /// Throws Error{unsupported} for types, layouts or scales that no kernel is made for.
  static void require_facts(const Gemm& problem);
  /// In order of preference among equal scores; not empty, may repeat. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Gemm& problem);
  /// The inverse of the modelled time; see gemm_tcgen05_cost.h.
  static double score(const Config& config, const Gemm& problem);
  static std::string merit(const Config& config, const Gemm& problem);

  /// "gemm nvfp4, tile 128x192, 4 stages, pair along m": a Config in front of an explanation.
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

  /// visit("rank", 2), visit("dtype", DType::f32), ...: int, bool, an enumeration, or an array of int, in the order of
  /// generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [facts, tile_m, tile_n, stages, accumulators, cluster_m, cluster_n, split_k, raster] = config;
    visit_facts<kHasAccumulation>(facts, visit);
    visit("tile_m", tile_m);
    visit("tile_n", tile_n);
    visit("stages", stages);
    visit("accumulators", accumulators);
    visit("cluster_m", cluster_m);
    visit("cluster_n", cluster_n);
    visit("split_k", split_k);
    visit("raster", raster);
  }
};

/// The regions of shared and Tensor Memory with their phases.
void gemm_tcgen05_memory(const gemm_tcgen05::Config& config, Plan& plan);
/// What its launch is made from.
GemmLaunch gemm_tcgen05_launch(const gemm_tcgen05::Config& config);

}  // namespace tessera::gemm_tcgen05

namespace tessera {

using gemm_tcgen05::GemmTcgen05Operator;

}  // namespace tessera
