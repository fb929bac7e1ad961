// copy2d for the planner: which Configs are considered, how one is scored and named, and its launch as data. What a
// Config means and which are legal: spec/copy2d.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/copy2d.h"
#include "tessera/plan.h"

namespace tessera {

struct Copy2dOperator {
  using Problem = Copy2d;
  using Config = copy2d::Config;
  using Verdict = tessera::Verdict<copy2d::Rule>;
  static constexpr std::string_view kName = "copy2d";

  /// Throws Error{unsupported} for facts that no Config can serve.
  static void require_facts(const Copy2d& problem);
  /// In order of preference among equal scores; not empty, may repeat. Pins are obeyed, legal or not.
  static std::vector<Config> candidates(const Copy2d& problem);
  /// Bytes that an SM holds in flight, as a share of its shared memory, less what rows narrower than a cache line
  /// waste.
  static double score(const Config& config, const Copy2d& problem);
  /// What the score stands on: "13 tiles of 16,384 bytes in flight on an SM".
  static std::string merit(const Config& config, const Copy2d& problem);

  /// "copy2d rank 2, f32, tile 32x64, 128B": a Config in front of an explanation.
  static std::string subject(const Config& config);
  /// "tile 32x64, 128B": a Config among the candidates of one Problem.
  static std::string label(const Config& config);
  /// "264,200 bytes of shared memory, 232,448 allowed: take a smaller tile". Precondition: !verdict.ok().
  static std::string explain(const Config& config, const Verdict& verdict);

  static std::string kernel_name(Arch arch, const Config& config);
  /// Fills in all that follows from the Config: operands, smem, roles, launch.
  static void describe(const Config& config, Plan& plan);

  /// The entry's launch bounds and the body's call, as generated code spells them.
  static std::string launch_bounds();
  static std::string call(const Config& config);
  /// Headers that exist for this Config only.
  static std::vector<SourceFile> generated_headers(const Config& config);

  /// visit("rank", 2), visit("dtype", DType::f32), ...: int, bool, an enumeration, or an array of int, in the order of
  /// generated code and JSON. The structured binding fails to compile when the Config gains a field.
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [rank, dtype, box, swizzle] = config;
    visit("rank", rank);
    visit("dtype", dtype);
    visit("box", box);
    visit("swizzle", swizzle);
  }

  /// A box is pinned by its first extents.
  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit("tile_inner", config.box[0]);
    visit("tile_outer", config.box[1]);
    visit("swizzle", config.swizzle);
  }
};

}  // namespace tessera
