// Candidates are tiles of 128 and 64 queries by 128 and 64 keys, with two to four slots. Scores order them by shape:
// nothing was measured.
#include "generator/attention/fmha_nvfp4_operator.h"

#include <fmt/format.h>

#include "generator/attention/fmha_choice.h"
#include "generator/attention/fmha_cost.h"
#include "generator/attention/fmha_explain.h"
#include "generator/attention/fmha_facts.h"
#include "generator/attention/fmha_merge.h"
#include "generator/attention/fmha_nvfp4_cost.h"
#include "generator/attention/fmha_nvfp4_launch.h"
#include "generator/attention/fmha_tile_cost.h"
#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/family.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::fmha_nvfp4 {

namespace {

constexpr int kTileRows128[] = {128, 64};
constexpr int kStages[] = {3, 2, 4};
constexpr Hint kFewQueries = 64;
constexpr double kSpilled = 0.01;     // beside words of a tree, scores of 128 keys and 128 columns of O
constexpr double kSmallTile = 0.8;    // keys are read twice as often
constexpr double kFewKeys = 0.9;      // barriers and maxima twice as often
constexpr double kOtherSlots = 0.98;  // two wait sooner; four help nobody
constexpr Hint kEnoughTiles = 133;    // as on other targets: more than half of a device's multiprocessors

/// Split where few tiles would leave a device idle beside long walks over the keys.
SplitKv split_of(const Fmha& p) {
  if (p.split_size > 0) return SplitKv::on;
  const bool has_few = p.seqlen_q >= 0 && p.seqlen_q <= kFewQueries;
  return has_few && expected_keys(p) >= kManyKeys && !has_tiles(p, 1, kEnoughTiles) ? SplitKv::on : SplitKv::off;
}

/// Parts with a size of their own have bits, and so a tile, that follow from no length.
bool is_modelled(const Fmha& p) { return has_fmha_cost(p) && p.split_size == 0; }

OperandPlan operand_of_o(const Config& config) {
  const std::string type(config.facts.output == Output::unnormalized ? "f32" : to_word(config.facts.o_dtype));
  OperandPlan o = plain_operand("o", type, "D of O = P V, merged from parts in the workspace");
  if (!stores_boxes(config)) return o;
  o.tensor_map_type = type;
  o.swizzle = to_word(Swizzle::b128);
  o.use = has_ragged_queries(config) ? "D of O = P V, from registers where a sequence's last rows fill no box"
                                     : "D of O = P V";
  return o;
}

}  // namespace

void FmhaNvfp4Operator::require_facts(const Fmha& problem) {
  if (problem.format != BlockFormat::nvfp4)
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for dtype {}: there are kernels for bf16, f16, e4m3 and nvfp4",
                            to_word(*problem.format)));
  if (has_family(problem.arch, MmaFamily::wgmma) || has_family(problem.arch, MmaFamily::tcgen05))
    throw Error(
        ErrorKind::unsupported,
        fmt::format("fmha has no kernel for dtype nvfp4 on {}: there is one for sm_120 and sm_121 with suffix a "
                    "or f",
                    problem.arch.to_string()));
  const auto refuse = [&](std::string_view field, std::string_view value, std::string_view reason = "") {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for {} {} with dtype nvfp4{}{}", field, value,
                                                    reason.empty() ? "" : ": ", reason));
  };
  const auto number = [](int value) { return fmt::format("{}", value); };
  if (problem.head_dim_v.value_or(problem.head_dim) != problem.head_dim)
    refuse("head_dim_v", fmt::format("{} beside head_dim {}", *problem.head_dim_v, problem.head_dim));
  if (problem.kv_pools != KvPools::dense)
    refuse("kv_pools", to_word(problem.kv_pools),
           "16 keys share a scale of v and 64 a unit, and a list has single ones");
  if (problem.page_size)
    refuse("page_size", number(*problem.page_size),
           "keys in pages become dense where they are quantised (attention_quantize), take kv_layout dense");
  if (problem.v_is_k != VIsK::off)
    refuse("v_is_k", to_word(problem.v_is_k), "scales of k are for columns of a key, those of v for keys of a column");
  if (problem.kv_dtype) refuse("kv_dtype", to_word(*problem.kv_dtype));
  if (problem.v_layout != Layout::mn_major)
    refuse("v_layout", to_word(problem.v_layout), "v comes in the units that attention_quantize writes");
  if (problem.swizzle) refuse("swizzle", to_word(*problem.swizzle));
  if (problem.mma_kind && *problem.mma_kind != MmaKind::mma_mxf4nvf4)
    refuse("mma_kind", to_word(*problem.mma_kind), "take mma.mxf4nvf4");
  if (problem.p_path) refuse("p_path", to_word(*problem.p_path));
  if (problem.cta_group) refuse("cta_group", number(*problem.cta_group));
  if (problem.kv_copy) refuse("kv_copy", to_word(*problem.kv_copy));
  if (problem.promote_every) refuse("promote_every", number(*problem.promote_every));
  require_queries(problem);
  require_facts_of_scores(problem);
  require_split(problem, "on");
  if (problem.window == Window::none && (problem.window_size_left >= 0 || problem.window_size_right >= 0))
    throw Error(ErrorKind::unsupported,
                "window_size_left and window_size_right are sizes of a window, and window is none: take sliding");
}

std::vector<Config> FmhaNvfp4Operator::candidates(const Fmha& problem) {
  AttentionFacts facts = attention_facts(problem);
  facts.dtype = facts.kv_dtype = facts.o_dtype = problem.o_dtype.value_or(DType::bf16);
  std::vector<Config> list;
  for (const int tile_m : kTileRows128)
    for (const int tile_n : kTileRows128)
      for (const int stages : kStages)
        list.push_back({.facts = facts,
                        .split_kv = problem.split_kv.value_or(split_of(problem)),
                        .tile_m = problem.tile_m.value_or(tile_m),
                        .tile_n = problem.tile_n.value_or(tile_n),
                        .stages = problem.stages.value_or(stages),
                        .pack_gqa = problem.pack_gqa.value_or(1)});
  return list;
}

double FmhaNvfp4Operator::score(const Config& config, const Fmha& asked) {
  // Parts with a size of their own: bits, and so the tile, follow from nothing else that is in the batch.
  const Fmha problem = asked.split_size > 0 ? fmha_of_one_sequence(asked) : asked;
  const bool has_few = problem.seqlen_q >= 0 && problem.seqlen_q <= kFewQueries;
  double score = 1;
  if (is_modelled(problem)) {
    score = 1 / fmha_nvfp4_cost(config, problem, mma_device_of(problem.arch)).us;
  } else {
    if ((config.tile_m == 64) != has_few) score *= kSmallTile;
    if (config.tile_n == 64) score *= kFewKeys;
  }
  if (config.facts.tree_mask != TreeMask::none && config.facts.head_dim == 128 && config.tile_n == 128)
    score *= kSpilled;
  if (config.stages != kStages[0]) score *= kOtherSlots;
  return score;
}

std::string FmhaNvfp4Operator::merit(const Config& config, const Fmha& problem) {
  return fmt::format("chosen by {} (never measured): {} of K, V and delta_s, {} rows of a tile",
                     is_modelled(problem) ? "a model of the time" : "shape", counted(config.stages, "slot"),
                     config.tile_m);
}

std::vector<CostSheet> FmhaNvfp4Operator::costs(const Config& config, const Fmha& problem) {
  std::vector<CostSheet> sheets;
  for (const MmaDevice& device : mma_devices_of(problem.arch)) {
    const FmhaNvfp4Cost cost = fmha_nvfp4_cost(config, problem, device);
    sheets.push_back(cost_sheet(device, cost.us, cost.work));
  }
  return sheets;
}

std::string FmhaNvfp4Operator::label(const Config& config) {
  std::string text = fmt::format("tile {}x{}, {}", config.tile_m, config.tile_n, counted(config.stages, "stage"));
  if (config.pack_gqa != 1) text += fmt::format(", {} heads packed", config.pack_gqa);
  if (fmha_nvfp4::is_split(config)) text += ", keys split";
  return text;
}

std::string FmhaNvfp4Operator::subject(const Config& config) {
  return fmt::format("head_dim {}, nvfp4, {}", config.facts.head_dim, label(config));
}

std::string FmhaNvfp4Operator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::head_dim_not_64_or_128:
      return fmt::format("head_dim {}, 64 or {} needed (one or two steps of 64 products)", found, bound);
    case Rule::o_dtype_not_16_bit:
      return fmt::format("o_dtype {}: take bf16 or f16", to_word(config.facts.o_dtype));
    case Rule::keys_paged:
      return "kv_layout paged: keys in pages become dense where they are quantised (attention_quantize), take dense";
    case Rule::fact_not_read:
      return unread_fact(config.facts, fmha_nvfp4::read_facts(config.facts)) + " with dtype nvfp4";
    case Rule::ragged_queries_used:
      return "seqused qk with q_layout ragged: cu_seqlens_q says how many queries a sequence has; take k";
    case Rule::keys_dealt:
      return "split_kv dealt: there is no kernel for it with dtype nvfp4, take on";
    case Rule::part_not_of_blocks:
      return fmt::format("split_size {}, a multiple of tile_n = {} needed: parts are whole steps", found, bound);
    case Rule::part_without_split:
      return fmt::format("split_size {} with split_kv off: take on", found);
    case Rule::tile_m_not_64_or_128:
      return fmt::format("tile_m {}, 64 or {} needed (four or eight warps of 16 rows, of one block of queries)", found,
                         bound);
    case Rule::tile_n_not_64_or_128:
      return fmt::format("tile_n {}, 64 or {} needed (units of 64 keys, registers of their scores)", found, bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 1 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::heads_packed:
      return fmt::format("pack_gqa {}, {} needed: a block of queries with one mean is of one head", found, bound);
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: drop a stage", found, bound);
  }
  return "?";
}

std::string FmhaNvfp4Operator::kernel_name(Arch arch, const Config& config) {
  std::string name = fmt::format("tessera_fmha_nvfp4_{}_d{}_{}x{}_s{}_{}", arch_name(arch.to_string()),
                                 config.facts.head_dim, config.tile_m, config.tile_n, config.stages,
                                 config.facts.mask == Mask::none ? "full" : to_word(config.facts.mask));
  if (config.facts.window != Window::none) name += config.facts.window == Window::chunked ? "_chunked" : "_window";
  if (has_ragged_queries(config)) name += "_ragged";
  if (has_ragged_keys(config)) name += "_raggedk";
  if (config.facts.seqused != UsedLengths::none) name += config.facts.seqused == UsedLengths::qk ? "_usedqk" : "_usedk";
  if (config.facts.sink != Sink::none) name += "_sink";
  if (config.facts.softcap != Softcap::none) name += "_softcap";
  if (config.facts.alibi != Alibi::none) name += "_alibi";
  if (config.facts.tree_mask != TreeMask::none) name += "_tree";
  if (fmha_nvfp4::is_split(config)) name += "_split";
  if (config.facts.split_size > 0) name += fmt::format("{}", config.facts.split_size);
  if (config.facts.output == Output::unnormalized) name += "_unnormalized";
  // Facts that are named above, or are the same for all; any other has its own name.
  constexpr std::string_view kNamed[] = {"head_dim",  "head_dim_v", "dtype",      "mask",   "window",    "seqused",
                                         "kv_layout", "sink",       "softcap",    "alibi",  "tree_mask", "output",
                                         "q_layout",  "kv_dtype",   "split_size", "o_dtype"};
  return name + other_facts_name(config.facts, kNamed) + fmt::format("_to_{}", to_word(config.facts.o_dtype));
}

void FmhaNvfp4Operator::describe(const Config& config, Plan& plan) {
  plan.mma_kind = to_word(MmaKind::mma_mxf4nvf4);
  const auto units = [](const char* name, const char* use) {
    OperandPlan operand = plain_operand(name, "e2m1", use);
    operand.scale_type = "ue4m3";
    operand.scale_block = nvfp4::kGroup;
    operand.scale_form = "of lanes";
    return operand;
  };
  plan.operands = {
      units("q", "A of S = Q K^T, from global memory to registers"),
      units("k", "B of S = Q K^T, keys in the order of P's registers"),
      units("v", "B of O = P V, scales for 16 keys"),
      plain_operand("delta_s", "f32", "accumulators of S begin as it"),
      plain_operand("row_shift", "f32",
                    config.facts.softcap == Softcap::none ? "read for lse" : "added to each score of a row"),
      operand_of_o(config),
      plain_operand("lse", "f32", "written if not null")};
  if (config.facts.output == Output::unnormalized)
    for (const char* const name : {"row_max", "row_sum"})
      plan.operands.push_back(plain_operand(name, "f32", "written"));
  if (config.facts.sink != Sink::none)
    plan.operands.push_back(plain_operand("sink", "f32", "a logit of each head, in the denominator; may be null"));
  if (config.facts.alibi != Alibi::none)
    plan.operands.push_back(plain_operand("alibi_slopes", "f32", "a slope of each head"));
  if (config.facts.tree_mask != TreeMask::none)
    plan.operands.push_back(plain_operand("tree_mask", "s32", "a bit for each query of the sequence"));
  for (const BufferSpec& place : nvfp4_places_of(config))
    plan.operands.push_back(plain_operand(place.name, "s32", "where the rows of sequences lie"));
  const fmha_nvfp4::SmemLayout layout = fmha_nvfp4::smem_layout(config);
  const auto add = [&](const fmha_nvfp4::SmemRegion& region, const char* content) {
    plan.smem.push_back({region.name,
                         region.offset,
                         region.bytes,
                         config.stages,
                         {{fmt::format("{} of a step on its way", content), "load", "barrier full"},
                          {fmt::format("{} of a step", content), "consumer", "barrier empty"}}});
  };
  if (layout.o.bytes > 0)
    plan.smem.push_back({layout.o.name,
                         layout.o.offset,
                         layout.o.bytes,
                         fmha_nvfp4::consumer_warps(config),
                         {{"O of 16 rows, being written", "consumer", "fence and syncwarp"},
                          {"O of 16 rows, being stored", "consumer", "wait_group.read before the next"}}});
  add(layout.k, "K");
  add(layout.v, "V");
  add(layout.delta_s, "delta_s");
  plan.smem.push_back({layout.barriers.name, layout.barriers.offset, layout.barriers.bytes});
  plan.smem_bytes = layout.total_bytes;
  plan.entry_registers = fmha_nvfp4::register_budget(config).entry;
  for (int i = 0; i < fmha_nvfp4::kNumRoles; ++i) {
    const fmha_nvfp4::Role role = fmha_nvfp4::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  plan.launch =
      fmha_nvfp4_launch(config, plan.arch.to_string(), plan.kernel, merge_name<FmhaNvfp4Operator>(plan.arch, config));
}

MergeCode FmhaNvfp4Operator::merge_code(const Config& config) { return merge_code_of<FmhaNvfp4Operator>(config); }

std::string FmhaNvfp4Operator::launch_bounds() {
  return "tessera::fmha_nvfp4::num_threads(kConfig), tessera::fmha_nvfp4::ctas_per_sm(kConfig)";
}

std::vector<SourceFile> FmhaNvfp4Operator::generated_headers(const Config&) { return {}; }

}  // namespace tessera::fmha_nvfp4
