// Candidates are tiles for the rows that are expected, and the k of a tile split over a cluster where there are few
// tiles. Pins replace the table's values. The score is a model of the time (gemm_weights_cost.h).
#include "generator/products/gemm_weights_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/model_device.h"
#include "generator/operator_words.h"
#include "generator/products/gemm_launch.h"
#include "generator/products/gemm_weights_cost.h"
#include "generator/products/gemm_weights_packing.h"
#include "generator/products/product_words.h"
#include "generator/wgmma_header.h"
#include "generator/words.h"

namespace tessera::gemm_weights {

namespace {

constexpr int kRows[] = {16, 32, 64, 128, 192, 208, 256};
constexpr int kColumns[] = {128, 256, 64}, kParts[] = {1, 2, 3, 4};
constexpr int kDirectRows[] = {8, 16, 32}, kDirectParts[] = {1, 2, 3, 4, 6, 8}, kTeamRows[] = {8, 16, 24, 32};
constexpr int kDirectColumns[] = {128, 256, 64, 192, 384};
constexpr int kTeamColumns[] = {128, 256, 64, 192, 384, 448, 512, 576, gemm_weights::kHalfTile};
constexpr int kMostSplitRows = 64, kRasterRows = 1024;  // of a tile whose k is split; of all tiles of a raster

int raster_of(int tile_m) { return std::max(1, kRasterRows / tile_m); }

Config facts_of(const Gemm& p) {
  return {.facts = product_facts(p), .b_group = p.b_group, .zero_points = p.zero_points, .scale_form = p.scale_form};
}

bool has_one_tile(const Config& c, const Gemm& p) {
  return p.m > 0 && p.m <= c.tile_m && p.n > 0 && p.grouping == Grouping::none &&
         (p.n + c.tile_n - 1) / c.tile_n * std::max<std::int64_t>(p.l, 1) <= hopper_clusters_at_once(c.split_k);
}
// Of 16 rows that do not fit anyway, with one tile for each cluster: a shorter ring is filled sooner.
constexpr int kStagesOfOneTile = 12;
bool is_filled_sooner(const Config& c, const Gemm& p) {
  return gemm_weights::is_direct(c) && c.tile_m == 16 && gemm_weights::direct_warps(c) == 12 && has_one_tile(c, p);
}
constexpr int kMostRowsOfHalf = 24, kLeastDepthOfHalf = 4096;  // k of a part, of which 32 rows win 5 %
// Half a block is worth its doubled products where tiles of whole blocks would leave more multiprocessors without one:
// where those of two blocks are more than the clusters that run at once, and those of two and a half are not.
bool wants_half_block(Config c, const Gemm& p) {
  if (!has_one_tile(c, p) || (c.tile_m > kMostRowsOfHalf && p.k < kLeastDepthOfHalf * c.split_k)) return false;
  c.tile_n = 2 * kWeightRows;
  return !has_one_tile(c, p);
}
// Three teams with a tile for each cluster: activations that stay, or have a longer ring, win less than the
// instructions that laps of one length save.
bool wants_common_lap(Config c, const Gemm& p) {
  c.stages = kMostTeamDepth;
  return c.tile_m >= 16 && gemm_weights::is_team(c) && gemm_weights::k_groups(c) == 1 &&
         gemm_weights::consumer_warpgroups(c) == 3 && has_common_lap(c) && has_one_tile(c, p);
}
// Activations that do not stay, of four teams with 128 columns: over a short k they come later than weights, of which
// two slots for each team are enough. 0: as others.
constexpr int kShortSlots = 16, kStreamedOf16 = 14, kStreamedOf24 = 6, kStreamedOf32 = 8;
int streamed_stages(const Config& c, std::int64_t slots) {
  if (!has_laps(c) || gemm_weights::k_groups(c) != 2 || gemm_weights::a_dtype(c) != DType::bf16) return 0;
  const bool is_nvfp4 = c.facts.b_type == OperandType::nvfp4, is_short = slots <= kShortSlots;
  if (c.tile_m == 16 && (is_nvfp4 || c.zero_points == ZeroPoints::given)) return kStreamedOf16;
  if (c.tile_m == 24) return is_short ? most_stages(c) : kStreamedOf24;
  return c.tile_m == 32 && (is_short || is_nvfp4) ? kStreamedOf32 : 0;
}

// As many slots as the k of a part has steps, if they fit and stay: whole rounds of the groups. Otherwise as many as
// leave the weights their deepest rings.
int direct_stages(Config c, const Gemm& p) {
  if (wants_common_lap(c, p)) return kMostTeamDepth;
  const int most = most_stages(c), groups = gemm_weights::k_groups(c);
  const auto parts = static_cast<std::int64_t>(std::max(c.split_k, 1)) * gemm_weights::step_depth(c);
  const std::int64_t slots = p.k <= 0 ? most : (p.k + parts * groups - 1) / (parts * groups) * groups;
  const bool may_stay = p.m > 0 && p.m <= c.tile_m && p.l <= 1 && p.grouping == Grouping::none;
  if (p.k > 0 && may_stay && slots <= most) {
    c.stages = static_cast<int>(std::max<std::int64_t>(slots, 2 * groups));
    return has_common_lap(c) && c.stages < most ? c.stages + groups : c.stages;
  }
  if (const int stages = streamed_stages(c, slots); p.k > 0 && slots > most && stages > 0)
    return std::min(stages, most);
  c.stages = most;
  while (c.stages > 2 * groups && gemm_weights::direct_depth(c) < gemm_weights::most_depth(c)) c.stages -= groups;
  if (slots > c.stages && is_filled_sooner(c, p)) return kStagesOfOneTile;
  return static_cast<int>(std::clamp<std::int64_t>(slots, 2 * groups, c.stages));
}

void add_direct(const Gemm& problem, std::vector<Config>& list) {
  for (const int tile_m : kDirectRows)
    for (const int tile_n : kDirectColumns)
      for (const int split_k : kDirectParts) {
        // Of 32 rows nine warps are slower than eight of another width; 384 columns were faster in groups alone.
        if (tile_n == 192 && tile_m > 16 && !problem.tile_n) continue;
        if (tile_n == 384 && (tile_m > 8 || problem.grouping == Grouping::none) && !problem.tile_n) continue;
        Config c = facts_of(problem);
        c.mma_kind = MmaKind::mma_f16;
        c.tile_m = problem.tile_m.value_or(tile_m);
        c.tile_n = problem.tile_n.value_or(tile_n);
        c.split_k = problem.split_k.value_or(split_k);
        c.raster = problem.raster.value_or(raster_of(std::max(c.tile_m, 1)));
        c.stages = 2 * std::max(1, gemm_weights::k_groups(c));
        if (why_invalid(c).ok()) c.stages = direct_stages(c, problem);
        c.stages = problem.stages.value_or(c.stages);
        // Illegal ones are of interest where the instruction was asked for.
        if (problem.mma_kind || why_invalid(c).ok()) list.push_back(c);
      }
}

// Few rows by wgmma.
void add_teams(const Gemm& problem, std::vector<Config>& list) {
  // The model's launches were fitted to tiles whose octets all have rows.
  const bool knows_rows = problem.m > 0 && problem.grouping != Grouping::contiguous && !problem.tile_m;
  for (const int tile_m : kTeamRows)
    for (const int tile_n : kTeamColumns)
      for (const int split_k : kParts) {
        if (knows_rows && tile_m > 8 && tile_m >= problem.m + 8) continue;
        Config c = facts_of(problem);
        c.tile_m = problem.tile_m.value_or(tile_m);
        c.tile_n = problem.tile_n.value_or(tile_n);
        c.split_k = problem.split_k.value_or(split_k);
        c.raster = problem.raster.value_or(raster_of(std::max(c.tile_m, 1)));
        if (!gemm_weights::is_team(c)) continue;
        if (gemm_weights::has_half_block(c) && !problem.tile_n && !wants_half_block(c, problem)) continue;
        c.stages = 2 * std::max(1, gemm_weights::k_groups(c));
        if (why_invalid(c).ok()) c.stages = direct_stages(c, problem);
        c.stages = problem.stages.value_or(c.stages);
        // Illegal ones are of interest where they were asked for.
        if (problem.mma_kind || why_invalid(c).ok()) list.push_back(c);
      }
}

std::string types_text(const Config& c) {
  return fmt::format("{} x {}{}", to_word(c.facts.a_type), to_word(c.facts.b_type), gate_and_groups_text(c.facts));
}

void refuse(std::string_view key, std::string_view value, std::string_view reason) {
  throw Error(ErrorKind::unsupported, fmt::format("gemm: {} = {}: {}", key, value, reason));
}

void require_pins(const Gemm& p) {
  if (p.accumulators)
    refuse("accumulators", fmt::format("{}", *p.accumulators),
           fmt::format("is for Tensor Memory, which {} does not have", p.arch.to_string()));
  if (p.cluster_m.value_or(1) != 1)
    refuse("cluster_m", fmt::format("{}", *p.cluster_m), "1 allowed with 4-bit weights");
  if (p.cluster_n.value_or(1) != 1)
    refuse("cluster_n", fmt::format("{}", *p.cluster_n), "1 allowed with 4-bit weights");
  if (p.kernel_schedule == KernelSchedule::ping_pong)
    refuse("kernel_schedule", "ping_pong", "cooperative allowed with 4-bit weights");
  if (p.swap_ab == SwapAb::off) refuse("swap_ab", "off", "4-bit weights give the instruction its rows (on)");
  if (p.mma_kind && *p.mma_kind != MmaKind::wgmma_f16 && *p.mma_kind != MmaKind::mma_f16)
    refuse("mma_kind", to_word(*p.mma_kind), "4-bit weights are multiplied by wgmma.f16 or mma.f16");
}

}  // namespace

bool GemmWeightsOperator::serves(const Gemm& problem) {
  if (!has_family(problem.arch, MmaFamily::wgmma) || problem.format) return false;
  return problem.b_int4 || (problem.b_format && value_bits(*problem.b_format) == 4);
}

void GemmWeightsOperator::require_facts(const Gemm& problem) {
  require_pins(problem);
  require_no_factors_of_d(problem, "4-bit weights");
  require_epilogue_facts(problem);
  if (problem.interleave.value_or(1) != 1 && problem.gate != Gate::interleaved)
    refuse("interleave", fmt::format("{}", *problem.interleave), "it is for interleaved gates");
  const Config c = facts_of(problem);
  if (const Verdict verdict = gemm_weights::why_invalid_types(c); !verdict.ok())
    throw Error(ErrorKind::unsupported, fmt::format("gemm {}: {}", types_text(c), explain(c, verdict)));
}

std::vector<Config> GemmWeightsOperator::candidates(const Gemm& problem) {
  std::vector<Config> list;
  if (problem.mma_kind != MmaKind::wgmma_f16) add_direct(problem, list);
  // Factors of a: by mma.f16 alone, which the rule says where the other is asked for.
  const bool is_direct_alone = problem.a_scale_block != ScaleBlock::none && !list.empty();
  if (problem.mma_kind == MmaKind::mma_f16 || is_direct_alone) return list;
  add_teams(problem, list);
  for (const int tile_m : kRows)
    for (const int tile_n : kColumns)
      for (const int split_k : kParts) {
        if (split_k > 1 && tile_m > kMostSplitRows && !problem.split_k) continue;
        Config c = facts_of(problem);
        c.tile_m = problem.tile_m.value_or(tile_m);
        c.tile_n = problem.tile_n.value_or(tile_n);
        c.split_k = problem.split_k.value_or(split_k);
        c.raster = problem.raster.value_or(raster_of(std::max(c.tile_m, 1)));
        if (gemm_weights::is_team(c)) continue;
        c.stages = 2 * std::max(1, gemm_weights::k_groups(c));
        if (why_invalid(c).ok()) c.stages = most_stages(c);
        c.stages = problem.stages.value_or(c.stages);
        list.push_back(c);
      }
  return list;
}

double GemmWeightsOperator::score(const Config& config, const Gemm& problem) {
  return 1e6 / gemm_weights_cost(config, problem).cycles;
}

std::string GemmWeightsOperator::merit(const Config& config, const Gemm& problem) {
  const GemmWeightsCost cost = gemm_weights_cost(config, problem);
  return fmt::format("modelled at {:.1f} us, bound by {}", cost.cycles / (1e3 * kHopper.clock_ghz), cost.bound);
}

std::string GemmWeightsOperator::label(const Config& config) {
  std::string text = fmt::format("{}tile {}x{}, {}", gemm_weights::is_direct(config) ? "mma.f16, " : "", config.tile_m,
                                 config.tile_n, counted(config.stages, "stage"));
  if (config.split_k != 1) text += fmt::format(", k in {} parts", config.split_k);
  return text;
}

std::string GemmWeightsOperator::subject(const Config& config) {
  return fmt::format("gemm {}, {}", types_text(config), label(config));
}

std::string GemmWeightsOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::facts_of_others:
      return "4-bit weights have kernels for a and b with contiguous k, without promoted sums and a block-scaled d";
    case Rule::factors_of_a:
      return "scale blocks beside 4-bit weights: a_scale_block 1x128 of a of e4m3 or e5m2 alone (weights have scales "
             "of "
             "their own)";
    case Rule::factors_of_wgmma:
      return "a_scale_block beside 4-bit weights by wgmma, mma.f16 needed (mma_kind): its sums of 128 of k are apart";
    case Rule::dual_gate:
      return "gate dual: of 4-bit weights the rows of gate and up are packed together, eight in turn (gate "
             "interleaved, "
             "interleave 8)";
    case Rule::gate_and_addend:
      return "a gate with c or activation: none of them allowed beside it (gate_activation is the gate's)";
    case Rule::interleave:
      return fmt::format(
          "interleave {}: {} allowed with 4-bit weights (rows g and g + 8 of the instruction are one "
          "thread's): pack the rows in that order",
          found, bound);
    case Rule::gather_without_groups:
      return "gather rows without groups: it is for rows of groups; gather the rows first (rows, chain gather+same)";
    case Rule::activation_type:
      return fmt::format("a is {}: must be bf16, f16, e4m3 or e5m2 beside 4-bit weights", to_word(config.facts.a_type));
    case Rule::exponents_of_f16:
      return "scales of mxfp4 reach beyond f16's exponents: take a of bf16, or weights in nvfp4";
    case Rule::output_type:
      return fmt::format("d is {}: must be f32, bf16 or f16 beside 4-bit weights", to_word(config.facts.d_dtype));
    case Rule::int4_alone:
      return fmt::format("b_group and zero_points are for int4: {} has a scale for {}", to_word(config.facts.b_type),
                         block_elements(block_format(config.facts.b_type)));
    case Rule::group_of_int4:
      return fmt::format("b_group {}: 32, 64 or {} allowed", found, bound);
    case Rule::tile_m_not_supported:
      if (gemm_weights::is_team(config))
        return fmt::format("tile_m {}: a multiple of 8 up to {}, or of 16 up to {} needed (columns of wgmma)", found,
                           kMostFewRows, bound);
      return fmt::format("tile_m {}: a multiple of 16 up to {} needed (columns of wgmma, in boxes of {})", found, bound,
                         config.tile_m > 0 ? gemm_weights::a_box_rows(config) : 8);
    case Rule::tile_n_not_supported: {
      const char* const between = may_have_half_block(config)       ? ", 160, 192, 256, 384, 448, 512"
                                  : gemm_weights::is_team(config)   ? ", 192, 256, 384, 448, 512"
                                  : gemm_weights::is_direct(config) ? (config.tile_m == 8 ? ", 192, 256" : ", 192")
                                                                    : "";
      const char* const when = gemm_weights::is_team(config)     ? " with up to 32 rows by wgmma"
                               : gemm_weights::is_direct(config) ? " with mma.f16"
                                                                 : "";
      return fmt::format("tile_n {}: 64, 128{} or {} allowed{} (64 for each block of weights)", found, between, bound,
                         when);
    }
    case Rule::instruction:
      return "4-bit weights are multiplied by wgmma.f16 or mma.f16";
    case Rule::rows_not_supported:
      return gemm_weights::has_factors(config)
                 ? fmt::format("tile_m {}: 8 or {} allowed with mma.f16 and a_scale_block", found, bound)
                 : fmt::format("tile_m {}: 8, 16 or {} allowed with mma.f16 (eight rows an instruction)", found, bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 2 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::stages_of_groups:
      return fmt::format("{}, a multiple of {} needed, from {} on: that many groups take turns, each with two at least",
                         counted(verdict.found, "stage"), bound, 2 * verdict.bound);
    case Rule::split_k_out_of_range:
      return fmt::format("split_k {}, 1 to {} allowed (CTAs of a cluster)", found, bound);
    case Rule::split_k_of_wide_tiles:
      return fmt::format("split_k with {} blocks of weights for each warpgroup, {} allowed: take a smaller tile", found,
                         bound);
    case Rule::raster_out_of_range:
      return fmt::format("raster {}, 1 to {} allowed", found, bound);
    case Rule::accumulators_exceed_registers:
      return fmt::format("{} accumulator registers a thread, {} allowed: take a smaller tile", found, bound);
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: {}", found, bound,
                         config.stages > 2 ? "drop a stage" : "take a smaller tile");
  }
  return "?";
}

std::string GemmWeightsOperator::kernel_name(Arch arch, const Config& c) {
  const std::string_view a = to_word(c.facts.a_type), d = to_word(c.facts.d_dtype);
  std::string name = fmt::format("tessera_gemm_{}_{}_{}", arch_name(arch.to_string()), a, to_word(c.facts.b_type));
  if (c.facts.b_type == OperandType::int4) name += fmt::format("_g{}", c.b_group);
  if (c.zero_points == ZeroPoints::given) name += "_z";
  if (packs_first(c)) name += "_plain";
  if (gemm_weights::has_factors(c)) name += "_1x128";
  if (gemm_weights::is_direct(c)) name += "_mma";
  if (d != a) name += fmt::format("_to_{}", d);
  name += fmt::format("_{}x{}_s{}_k{}", c.tile_m, c.tile_n, c.stages, c.split_k);
  if (c.raster != raster_of(c.tile_m)) name += fmt::format("_r{}", c.raster);
  return name + gate_and_groups_name(c.facts) + addends_name(c.facts);
}

namespace {

void describe_smem(const Config& c, Plan& plan) {
  const gemm_weights::SmemLayout layout = gemm_weights::smem_layout(c);
  const auto ring = [&](const gemm_weights::SmemRegion& region, const char* name) {
    plan.smem.push_back({region.name,
                         region.offset,
                         region.bytes,
                         c.stages,
                         {{fmt::format("{} on their way", name), "load", "barrier full"},
                          {fmt::format("{} of a step", name), "consumer", "barrier empty"}}});
  };
  ring(layout.a, "activations");
  if (!gemm_weights::has_own_rings(c)) ring(layout.b, "packed weights");
  if (gemm_weights::has_d_map(c))
    plan.smem.push_back({layout.d.name,
                         layout.d.offset,
                         layout.d.bytes,
                         gemm_weights::consumer_warpgroups(c) * gemm::kStagingSlots,
                         {{"panel of D, being written", "consumer", "barrier of the warpgroup"},
                          {"panel of D, being stored", "consumer", "the store before last has read it"}}});
  if (c.split_k > 1)
    plan.smem.push_back(
        {layout.parts.name,
         layout.parts.offset,
         layout.parts.bytes,
         gemm_weights::has_own_rings(c) ? gemm_weights::rings(c) : gemm_weights::consumer_warpgroups(c),
         {{"sums of this CTA's part of K, being written", "consumer", "barrier ready"},
          {"sums of this CTA's part of K", "consumer of the CTA that adds them up", "barrier fetched"}}});
  if (layout.half.bytes > 0)
    plan.smem.push_back({layout.half.name,
                         layout.half.offset,
                         layout.half.bytes,
                         1,
                         {{"sums of half a block's k 64 to 127, being written", "consumer", "barrier of the warpgroup"},
                          {"those sums", "consumer", "barrier of the warpgroup"}}});
  if (layout.tiles.bytes > 0)
    plan.smem.push_back({layout.tiles.name,
                         layout.tiles.offset,
                         layout.tiles.bytes,
                         c.stages,
                         {{"the tile that the slot of activations is of", "consumer", "barrier full"}}});
  plan.smem.push_back({layout.barriers.name, layout.barriers.offset, layout.barriers.bytes});
  plan.smem_bytes = layout.total_bytes;
}

std::vector<std::uint32_t> extents_of(const gemm_weights::TmaBox& box) {
  return {std::begin(box.extents), std::end(box.extents)};
}

GemmLaunch launch_of(const Config& c) {
  const gemm::Config epilogue = gemm_weights::epilogue_config(c);
  return {.facts = c.facts,
          .tiles = {.tile_m = c.tile_m, .tile_n = c.tile_n, .split_k = c.split_k},
          .cluster_size = c.split_k,
          .threads = gemm_weights::num_threads(c),
          .smem_bytes = gemm_weights::smem_layout(c).total_bytes,
          .a = {.box = extents_of(gemm_weights::a_box(c))},
          .d = {.box = extents_of(gemm::d_box(epilogue)), .swizzle = tensor_map_swizzle(gemm::d_swizzle(epilogue))},
          .has_d_map = gemm_weights::has_d_map(c),
          .has_tensor_scales = gemm_weights::is_widened(c),
          .is_gathered = gemm_weights::is_gathered(c),
          .has_a_map = !gemm_weights::copies_rows(c),
          .packed_bytes = weight_block_bytes(gemm_weights::weights(c)),
          .packed_group = gemm_weights::weights(c).group,
          .has_scale_b = c.facts.b_type == OperandType::nvfp4 && !gemm_weights::is_widened(c),
          .pitch_remedy = "pad the rows of {}, which need not be dense"};
}

}  // namespace

void GemmWeightsOperator::describe(const Config& config, Plan& plan) {
  const ProductFacts& facts = config.facts;
  plan.mma_kind = std::string(to_word(config.mma_kind));
  const auto mapped = [&](const char* name, DType dtype, Swizzle swizzle, const char* use) {
    return OperandPlan{.name = name,
                       .dtype = std::string(to_word(dtype)),
                       .tensor_map_type = std::string(to_string(tensor_map_type(dtype))),
                       .swizzle = std::string(to_word(swizzle)),
                       .use = use};
  };
  const bool is_gathered = gemm_weights::is_gathered(config);
  plan.operands = {
      gemm_weights::is_widened(config)
          ? plain_operand("a", to_word(facts.a_type),
                          is_gathered ? "A, rows by a list, widened to bf16" : "A, rows widened to bf16")
      : is_gathered                       ? plain_operand("a", to_word(facts.a_type), "A, rows by a list")
      : gemm_weights::copies_rows(config) ? plain_operand("a", to_word(facts.a_type), "A, rows copied by a warp")
                                          : mapped("a", element_type(facts.a_type), Swizzle::b128, "A, K-major"),
      plain_operand("b", to_word(facts.b_type),
                    gemm_weights::has_own_rings(config) ? "weights and scales, packed: loaded to registers"
                                                        : "weights and scales, packed: by bulk copies, to registers"),
      gemm_weights::has_d_map(config)
          ? mapped("d", facts.d_dtype, gemm::d_swizzle(gemm_weights::epilogue_config(config)),
                   "D, stored through shared memory")
          : plain_operand("d", to_word(facts.d_dtype), "D, stored from registers")};
  describe_smem(config, plan);
  plan.entry_registers = gemm_weights::register_budget(config).entry;
  for (int i = 0; i < gemm_weights::roles(config); ++i) {
    const gemm_weights::Role role = gemm_weights::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  const GemmLaunch launch = launch_of(config);
  plan.launch = gemm_launch(launch, plan.arch.to_string(), plan.kernel);
  if (packs_first(config)) add_packing(config, plan);
  add_groups_operand(facts, plan.operands);
  if (is_gathered) plan.operands.push_back(plain_operand("indices", "s32", "row of a that each row has"));
  add_addend_operands(launch, plan.operands);
  if (launch.has_tensor_scales) plan.operands.push_back(plain_operand("scale_a", "f32", "factor of alpha if not null"));
  if (gemm_weights::has_factors(config)) plan.operands.push_back(plain_operand("sfa", "f32", "of 128 of a's k"));
  if (launch.has_scale_b || launch.has_tensor_scales)
    plan.operands.push_back(plain_operand("scale_b", "f32", "factor of alpha if not null"));
}

std::string GemmWeightsOperator::launch_bounds() { return "tessera::gemm_weights::num_threads(kConfig), 1"; }

std::string GemmWeightsOperator::call(const Config& config) {
  const bool has_c = config.facts.c == Addend::matrix;
  // Nobody looks at the map that is given in place of another.
  const bool has_a_map = !gemm_weights::copies_rows(config), is_widened = gemm_weights::is_widened(config);
  const char* const no_map = has_a_map ? "a" : gemm_weights::has_d_map(config) ? "d" : "tessera::gemm_weights::kNoMap";
  const char* const groups = gemm_weights::is_grouped(config) ? ", static_cast<const int*>(groups)"
                             : has_a_map                      ? ""
                                                              : ", nullptr";
  const char* const rows = has_a_map                           ? ""
                           : gemm_weights::is_gathered(config) ? ", a, static_cast<const int*>(indices), lda, a_rows"
                                                               : ", a, nullptr, lda, 0, a_stride_l";
  const char* const factors = !gemm_weights::has_factors(config)  ? ""
                              : gemm_weights::is_gathered(config) ? ", 0, sfa, sfa_stride_m, sfa_stride_k, sfa_stride_l"
                                                                  : ", sfa, sfa_stride_m, sfa_stride_k, sfa_stride_l";
  return fmt::format(
      "tessera::gemm_weights::{}<kConfig>(\n      {{{}, {}, b, d_pointer, {}, {}, {}, {}, m, n, k, l, ldd, "
      "d_stride_l, {}, alpha, {}{}{}{}}})",
      gemm_weights::is_direct(config) ? "direct_kernel"
      : gemm_weights::is_team(config) ? "team_kernel"
                                      : "kernel",
      no_map, gemm_weights::has_d_map(config) ? "d" : no_map, has_c ? "c" : "nullptr",
      config.facts.bias != Bias::none ? "bias" : "nullptr", is_widened ? "scale_a" : "nullptr",
      is_widened || config.facts.b_type == OperandType::nvfp4 ? "scale_b" : "nullptr",
      has_c ? "ldc, c_stride_l" : "0, 0", has_c ? "beta" : "0.0f", groups, rows, factors);
}

std::string GemmWeightsOperator::call_of_step(const Config& config, std::size_t step) {
  return packs_first(config) && step == 0 ? packing_call(config) : call(config);
}

std::vector<SourceFile> GemmWeightsOperator::generated_headers(const Config& config) {
  std::vector<SourceFile> headers;
  if (gemm_weights::is_direct(config)) {
    headers.push_back({"wgmma_shapes.cuh", wgmma_header({})});
  } else {
    std::vector<WgmmaShape> shapes{gemm_weights::wgmma_shape(config)};
    if (gemm_weights::has_half_block(config)) shapes.push_back(gemm_weights::wgmma_shape_of_half(config));
    headers.push_back({"wgmma_shapes.cuh", wgmma_header(shapes)});
  }
  if (packs_first(config)) headers.push_back(packing_header(config));
  return headers;
}

}  // namespace tessera::gemm_weights
