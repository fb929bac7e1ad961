// Candidates are the tiles of the spec's table for this head_dim, with both ways for P and every swizzle, and the tiles
// of the other head_dims, so that a reader sees why a tile that is good elsewhere is not taken here. A pin replaces the
// table's value.
//
// Scores order candidates by a rough model, since no device was there to measure on: the table's first tile of a
// head_dim counts 1, any other less by what its shape costs. A step of tile_n keys adds a fixed cost to each of its
// rows, a tile of tile_m rows shares the loads of K and V, a ring of one slot can't load ahead, P in shared memory is
// written and read once more, a pair synchronises two SMs. Where a hint says that sequences are short, the share of
// useful rows and keys of their tiles multiplies the score.
#include "generator/fmha_tcgen05_operator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "generator/candidates.h"
#include "generator/fmha_operator.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera {

namespace {

using fmha_tcgen05::Config;
using fmha_tcgen05::Rule;
using fmha_tcgen05::Tile;

constexpr Swizzle kSwizzles[] = {Swizzle::b128, Swizzle::b64, Swizzle::b32, Swizzle::none};

constexpr double kStepCost = 8;         // in keys: barriers, the way of a reference through the warps
constexpr double kLoadCost = 16;        // in queries: K and V of a step
constexpr double kOneStageCost = 0.2;   // share of the work: loads that nothing overlaps
constexpr double kNarrowCost = 0.05;    // share of the work, for each halving of the swizzle span
constexpr double kSharedPCost = 0.1;    // share of the work: P written to and read from shared memory
constexpr double kBelowDefault = 0.99;  // whatever the model says, the table's first tile is the default
constexpr Hint kShortLength = 1024;

Config config_of(const Fmha& problem, const Tile& tile, Swizzle swizzle, ProbabilityPath p_path) {
  Config c;
  c.head_dim = problem.head_dim;
  c.head_dim_v = problem.head_dim_v.value_or(problem.head_dim);
  c.tile_m = problem.tile_m.value_or(tile.tile_m);
  c.tile_n = problem.tile_n.value_or(tile.tile_n);
  c.stages = problem.stages.value_or(tile.stages);
  c.swizzle = problem.swizzle.value_or(swizzle);
  c.dtype = problem.dtype;
  c.mask = problem.mask;
  c.output = problem.output;
  c.v_layout = problem.v_layout;
  c.p_path = problem.p_path.value_or(p_path);
  c.cta_pair = problem.cta_group ? *problem.cta_group == 2 : tile.cta_pair;
  return c;
}

double modelled_cost(const Config& c) {
  double cost = 1 + kStepCost / c.tile_n + kLoadCost / c.tile_m;
  if (c.stages == 1) cost += kOneStageCost;
  if (c.p_path == ProbabilityPath::smem) cost += kSharedPCost;
  for (int span = swizzle_span_bytes(c.swizzle); span < 128; span *= 2) cost += kNarrowCost;
  return cost;
}

/// Which part of the tiles' extents is work that was asked for, for short sequences.
double useful_share(Hint length, int tile) {
  if (length <= 0 || length >= kShortLength) return 1;
  return static_cast<double>(length) / static_cast<double>(round_up(length, tile));
}

Config default_of(const Config& c) {
  return fmha_tcgen05::default_config(c.head_dim, c.head_dim_v, c.mask, c.dtype, c.output, c.v_layout);
}

double expected_share(const Config& c) {
  const Config standard = default_of(c);
  return c == standard ? 1 : std::min(kBelowDefault, kBelowDefault * modelled_cost(standard) / modelled_cost(c));
}

bool is_own(const Tile& tile, const Fmha& problem) {
  return tile.head_dim == problem.head_dim && tile.head_dim_v == problem.head_dim_v.value_or(problem.head_dim);
}

FmhaLaunch::Box box_of(const fmha_tcgen05::TmaBox& box) { return {{std::begin(box.extents), std::end(box.extents)}}; }

FmhaLaunch launch_facts(const Config& c) {
  return {.head_dim = c.head_dim,
          .head_dim_v = c.head_dim_v,
          .dtype = c.dtype,
          .output = c.output,
          .swizzle = c.swizzle,
          .v_layout = c.v_layout,
          .tile_m = c.tile_m,
          .ctas_per_tile = fmha_tcgen05::ctas_per_tile(c),
          .ctas_per_sm = fmha_tcgen05::ctas_per_sm(c),
          .threads = fmha_tcgen05::num_threads(c),
          .smem_bytes = fmha_tcgen05::smem_layout(c).total_bytes,
          .q = box_of(fmha_tcgen05::q_box(c)),
          .k = box_of(fmha_tcgen05::k_box(c)),
          .v = box_of(fmha_tcgen05::v_box(c)),
          .o = box_of(fmha_tcgen05::o_box(c))};
}

void describe_smem(const Config& c, Plan& plan) {
  const fmha_tcgen05::SmemLayout layout = fmha_tcgen05::smem_layout(c);
  const auto add = [&](const fmha_tcgen05::SmemRegion& region, int slots, std::vector<MemoryPhase> phases) {
    if (region.bytes == 0) return;
    plan.smem.push_back({.name = region.name,
                         .offset = region.offset,
                         .bytes = region.bytes,
                         .slots = slots,
                         .phases = std::move(phases)});
  };
  const int tiles = fmha_tcgen05::q_tiles(c);
  add(layout.q, tiles,
      {{"Q tile on its way", "load_q", "barrier q_full"},
       {"Q tile, read by S = Q K^T", "mma", "barrier o_done of the last step"},
       {"O tile", "correction", "barrier o_staged"},
       {"O tile on its way out", "store_o", "barrier q_empty"}});
  add(layout.k, c.stages,
      {{"K tile on its way", "load_kv", "barrier k_full"}, {"K tile, read by S = Q K^T", "mma", "barrier k_empty"}});
  add(layout.v, c.stages,
      {{"V tile on its way", "load_kv", "barrier v_full"}, {"V tile, read by O += P V", "mma", "barrier v_empty"}});
  add(layout.p, tiles, {{"P", "softmax", "barrier p_full"}, {"P, read by O += P V", "mma", "barrier o_done"}});
  add(layout.factors, fmha_tcgen05::kNumBuffers,
      {{"factors of O's rows", "softmax", "barrier factors_full"},
       {"factors of O's rows, read", "correction", "barrier p_full"}});
  add(layout.last, tiles,
      {{"last factors of O's rows", "softmax", "barrier last_full"},
       {"last factors, read", "correction", "barrier p_full of the next tile"}});
  add(layout.halves, 1, {});
  add(layout.tmem, 1, {});
  add(layout.barriers, 1, {});
  plan.smem_bytes = layout.total_bytes;
}

void describe_tmem(const Config& c, Plan& plan) {
  const bool is_p_here = c.p_path == ProbabilityPath::tmem;
  const auto add = [&](std::string name, int first, int columns, std::vector<MemoryPhase> phases) {
    plan.tmem.push_back(
        {.name = std::move(name), .first_column = first, .columns = columns, .phases = std::move(phases)});
  };
  const MemoryPhase sums{"S = Q K^T", "mma", "barrier s_full"};
  const MemoryPhase scores{"S, read", "softmax", "barrier p_full"};
  for (int b = 0; b < fmha_tcgen05::kNumBuffers; ++b) {
    const int first = fmha_tcgen05::s_column(c, b);
    const int columns = fmha_tcgen05::s_columns(c);
    if (!is_p_here) {
      add(fmt::format("s{}", b), first, columns, {sums, scores});
      continue;
    }
    const int half = fmha_tcgen05::p_offset(c);
    add(fmt::format("s{}", b), first, half, {sums, scores});
    add(fmt::format("s{}_p{}", b, b), first + half, columns - half,
        {sums, {"S, then P", "softmax", "barrier p_full"}, {"P, read by O += P V", "mma", "barrier o_done"}});
  }
  for (int t = 0; t < fmha_tcgen05::q_tiles(c); ++t) {
    add(fmt::format("o{}", t), fmha_tcgen05::o_column(c, t), fmha_tcgen05::o_columns(c),
        {{"O += P V", "mma", "barrier o_done"}, {"O, rescaled or taken out", "correction", "barrier p_full"}});
  }
  plan.tmem_columns = fmha_tcgen05::allocated_columns(c);
}

}  // namespace

void FmhaTcgen05Operator::require_facts(const Fmha& problem) {
  const auto is_asked = [&](const Tile& tile) { return is_own(tile, problem); };
  if (std::none_of(std::begin(fmha_tcgen05::kTiles), std::end(fmha_tcgen05::kTiles), is_asked)) {
    std::vector<std::string> known;
    for (const Tile& tile : fmha_tcgen05::kTiles) {
      const std::string text = head_dims_text(tile.head_dim, tile.head_dim_v);
      if (std::find(known.begin(), known.end(), text) == known.end()) known.push_back(text);
    }
    const std::string last = known.back();
    known.pop_back();
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for head_dim {} on {}: there are kernels for {} and {}",
                            head_dims_text(problem.head_dim, problem.head_dim_v.value_or(problem.head_dim)),
                            problem.arch.to_string(), fmt::join(known, ", "), last));
  }
  if (problem.dtype != DType::bf16 && problem.dtype != DType::f16) {
    throw Error(
        ErrorKind::unsupported,
        fmt::format("fmha has no kernel for dtype {}: there are kernels for bf16 and f16", to_word(problem.dtype)));
  }
  if (problem.mma_kind && *problem.mma_kind != MmaKind::tcgen05_f16) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for mma_kind {} on {}: take tcgen05.f16",
                                                    to_word(*problem.mma_kind), problem.arch.to_string()));
  }
  if (problem.cta_group && *problem.cta_group != 1 && *problem.cta_group != 2) {
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for cta_group {}: 1 or 2 CTAs share a tile", *problem.cta_group));
  }
}

std::vector<Config> FmhaTcgen05Operator::candidates(const Fmha& problem) {
  std::vector<Config> list;
  const auto widest_of = [&](const Tile& tile) {
    return fmha_tcgen05::widest_swizzle(config_of(problem, tile, Swizzle::none, tile.p_path));
  };
  for (const bool is_first : {true, false}) {
    for (const Tile& tile : fmha_tcgen05::kTiles) {
      if (!is_own(tile, problem)) continue;
      if (is_first) {
        list.push_back(config_of(problem, tile, widest_of(tile), tile.p_path));
        continue;
      }
      for (const Swizzle swizzle : kSwizzles)
        for (const ProbabilityPath p_path : {ProbabilityPath::tmem, ProbabilityPath::smem})
          list.push_back(config_of(problem, tile, swizzle, p_path));
    }
  }
  for (const Tile& tile : fmha_tcgen05::kTiles)
    if (!is_own(tile, problem)) list.push_back(config_of(problem, tile, widest_of(tile), tile.p_path));
  return list;
}

double FmhaTcgen05Operator::score(const Config& config, const Fmha& problem) {
  return expected_share(config) * useful_share(problem.seqlen_q, config.tile_m) *
         useful_share(problem.seqlen_k, config.tile_n);
}

std::string FmhaTcgen05Operator::merit(const Config& config, const Fmha& problem) {
  const bool is_default = config == default_of(config);
  std::string text = is_default ? fmt::format("the default for head_dim {}, not measured on a device",
                                              head_dims_text(config.head_dim, config.head_dim_v))
                                : fmt::format("modelled at {:.2f} of the default's speed", expected_share(config));
  const double useful = useful_share(problem.seqlen_q, config.tile_m) * useful_share(problem.seqlen_k, config.tile_n);
  if (useful < 1) text += fmt::format(", {:.1f} % of its tiles is work for these lengths", 100 * useful);
  return text;
}

std::string FmhaTcgen05Operator::label(const Config& config) {
  return fmt::format("tile {}x{}, {}, {}, P in {}{}", config.tile_m, config.tile_n, counted(config.stages, "stage"),
                     to_word(config.swizzle), to_word(config.p_path), config.cta_pair ? ", CTA pair" : "");
}

std::string FmhaTcgen05Operator::subject(const Config& config) {
  return fmt::format("head_dim {}, tile {}x{}, {}{}", head_dims_text(config.head_dim, config.head_dim_v), config.tile_m,
                     config.tile_n, counted(config.stages, "stage"), config.cta_pair ? ", CTA pair" : "");
}

std::string FmhaTcgen05Operator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::dtype_not_16_bit:
      return fmt::format("{} elements of {} bytes, {} allowed: take bf16 or f16", to_word(config.dtype), found, bound);
    case Rule::head_dim_not_multiple_of_16:
      return fmt::format("head_dim {}, a multiple of {} needed (tcgen05 K and N)", found, bound);
    case Rule::head_dim_out_of_range:
      return fmt::format("head_dim {}, at most {} allowed (shared memory for Q and K)", found, bound);
    case Rule::head_dim_v_exceeds_head_dim:
      return fmt::format("head_dim_v {}, at most head_dim {} allowed (O leaves through Q's slot)", found, bound);
    case Rule::head_dim_not_multiple_of_span:
      return fmt::format(
          "rows of {} bytes, a multiple of the {} bytes of a swizzle span needed: take a narrower swizzle", found,
          bound);
    case Rule::tile_m_not_whole_products:
      return fmt::format("tile_m {}, a multiple of {} needed (rows of a product)", found, bound);
    case Rule::tile_m_out_of_range:
      return fmt::format("tile_m {}, at most {} allowed (two products)", found, bound);
    case Rule::tile_n_not_multiple_of_32:
      return fmt::format("tile_n {}, a multiple of {} needed (columns that a softmax thread loads at once)", found,
                         bound);
    case Rule::tile_n_out_of_range:
      return fmt::format("tile_n {}, at most {} allowed (scores in a softmax thread's registers)", found, bound);
    case Rule::tile_n_not_multiple_of_span:
      return fmt::format(
          "{} bytes of keys in a step, a multiple of the {} bytes of a swizzle span needed: take a "
          "narrower swizzle",
          found, bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 1 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::head_dim_v_needs_pair:
      return fmt::format("head_dim_v {} in one CTA, {} allowed (Tensor Memory for O and S): take a pair of CTAs", found,
                         bound);
    case Rule::folded_p_in_tmem:
      return fmt::format("P in Tensor Memory with {} rows a CTA, {} needed: take P in shared memory", found, bound);
    case Rule::tensor_memory_exceeded:
      return fmt::format("{} columns of Tensor Memory, {} allowed: take a smaller tile", found, bound);
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: {}", found, bound,
                         config.stages > 1 ? "drop a stage" : "take a smaller tile");
  }
  return "?";
}

std::string FmhaTcgen05Operator::kernel_name(Arch arch, const Config& config) {
  std::string head_dims = fmt::format("d{}", config.head_dim);
  if (config.head_dim_v != config.head_dim) head_dims += fmt::format("v{}", config.head_dim_v);
  std::string name = fmt::format("tessera_fmha_{}_{}_{}x{}_s{}_{}_{}_{}", arch_name(arch.to_string()), head_dims,
                                 config.tile_m, config.tile_n, config.stages, swizzle_name(config.swizzle),
                                 config.mask == Mask::none ? "full" : to_word(config.mask), to_word(config.dtype));
  if (config.p_path == ProbabilityPath::smem) name += "_psmem";
  if (config.v_layout == Layout::k_major) name += "_vk";
  if (config.cta_pair) name += "_pair";
  if (config.output == Output::unnormalized) name += "_unnormalized";
  return name;
}

void FmhaTcgen05Operator::describe(const Config& config, Plan& plan) {
  const std::string dtype(to_word(config.dtype));
  const std::string_view o_dtype = config.output == Output::unnormalized ? "f32" : std::string_view(dtype);
  const auto operand = [&](const char* name, std::string_view type, const char* use) {
    plan.operands.push_back({.name = name,
                             .dtype = std::string(type),
                             .tensor_map_type = std::string(type),
                             .swizzle = std::string(to_word(config.swizzle)),
                             .use = use});
  };
  const auto statistic = [&](const char* name, const char* use) {
    plan.operands.push_back({.name = name, .dtype = "f32", .tensor_map_type = {}, .swizzle = {}, .use = use});
  };
  plan.mma_kind = to_word(config.mma_kind);
  operand("q", dtype, "A of S = Q K^T, from shared memory");
  operand("k", dtype, "B of S = Q K^T, K-major");
  operand("v", dtype, config.v_layout == Layout::mn_major ? "B of O = P V, MN-major" : "B of O = P V, K-major");
  operand("o", o_dtype, "D of O = P V, from Tensor Memory, stored through shared memory");
  statistic("lse", "written if not null");
  if (config.output == Output::unnormalized) {
    statistic("row_max", "written");
    statistic("row_sum", "written");
  }
  describe_smem(config, plan);
  describe_tmem(config, plan);
  plan.entry_registers = fmha_tcgen05::register_budget(config).entry;
  for (int i = 0; i < fmha_tcgen05::kNumRoles; ++i) {
    const fmha_tcgen05::Role role = fmha_tcgen05::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  plan.launch = fmha_launch(launch_facts(config), plan.arch.to_string(), plan.kernel);
}

std::string FmhaTcgen05Operator::launch_bounds() { return "tessera::fmha_tcgen05::num_threads(kConfig), 1"; }

std::string FmhaTcgen05Operator::call(const Config& config) {
  const char* const statistics = config.output == Output::unnormalized ? "row_max, row_sum" : "nullptr, nullptr";
  return fmt::format(
      "tessera::fmha_tcgen05::kernel<kConfig>(\n      {{q, k, v, o, lse, {}, batch, heads_q, heads_kv, seqlen_q, "
      "seqlen_k, softmax_scale}})",
      statistics);
}

}  // namespace tessera
