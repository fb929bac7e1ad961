// One Config serves a Problem: what its kernel needs of shared memory and registers leaves no choice of tiles.
#include "generator/attention/fmha_latent_operator.h"

#include <fmt/format.h>

#include <iterator>

#include "generator/attention/fmha_explain.h"
#include "generator/attention/fmha_facts.h"
#include "generator/attention/fmha_merge.h"
#include "generator/attention/fmha_operator.h"
#include "generator/attention/latent_registers.h"
#include "generator/attention/widened_registers.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera::fmha_latent {

namespace {

constexpr int kUsualHeads = 128;

/// A dealt launch needs a workspace: nobody gets one unasked, whose keys may be few.
SplitKv split_of(const Fmha& p) {
  if (p.kv_pools == KvPools::dense) return expected_keys(p) >= kManyKeys ? SplitKv::dealt : SplitKv::off;
  return is_list_of_few(p) ? SplitKv::dealt : SplitKv::off;
}

/// Query heads: those that are expected, all of which share the key head.
int heads_of(const Fmha& p) {
  constexpr Hint kMost = 1 << 16;
  return p.heads_q > 0 && p.heads_q <= kMost ? static_cast<int>(p.heads_q) : kUsualHeads;
}

/// The fewest rows that hold all of a sequence's, where its queries are known.
int rows_of_tile(const Fmha& p, int heads) {
  for (const int rows : {16, 32})
    if (p.seqlen_q > 0 && p.seqlen_q * heads <= rows && rows % heads == 0) return rows;
  return fmha_latent::kRows;
}

FmhaLaunch::Box box_of(const fmha_latent::TmaBox& box) { return {{std::begin(box.extents), std::end(box.extents)}}; }

FmhaLaunch launch_facts(const Config& c) {
  return {
      .facts = c.facts,
      .swizzle = c.swizzle,
      .pack_gqa = c.pack_gqa,
      .padded_heads = fmha_latent::gathers(c) ? static_cast<int>(round_up(c.pack_gqa, fmha_latent::kRows)) : c.pack_gqa,
      .is_split = fmha_latent::is_dealt(c),
      .is_dealt = fmha_latent::is_dealt(c),
      .joins_tails = fmha_latent::joins_tails(c),
      .walks_sequences = true,
      .copies_keys = fmha_latent::gathers(c),
      .swizzles_keys = fmha_latent::widens(c),
      .tile_rows = c.tile_m,
      .tile_n = fmha_latent::kPairKeys,
      .merge_rows = kMergeRows * fmha_latent::kRowsOfMergeWarp,
      .merge_warps = kMergeRows,
      .tiles_per_cluster = fmha_latent::tiles_of_cluster(c),
      .threads = fmha_latent::kThreads,
      .smem_bytes = fmha_latent::smem_layout(c).total_bytes,
      .q = box_of(fmha_latent::q_box(c)),
      .k = box_of(fmha_latent::k_box(c)),
      .v = {},
      .o = {}};
}

std::string traits_of(const Config& c) {
  std::string text = fmt::format("{} heads packed", c.pack_gqa);
  if (fmha_latent::widens(c)) text += fmt::format(", keys in {}", to_word(c.facts.kv_dtype));
  if (c.facts.kv_layout == KvLayout::paged) text += fmt::format(", pages of {}", c.facts.page_size);
  if (fmha_latent::gathers(c)) text += ", two pools of keys";
  if (has_cache(c.facts)) text += fmt::format(" in {}, pages of {}", to_word(c.facts.kv_cache), c.facts.page_size);
  if (fmha_latent::is_dealt(c)) text += ", keys dealt";
  return text;
}

/// Who owns which bytes when, as templates/fmha_latent hands them on.
void describe_smem(const Config& config, Plan& plan) {
  const fmha_latent::SmemLayout layout = fmha_latent::smem_layout(config);
  const bool is_widened = fmha_latent::widens(config), is_gathered = fmha_latent::gathers(config);
  const auto add = [&](const tessera::SmemRegion& region) { plan.smem.push_back(region); };
  add({layout.q.name,
       layout.q.offset,
       layout.q.bytes,
       1,
       {{"Q on its way", is_gathered ? "gather" : "load_q", "barrier q_full"},
        {"Q of a tile", "consumer", "barrier q_empty"}}});
  tessera::SmemRegion k{layout.k.name, layout.k.offset, layout.k.bytes, config.stages, {}};
  if (is_gathered) {
    k.phases = {{"listed keys on their way", "gather", "barrier k_full"}};
  } else {
    k.phases = {{"K on its way", "load_k", "barrier k_full"}};
  }
  k.phases.push_back({is_widened ? "K of a block, in 8 bits" : "K of a block, P in its last panel after S", "consumer",
                      "barrier k_empty"});
  add(k);
  for (const fmha_latent::SmemRegion& region :
       {layout.p, layout.references, layout.factors, layout.marks, layout.maxima, layout.sums, layout.tail,
        layout.present, layout.barriers})
    if (region.bytes > 0) add({region.name, region.offset, region.bytes});
  plan.smem_bytes = layout.total_bytes;
}

}  // namespace

void FmhaLatentOperator::require_facts(const Fmha& problem) {
  require_dtype(problem);
  const auto refuse = [&](std::string_view field, std::string_view value) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for {} {} with v_is_k", field, value));
  };
  if (dtype_bytes(problem.dtype) == 1) refuse("dtype", to_word(problem.dtype));
  if (problem.promote_every.value_or(0) != 0) refuse("promote_every", fmt::format("{}", *problem.promote_every));
  if (problem.v_layout != Layout::mn_major) refuse("v_layout", to_word(problem.v_layout));
  if (problem.p_path) refuse("p_path", to_word(*problem.p_path));
  if (problem.mma_kind && *problem.mma_kind != MmaKind::wgmma_f16) refuse("mma_kind", to_word(*problem.mma_kind));
  if (problem.cta_group) refuse("cta_group", fmt::format("{}", *problem.cta_group));
  const bool has_pools = problem.kv_pools != KvPools::dense;
  if (problem.kv_copy && *problem.kv_copy != (has_pools ? KvCopy::cp_async : KvCopy::tma))
    refuse("kv_copy", to_word(*problem.kv_copy));
  if (problem.sink != Sink::none && !has_pools) refuse("sink", to_word(problem.sink));
  if (problem.softcap != Softcap::none) refuse("softcap", to_word(problem.softcap));
  if (problem.alibi != Alibi::none) refuse("alibi", to_word(problem.alibi));
  if (problem.window == Window::chunked) refuse("window", to_word(problem.window));
  if (problem.tree_mask != TreeMask::none) refuse("tree_mask", to_word(problem.tree_mask));
  if (problem.split_size != 0) refuse("split_size", fmt::format("{}", problem.split_size));
  require_sizes_of_facts(problem);
}

std::vector<Config> FmhaLatentOperator::candidates(const Fmha& problem) {
  Config c;
  c.facts = attention_facts(problem);
  c.tile_n = problem.tile_n.value_or(fmha_latent::kBlockKeys);
  c.swizzle = problem.swizzle.value_or(Swizzle::b128);
  c.pack_gqa = problem.pack_gqa.value_or(heads_of(problem));
  c.tile_m = problem.tile_m.value_or(fmha_latent::widens(c) ? rows_of_tile(problem, c.pack_gqa) : fmha_latent::kRows);
  c.stages = problem.stages.value_or(fmha_latent::slots(c));
  c.split_kv = problem.split_kv.value_or(split_of(problem));
  return {c};
}

std::string FmhaLatentOperator::merit(const Config& config, const Fmha&) {
  const std::string merit = "the kernel for keys that are values too";
  if (!fmha_latent::gathers(config)) return merit;
  // What a list's keys are in memory, and what becomes of them.
  const CacheLayout token = cache_layout(cache_of(config.facts));
  const int bytes = has_cache(config.facts) ? token.token_bytes + token.tail_bytes : 2 * config.facts.head_dim;
  return fmt::format("{}; a block of {} keys has {} bytes in memory and {} in shared memory, where {} fit", merit,
                     config.tile_n, grouped(bytes * config.tile_n), grouped(fmha_latent::kSlotBytes), config.stages);
}

std::string FmhaLatentOperator::label(const Config& config) {
  return fmt::format("tile {}x{}, {}, {}, {}", config.tile_m, config.tile_n, counted(config.stages, "stage"),
                     to_word(config.swizzle), traits_of(config));
}

std::string FmhaLatentOperator::subject(const Config& config) {
  return fmt::format("head_dim {} with v_is_k, tile {}x{}, {}",
                     head_dims_text(config.facts.head_dim, config.facts.head_dim_v), config.tile_m, config.tile_n,
                     traits_of(config));
}

std::string FmhaLatentOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  const auto only = [&](std::string_view field, std::string_view why) {
    return fmt::format("{} {}, {} needed ({})", field, found, bound, why);
  };
  switch (verdict.rule) {
    case Rule::v_is_not_k:
      return "v_is_k off: take on";
    case Rule::dtype_not_16_bit:
      return fmt::format("{} elements of {} bytes, {} allowed: take bf16 or f16", to_word(config.facts.dtype), found,
                         bound);
    case Rule::key_dtype_unknown:
      return fmt::format("kv_dtype {}: take {} or e4m3", to_word(config.facts.kv_dtype), to_word(config.facts.dtype));
    case Rule::head_dim_not_latent:
      return only("head_dim", "keys that are values too have 576 columns");
    case Rule::head_dim_not_of_pools:
      return fmt::format("head_dim {}, {} or 576 needed (listed keys that are values too)", found, bound);
    case Rule::head_dim_v_not_latent:
      return only("head_dim_v", "values are the first 512 columns of a key");
    case Rule::tile_m_not_64:
      return only("tile_m", "O of more rows finds no registers");
    case Rule::tile_m_not_of_rows:
      return fmt::format("tile_m {}, 16, 32 or {} needed (rows of a sequence)", found, bound);
    case Rule::tile_n_not_64:
      return only("tile_n", "P takes the place of a panel of its block");
    case Rule::stages_not_of_pair:
      return only("stages",
                  fmha_latent::widens(config) ? "as many as there is room for" : "one for each block of a pair");
    case Rule::swizzle_not_128b:
      return fmt::format("a swizzle span of {} bytes, {} needed: take 128B", found, bound);
    case Rule::pack_gqa_not_of_tiles:
      return fmt::format("pack_gqa {}, a divisor or a multiple of {} needed (rows of a tile): pad the heads", found,
                         bound);
    case Rule::window_sliding:
      return "window sliding: there is no kernel for it with v_is_k";
    case Rule::output_unnormalized:
      return "output unnormalized: there is no kernel for it with v_is_k";
    case Rule::queries_ragged:
      return "q_layout ragged: there is no kernel for it with v_is_k";
    case Rule::lengths_of_queries:
      return "seqused qk: there is no kernel for it with v_is_k, take k";
    case Rule::keys_without_places:
      return "kv_layout ragged: there is no kernel for it with v_is_k, take dense or paged";
    case Rule::pools_beside_places:
      return "kv_layout paged or used lengths with two pools of keys: a list says where keys are, take neither";
    case Rule::pools_of_8_bits:
      return fmt::format("kv_dtype {} with two pools of keys: take {}, or a kv_cache", to_word(config.facts.kv_dtype),
                         to_word(config.facts.dtype));
    case Rule::cache_without_pools:
      return fmt::format("kv_cache {} without a list of rows: take kv_pools sparse_window",
                         to_word(config.facts.kv_cache));
    case Rule::head_dim_not_of_cache:
      return fmt::format("head_dim {}, {} needed (columns of a token of kv_cache {})", found, bound,
                         to_word(config.facts.kv_cache));
    case Rule::cache_not_beside_bf16:
      return fmt::format("kv_cache {} beside dtype {}: its rotations are bf16, take bf16",
                         to_word(config.facts.kv_cache), to_word(config.facts.dtype));
    case Rule::page_too_small_for_tma:
      return fmt::format("page_size {}, at least {} needed for TMA (rows of a swizzle's pattern)", found, bound);
    case Rule::page_size_unknown:
    case Rule::page_size_without_pages:
    case Rule::pages_without_lengths:
      return explain_pages(verdict);
    case Rule::split_by_number:
      return "split_kv on: ranges follow lengths with v_is_k, take dealt";
    case Rule::fact_not_read:
      return unread_fact(config.facts, fmha_latent::read_facts(config.facts)) + " with v_is_k";
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed", found, bound);
    case Rule::ok:
      break;
  }
  return "?";
}

std::string FmhaLatentOperator::kernel_name(Arch arch, const Config& config) {
  const AttentionFacts& facts = config.facts;
  std::string name =
      fmt::format("tessera_fmha_latent_{}_{}_{}x{}_s{}_{}_{}_{}", arch_name(arch.to_string()), head_dims_name(facts),
                  config.tile_m, config.tile_n, config.stages, swizzle_name(config.swizzle),
                  facts.mask == Mask::none ? "full" : to_word(facts.mask), to_word(facts.dtype));
  name += places_name(facts);
  if (fmha_latent::gathers(config)) name += "_pools";
  name += fmt::format("_pack{}", config.pack_gqa);
  if (fmha_latent::is_dealt(config)) name += "_dealt";
  return name;
}

void FmhaLatentOperator::describe(const Config& config, Plan& plan) {
  const std::string dtype(to_word(config.facts.dtype));
  const auto operand = [&](const char* name, const char* use) {
    return OperandPlan{.name = name,
                       .dtype = dtype,
                       .tensor_map_type = dtype,
                       .swizzle = std::string(to_word(config.swizzle)),
                       .use = use};
  };
  const auto plain = [](const char* name, std::string_view type, const char* use) {
    return OperandPlan{.name = name, .dtype = std::string(type), .tensor_map_type = {}, .swizzle = {}, .use = use};
  };
  OperandPlan k = operand("k", "B of S = Q K^T, K-major; its first columns B of O = P V, MN-major");
  if (fmha_latent::widens(config)) {
    k.dtype = k.tensor_map_type = to_word(config.facts.kv_dtype);
    k.swizzle = to_word(Swizzle::b64);
  }
  plan.mma_kind = to_word(config.mma_kind);
  if (fmha_latent::gathers(config)) k.tensor_map_type = k.swizzle = {};
  if (has_cache(config.facts)) k.dtype = "u8";
  plan.operands = {operand("q", "A of S = Q K^T, from shared memory"), k,
                   plain("o", dtype, "D of O = P V, stored from registers"),
                   plain("lse", "f32", "written if not null")};
  if (fmha_latent::gathers(config)) {
    for (OperandPlan& of_list : listed_operands(k.dtype)) plan.operands.push_back(std::move(of_list));
  }
  for (const OperandPlan& of_fact : fact_operands(config.facts)) plan.operands.push_back(of_fact);
  describe_smem(config, plan);
  plan.entry_registers = fmha_latent::register_budget(config).entry;
  for (int i = 0; i < fmha_latent::num_roles(config); ++i) {
    const fmha_latent::Role role = fmha_latent::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  plan.launch = fmha_launch(launch_facts(config), plan.arch.to_string(), plan.kernel,
                            merge_name<FmhaLatentOperator>(plan.arch, config));
}

MergeCode FmhaLatentOperator::merge_code(const Config& config) { return merge_code_of<FmhaLatentOperator>(config); }

std::string FmhaLatentOperator::launch_bounds() { return "tessera::fmha_latent::kThreads, 1"; }

std::string FmhaLatentOperator::call_of_step(const Config& config, std::size_t step) {
  return step == 0 ? fmha_call(launch_facts(config), kTemplates) : fmha_merge_call(launch_facts(config));
}

std::vector<SourceFile> FmhaLatentOperator::generated_headers(const Config& config) {
  return {{"wgmma_shapes.cuh", widens(config) ? widened_registers(config) : latent_registers(config)}};
}

}  // namespace tessera::fmha_latent
