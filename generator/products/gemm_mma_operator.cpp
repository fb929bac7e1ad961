// Candidates are tiles of powers of two, the largest first, and for few rows those of D transposed, and the K of a tile
// split over a cluster. Pins replace the table's values. The score is a model of the time; see gemm_mma_cost.h.
#include "generator/products/gemm_mma_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/operator_words.h"
#include "generator/products/gemm_launch.h"
#include "generator/products/gemm_mma_cost.h"
#include "generator/products/mma_kinds.h"
#include "generator/products/product_words.h"
#include "generator/words.h"

namespace tessera::gemm_mma {

namespace {

constexpr int kRasterRows = 2048;  // a group of tiles along m: what runs at once forms about a square
// As a Config has them: with swap_ab tile_m is of the product's n.
constexpr std::pair<int, int> kTiles[] = {{128, 256}, {256, 128}, {128, 128}, {64, 256}, {256, 64},
                                          {64, 128},  {128, 64},  {64, 64},   {32, 256}, {32, 128},
                                          {32, 64},   {16, 256},  {16, 128},  {16, 64}};
constexpr std::pair<int, int> kSwappedTiles[] = {{128, 8}, {64, 8}, {128, 16}, {64, 16}, {128, 32}, {64, 32}};
constexpr int kParts[] = {2, 4, 8};
constexpr int kMostFewRows = 64;  // of a tile whose K is split, or of D transposed

// Of the product: rows of D first.
std::pair<int, int> tile_of(const Config& c) {
  return gemm_mma::is_swapped(c) ? std::pair(c.tile_n, c.tile_m) : std::pair(c.tile_m, c.tile_n);
}

int raster_of(int tile_m) { return std::max(1, kRasterRows / tile_m); }

std::string types_text(const Config& c) {
  const std::string_view a = to_word(c.facts.a_type), b = to_word(c.facts.b_type);
  return (a == b ? std::string(a) : fmt::format("{} x {}", a, b)) + gate_and_groups_text(c.facts);
}

/// Hopper widens e4m3 and e5m2, which takes registers: of the parts that a warp may have those that leave enough,
/// unless pins allow nothing else.
std::vector<Config> without_spills(std::vector<Config> list) {
  std::vector<Config> kept;
  std::copy_if(list.begin(), list.end(), std::back_inserter(kept),
               [](const Config& c) { return gemm_mma::warp_m(c) * gemm_mma::warp_n(c) <= 32 * 32; });
  const bool has_legal = std::any_of(kept.begin(), kept.end(), [](const Config& c) { return why_invalid(c).ok(); });
  return has_legal ? kept : list;
}

void require_pins(const Gemm& p) {
  const auto refuse = [](std::string_view key, const std::string& value, std::string_view reason) {
    throw Error(ErrorKind::unsupported, fmt::format("gemm: {} = {} {}", key, value, reason));
  };
  if (p.accumulators) refuse("accumulators", fmt::format("{}", *p.accumulators), "is for Tensor Memory (tcgen05)");
  if (p.kernel_schedule)
    refuse("kernel_schedule", std::string(to_word(*p.kernel_schedule)),
           "is for wgmma (sm_90a): with mma.sync every warp has its part of each tile");
}

}  // namespace

bool GemmMmaOperator::serves(const Gemm& problem) {
  if (!has_family(problem.arch, MmaFamily::wgmma) && !has_family(problem.arch, MmaFamily::tcgen05)) return true;
  return problem.mma_kind && problem.mma_kind != own_mma_kind(problem);
}

void GemmMmaOperator::require_facts(const Gemm& problem) {
  require_mma_sync_kind(problem);
  require_no_factors_of_d(problem, "mma.sync");
  require_no_facts_of_wgmma(problem, true);
  require_epilogue_facts(problem);
  const Config c{.facts = product_facts(problem)};
  if (const Verdict verdict = gemm_mma::why_invalid_types(c); !verdict.ok())
    throw Error(ErrorKind::unsupported, fmt::format("gemm {}: {}", types_text(c), explain(c, verdict)));
  if (gemm_mma::is_scaled(c) && problem.arch.compute_major() != 12)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm {}: mma.sync has block scales on sm_120 and sm_121 with suffix a or f, not on {}",
                            types_text(c), problem.arch.to_string()));
  if (gemm_mma::is_quantized(c) && problem.arch.compute_major() != 12)
    throw Error(ErrorKind::unsupported,
                fmt::format("gemm {}: d of {} has kernels for sm_120 and sm_121 with suffix a or f (mma.sync), and for "
                            "sm_100 and sm_103 (tcgen05), none for {}",
                            types_text(c), to_word(c.facts.d_format), problem.arch.to_string()));
  for (const auto& [name, layout] : {std::pair('a', c.facts.a_layout), std::pair('b', c.facts.b_layout)})
    if (layout == Layout::mn_major && gemm_mma::element_bits(c) == 8 && problem.arch.compute_major() != 12)
      throw Error(ErrorKind::unsupported,
                  fmt::format("gemm {}: {}_layout mn with elements of 8 bits: ldmatrix transposes bytes (m16n16) on "
                              "sm_120 and sm_121 with suffix a or f, not on {}: make k of {} contiguous",
                              types_text(c), name, problem.arch.to_string(), name));
  if (problem.interleave.value_or(1) != 1 && problem.gate != Gate::interleaved)
    throw Error(ErrorKind::unsupported, fmt::format("gemm: interleave = {} with gate = {}: it is for interleaved gates",
                                                    *problem.interleave, to_word(problem.gate)));
  require_pins(problem);
}

namespace {

Config completed(const Gemm& p, SwapAb swap_ab, std::pair<int, int> tile, int split_k) {
  Config c{.facts = product_facts(p)};
  const bool is_swapped = swap_ab == SwapAb::on;
  c.swap_ab = swap_ab;
  if (gemm_mma::is_scaled(c)) c.scale_form = p.scale_form;
  c.tile_m = (is_swapped ? p.tile_n : p.tile_m).value_or(tile.first);
  c.tile_n = (is_swapped ? p.tile_m : p.tile_n).value_or(tile.second);
  c.cluster_m = (is_swapped ? p.cluster_n : p.cluster_m).value_or(1);
  c.cluster_n = (is_swapped ? p.cluster_m : p.cluster_n).value_or(1);
  c.split_k = p.split_k.value_or(split_k);
  // Only a Config whose extents are sane is completed: completing evaluates products of them, and divides.
  const auto is_within = [](int value) { return value >= 1 && value <= 1024; };
  const bool is_sane = is_within(c.tile_m) && is_within(c.tile_n) && is_within(c.split_k);
  c.raster = p.raster.value_or(is_sane ? raster_of(tile_of(c).first) : 1);
  c.stages = p.stages.value_or(is_sane ? gemm_mma::most_stages(c) : 2);
  return c;
}

}  // namespace

std::vector<Config> GemmMmaOperator::candidates(const Gemm& p) {
  std::vector<Config> list;
  const bool is_grouped = p.grouping != Grouping::none;
  const auto add = [&](SwapAb swap_ab, std::pair<int, int> tile) {
    const Config whole = completed(p, swap_ab, tile, 1);
    // D of many rows is not made transposed, unless that is asked for.
    if (swap_ab == SwapAb::on && !p.swap_ab && whole.tile_n > kMostFewRows) return;
    list.push_back(whole);
    if (p.split_k || is_grouped || std::min(whole.tile_m, whole.tile_n) > kMostFewRows) return;
    for (const int parts : kParts) list.push_back(completed(p, swap_ab, tile, parts));
  };
  if (p.swap_ab != SwapAb::on)
    for (const auto& tile : kTiles) add(SwapAb::off, tile);
  // Nor D of a gate, of groups or of blocks, where it is refused.
  const bool is_as_it_is = is_grouped || p.gate != Gate::none || p.d_format;
  if (p.swap_ab == SwapAb::on || (!p.swap_ab && !is_as_it_is))
    for (const auto& tile : kSwappedTiles) add(SwapAb::on, tile);
  return has_family(p.arch, MmaFamily::wgmma) && gemm::is_8_bit(p.dtype) ? without_spills(std::move(list)) : list;
}

double GemmMmaOperator::score(const Config& config, const Gemm& problem) {
  return 1e6 / gemm_mma_cost(config, problem).cycles;
}

namespace {

constexpr double kWorthSaying = 0.95;  // of the time that it takes as it is
BlockFormat mxfp8_of(DType dtype) { return dtype == DType::e4m3 ? BlockFormat::mxfp8_e4m3 : BlockFormat::mxfp8_e5m2; }

/// Of e4m3 and e5m2, whose sums have half the rate on a GeForce card: what the same bytes take with scales of one, and
/// on which of the target's devices that is less.
std::string word_on_unit_scales(const Config& c, const Gemm& problem) {
  const bool is_plain_fp8 = !gemm_mma::is_scaled(c) && gemm::is_8_bit(gemm_mma::a_dtype(c));
  if (!is_plain_fp8 || problem.arch.compute_major() != 12) return "";
  Gemm scaled = problem;
  scaled.mma_kind.reset();
  scaled.format = mxfp8_of(problem.dtype);
  scaled.b_format = mxfp8_of(problem.b_dtype.value_or(problem.dtype));
  const std::vector<Config> others = GemmMmaOperator::candidates(scaled);
  std::string text;
  for (const MmaDevice& device : mma_devices_of(problem.arch)) {
    if (device.mx8 <= device.fp8) continue;
    const double worth_saying = gemm_mma_cost(c, problem, device).us * kWorthSaying;
    double least = worth_saying;
    for (const Config& other : others)
      if (why_invalid(other).ok()) least = std::min(least, gemm_mma_cost(other, scaled, device).us);
    if (least >= worth_saying) continue;
    text += fmt::format(
        "; on {} sums of plain {} have half the rate: as {} with every scale 1 (byte 127), k a multiple of 32 and the "
        "factors in alpha, modelled at {:.1f} us there",
        device.name, types_text(c), types_text(others.front()), least);
  }
  return text;
}

/// No published figure tells the rate of six bits apart from that of eight, whose instruction it is.
constexpr const char* kWordOnSixBits =
    "; six bits are taken to multiply at the rate of mxfp8 (one report of an RTX 5080, CUTLASS issue 2186, has its "
    "kernel of them at 0.56 of that)";

}  // namespace

std::string GemmMmaOperator::merit(const Config& config, const Gemm& problem) {
  std::string text;
  for (const MmaDevice& device : mma_devices_of(problem.arch)) {
    const GemmMmaCost cost = gemm_mma_cost(config, problem, device);
    text += text.empty() ? "modelled (never measured) at " : ", ";
    text += modelled_text(cost_sheet(device, cost.us, cost.work), cost.tensor_share, counted(cost.rounds, "round"));
  }
  const bool has_six_bits = is_mxfp6(config.facts.a_type) || is_mxfp6(config.facts.b_type);
  return text + word_on_unit_scales(config, problem) + (has_six_bits ? kWordOnSixBits : "");
}

std::vector<CostSheet> GemmMmaOperator::costs(const Config& config, const Gemm& problem) {
  std::vector<CostSheet> sheets;
  for (const MmaDevice& device : mma_devices_of(problem.arch)) {
    const GemmMmaCost cost = gemm_mma_cost(config, problem, device);
    sheets.push_back(cost_sheet(device, cost.us, cost.work));
  }
  return sheets;
}

std::string GemmMmaOperator::label(const Config& c) {
  const auto [rows, columns] = tile_of(c);
  std::string text = fmt::format("tile {}x{}{}, {}", rows, columns, gemm_mma::is_swapped(c) ? " transposed" : "",
                                 counted(c.stages, "stage"));
  if (c.split_k != 1) text += fmt::format(", k in {} parts", c.split_k);
  return text;
}

std::string GemmMmaOperator::subject(const Config& config) {
  return fmt::format("gemm {}, {}", types_text(config), label(config));
}

std::string GemmMmaOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  const bool is_swapped = gemm_mma::is_swapped(config);
  const std::string_view tile_m = product_pin("tile_m", is_swapped), tile_n = product_pin("tile_n", is_swapped);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::swap_of_blocks:
      return "swap_ab on with a block-scaled d, off allowed: blocks are columns of the instruction";
    case Rule::part_of_block:
      return fmt::format(
          "{} columns of d a warp, a multiple of {} needed (the block that shares a scale): take tile_n 64 or more",
          found, bound);
    case Rule::operand_type:
      return fmt::format(
          "a is {}, b is {}: both must be bf16, f16, nvfp4 or mxfp4, or each e4m3 or e5m2, or each s8 or u8, or each "
          "mxfp8, mxfp6 or mxfp4 (mma.sync kernels)",
          to_word(config.facts.a_type), to_word(config.facts.b_type));
    case Rule::output_type:
      return fmt::format("d is {}: must be f32, bf16, f16{} or a block-scaled format", to_word(config.facts.d_dtype),
                         gemm_mma::is_integer(config) ? ", s32" : "");
    case Rule::finished_sums:
      return "d is s32 with c, bias, an activation or a gate: sums of integers are stored as they are; take d of type "
             "f32, bf16 or f16";
    case Rule::gate_and_addend:
      return fmt::format("gate {} with c{} or an activation: a gate{} is all that happens to its sums",
                         to_word(config.facts.gate), config.facts.gate == Gate::dual ? ", bias" : "",
                         config.facts.gate == Gate::dual ? "" : ", with a bias,");
    case Rule::layout_of_groups:
      return "a_layout mn with contiguous groups: a copy begins at a multiple of 16 bytes, a group at any row; take "
             "masked groups, or make k of a contiguous";
    case Rule::gather_without_groups:
      return "gather rows without groups: it is for rows of groups; gather the rows first (rows, chain gather+same)";
    case Rule::layout_of_gather:
      return "a_layout mn with gather rows: a row's k is copied in units of 16 bytes; make k of a contiguous";
    case Rule::interleave_not_dividing:
      return fmt::format("interleave {}: it must divide {}, the columns of d that a warp has{}", found, bound,
                         verdict.found == 32 ? ": take tile_n 64 or more" : "");
    case Rule::swap_of_gate:
      return "swap_ab on with a gate, off allowed: gate and up are columns of the instruction";
    case Rule::swap_of_groups:
      return "swap_ab on with groups, off allowed: rows of a group are rows of the instruction";
    case Rule::split_k_of_groups:
      return fmt::format("split_k {}, {} allowed with groups: their tiles are counted on the device", found, bound);
    case Rule::layout_of_narrow: {
      const bool is_a = config.facts.a_layout == Layout::mn_major && operand_bits(config.facts.a_type) < 8;
      return fmt::format(
          "{}_layout mn with elements of {} bits, {} bits needed ({} must be neighbours along k): make k of {} "
          "contiguous",
          is_a ? 'a' : 'b', found, bound, verdict.found == 6 ? "values that share bytes" : "two values of a byte",
          is_a ? 'a' : 'b');
    }
    case Rule::promoted_sums:
      return "accumulation promoted is for wgmma (sm_90a): mma.sync sums in fp32 as it is";
    case Rule::tile_m_not_power_of_two:
      return fmt::format("{} {}, a power of two from {} on needed (mma.sync M)", tile_m, found, bound);
    case Rule::tile_n_not_power_of_two:
      return fmt::format("{} {}, a power of two from {} on needed ({})", tile_n, found, bound,
                         is_swapped ? "mma.sync N" : "columns of a warp");
    case Rule::tile_m_out_of_range:
      return fmt::format("{} {}, at most {} allowed (rows of a TMA box)", tile_m, found, bound);
    case Rule::tile_n_out_of_range:
      return fmt::format("{} {}, at most {} allowed (rows of a TMA box)", tile_n, found, bound);
    case Rule::tile_m_of_panels:
      return fmt::format("{} {} with {}_layout mn, {} or more needed (32 bytes, the least swizzle span)", tile_m, found,
                         is_swapped ? 'b' : 'a', bound);
    case Rule::tile_n_of_panels:
      return fmt::format("{} {} with {}_layout mn, {} or more needed (32 bytes, the least swizzle span)", tile_n, found,
                         is_swapped ? 'a' : 'b', bound);
    case Rule::too_many_warps:
      return fmt::format("{} warps of {} x {}, at most {} allowed (registers): take a smaller tile", found,
                         gemm_mma::warp_m(config), gemm_mma::warp_n(config), bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 2 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::cluster_too_large:
      return fmt::format("a cluster of {} along m or n, {} allowed: sm_120 and sm_121 have no multicast",
                         counted(verdict.found, "CTA"), bound);
    case Rule::split_k_out_of_range:
      return fmt::format("split_k {}, 1 to {} allowed (CTAs of a cluster)", found, bound);
    case Rule::partial_sums_exceed_ring:
      return fmt::format("partial sums of {} bytes, {} of ring: take more stages", found, bound);
    case Rule::raster_out_of_range:
      return fmt::format("raster {}, 1 to {} allowed", found, bound);
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed (sm_120 and sm_121): {}", found, bound,
                         config.stages > 2 ? "drop a stage" : "take a smaller tile");
  }
  return "?";
}

std::string GemmMmaOperator::kernel_name(Arch arch, const Config& c) {
  const ProductFacts& facts = c.facts;
  const auto [rows, columns] = tile_of(c);
  const std::string_view a = to_word(facts.a_type), b = to_word(facts.b_type),
                         d = gemm_mma::is_quantized(c) ? to_word(facts.d_format) : to_word(facts.d_dtype);
  std::string name = fmt::format("tessera_gemm_mma_{}_{}", arch_name(arch.to_string()), a);
  if (b != a) name += fmt::format("_{}", b);
  name += gate_and_groups_name(facts);
  if (gemm_mma::is_plain_scaled(c)) name += "_plain";
  if (d != a) name += fmt::format("_to_{}", d);
  name += fmt::format("_{}{}_{}x{}_s{}", facts.a_layout == Layout::k_major ? 'k' : 'm',
                      facts.b_layout == Layout::k_major ? 'k' : 'n', rows, columns, c.stages);
  if (gemm_mma::is_swapped(c)) name += "_transposed";
  if (c.split_k != 1) name += fmt::format("_k{}", c.split_k);
  if (c.raster != raster_of(rows)) name += fmt::format("_r{}", c.raster);
  return name + addends_name(facts);
}

namespace {

void add_operands(const Config& c, Plan& plan) {
  const ProductFacts& facts = c.facts;
  const auto loaded = [&](const char* name, OperandType type, Layout layout, const char* other) {
    std::string use = fmt::format("{}-major", layout == Layout::k_major ? "K" : other);
    if (gemm_mma::is_gathered(c) && std::string_view(name) == "a") use += ", rows by a list";
    OperandPlan operand = gemm_mma::is_scaled(c)
                              ? scaled_operand(name, block_format(type), c.scale_form, std::move(use))
                              : plain_operand(name, to_word(type), std::move(use));
    const bool is_rows = (std::string_view(name) == "a") != gemm_mma::is_swapped(c);  // of the kernel's A
    for (const TensorMapRecipe& map : plan.launch.tensor_maps) {
      if (map.name != name) continue;
      operand.tensor_map_type = std::string(to_string(map.type));
      operand.swizzle = std::string(to_word(gemm_mma::operand_swizzle(c, layout, is_rows ? c.tile_m : c.tile_n)));
    }
    plan.operands.push_back(std::move(operand));
  };
  loaded("a", facts.a_type, facts.a_layout, "M");
  loaded("b", facts.b_type, facts.b_layout, "N");
  const bool is_dual = facts.gate == Gate::dual;
  if (is_dual) loaded("b2", facts.b_type, facts.b_layout, "N");
  if (gemm_mma::is_scaled(c)) {
    std::vector<std::pair<const char*, OperandType>> all{{"sfa", facts.a_type}, {"sfb", facts.b_type}};
    if (is_dual) all.emplace_back("sfb2", facts.b_type);
    for (const auto& [name, type] : all) {
      const bool is_plain = gemm_mma::is_plain_scaled(c), is_a = std::string_view(name) == "sfa";
      const bool has_map = !is_plain && !(is_a && gemm_mma::is_gathered(c));
      std::string use = fmt::format("{}{}", to_word(c.scale_form), is_plain ? "" : "s");
      use += is_a && gemm_mma::is_gathered(c) ? ", rows by a list" : is_plain ? "" : ", by TMA to shared memory";
      OperandPlan scales = scale_operand(name, block_format(type), std::move(use));
      if (has_map) {
        scales.tensor_map_type = std::string(to_string(TensorMapType::u16));
        scales.swizzle = std::string(to_word(Swizzle::none));
      }
      plan.operands.push_back(std::move(scales));
    }
  }
  add_groups_operand(facts, plan.operands);
  if (gemm_mma::is_gathered(c)) plan.operands.push_back(plain_operand("indices", "s32", "row of a that each row has"));
  if (gemm_mma::is_quantized(c)) {
    add_quantized_operands(block_format(facts.d_format), plan.operands);
  } else {
    const bool has_map = gemm_mma::has_d_map(c);
    plan.operands.push_back(plain_operand("d", to_word(facts.d_dtype),
                                          has_map ? "D, stored through shared memory" : "D, stored from registers"));
    if (has_map) {
      plan.operands.back().tensor_map_type = std::string(to_string(tensor_map_type(facts.d_dtype)));
      plan.operands.back().swizzle = std::string(to_word(gemm_mma::d_swizzle(c)));
    }
  }
}

void add_smem(const Config& c, Plan& plan) {
  const gemm_mma::SmemLayout layout = gemm_mma::smem_layout(c);
  const std::string a = gemm_mma::is_swapped(c) ? "B" : "A", b = gemm_mma::is_swapped(c) ? "A" : "B";
  for (const auto& [region, name] :
       {std::pair(layout.a, a), std::pair(layout.b, b), std::pair(layout.sfa, "scales of " + a),
        std::pair(layout.sfb, "scales of " + b)}) {
    if (region.bytes == 0) continue;
    const bool is_scales_of_a = name == "scales of " + a, is_scales_of_b = name == "scales of " + b;
    const bool is_copied = (gemm_mma::is_gathered(c) && name == a) || (gemm_mma::copies_sfa(c) && is_scales_of_a) ||
                           (gemm_mma::copies_sfb(c) && is_scales_of_b);
    const char* const loader = !is_copied ? "load" : gemm_mma::is_gathered(c) ? "gather" : "scales";
    std::vector<MemoryPhase> phases = {{fmt::format("{} on its way", name), loader, "barrier full"},
                                       {fmt::format("{} of a step", name), "consumer", "barrier empty"}};
    const std::string& stager = gemm_mma::is_staged_in_a(c) ? a : b;
    if (gemm_mma::has_d_map(c) && name == stager)
      phases.push_back({"rows of D on their way out, in the slot read last", "consumer", "TMA has read them"});
    // The sums lie over all slots, from those of A on.
    if (c.split_k > 1 && region.offset < gemm_mma::units(c) * gemm_mma::unit_bytes(c)) {
      phases.push_back({"sums of this CTA's part of K, being written", "consumer", "barrier of the cluster"});
      phases.push_back({"sums of this CTA's part of K, being read", "consumer of every CTA of the tile", "end"});
    }
    plan.smem.push_back({.name = region.name,
                         .offset = region.offset,
                         .bytes = region.bytes,
                         .slots = c.stages,
                         .phases = std::move(phases)});
  }
  plan.smem.push_back({layout.barriers.name, layout.barriers.offset, layout.barriers.bytes});
  plan.smem_bytes = layout.total_bytes;
}

std::vector<std::uint32_t> extents_of(const gemm_mma::TmaBox& box) {
  return {std::begin(box.extents), std::end(box.extents)};
}

GemmLaunch launch_of(const Config& config) {
  const bool is_swapped = gemm_mma::is_swapped(config);
  const auto [rows, columns] = tile_of(config);
  std::vector<std::uint32_t> a_box = extents_of(gemm_mma::a_box(config)), b_box = extents_of(gemm_mma::b_box(config));
  if (is_swapped) std::swap(a_box, b_box);
  const bool is_bytes = gemm_mma::element_bits(config) == 4, is_gathered = gemm_mma::is_gathered(config);
  const auto swizzle_of = [&](Layout layout, int extent) {
    return tensor_map_swizzle(gemm_mma::operand_swizzle(config, layout, extent));
  };
  GemmLaunch launch{.facts = config.facts,
                    .tiles = {.tile_m = rows, .tile_n = columns, .split_k = config.split_k},
                    .is_swapped = is_swapped,
                    .cluster_size = config.split_k,
                    .threads = gemm_mma::num_threads(config),
                    .smem_bytes = gemm_mma::smem_layout(config).total_bytes,
                    .a = {.box = std::move(a_box),
                          .swizzle = swizzle_of(config.facts.a_layout, rows),
                          .is_padded = gemm_mma::is_padded(config, config.facts.a_type) && !is_gathered,
                          .is_bytes = is_bytes},
                    .b = {.box = std::move(b_box),
                          .swizzle = swizzle_of(config.facts.b_layout, columns),
                          .is_padded = gemm_mma::is_padded(config, config.facts.b_type),
                          .is_bytes = is_bytes},
                    .has_d_map = gemm_mma::has_d_map(config),
                    .has_tensor_scales = gemm_mma::has_tensor_scales(config),
                    .is_gathered = is_gathered,
                    .has_a_map = !is_gathered,
                    .pitch_remedy = "pad the rows of {}, which need not be dense"};
  if (launch.has_d_map)
    launch.d = {.box = extents_of(gemm_mma::d_box(config)), .swizzle = tensor_map_swizzle(gemm_mma::d_swizzle(config))};
  if (gemm_mma::is_scaled(config)) {
    launch.scale_block = gemm_mma::scale_block(config);
    launch.scale_form = config.scale_form;
    launch.sfa_box = extents_of(gemm_mma::scale_box(config, rows));
    launch.sfb_box = extents_of(gemm_mma::scale_box(config, columns));
  }
  return launch;
}

}  // namespace

void GemmMmaOperator::describe(const Config& config, Plan& plan) {
  plan.mma_kind = to_word(mma_sync_kind(config));
  add_smem(config, plan);
  const gemm_mma::RegisterBudget budget = gemm_mma::register_budget(config);
  const bool moves_registers = budget.consumer != budget.entry;
  (moves_registers ? plan.entry_registers : plan.max_registers) = budget.entry;
  for (int i = 0; i < gemm_mma::num_roles(config); ++i) {
    const gemm_mma::Role role = gemm_mma::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, moves_registers ? role.registers : 0});
  }
  const GemmLaunch launch = launch_of(config);
  plan.launch = gemm_launch(launch, plan.arch.to_string(), plan.kernel);
  add_operands(config, plan);
  add_addend_operands(launch, plan.operands);
}

std::string GemmMmaOperator::launch_bounds() { return "tessera::gemm_mma::num_threads(kConfig), 1"; }

std::string GemmMmaOperator::call(const Config& config) {
  return fmt::format("tessera::gemm_mma::kernel<kConfig>(\n      {})", product_arguments(launch_of(config)));
}

std::vector<SourceFile> GemmMmaOperator::generated_headers(const Config&) { return {}; }

}  // namespace tessera::gemm_mma
