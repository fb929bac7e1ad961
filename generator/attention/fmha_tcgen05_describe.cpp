// What follows from a chosen Config of attention on tcgen05: operands, memory by region and phase, roles, the launch,
// and how the generated entries call the templates.
#include <fmt/format.h>

#include <initializer_list>
#include <iterator>

#include "generator/attention/fmha_facts.h"
#include "generator/attention/fmha_merge.h"
#include "generator/attention/fmha_operator.h"
#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/words.h"

namespace tessera::fmha_tcgen05 {

namespace {

FmhaLaunch::Box box_of(const fmha_tcgen05::TmaBox& box) { return {{std::begin(box.extents), std::end(box.extents)}}; }

FmhaLaunch launch_facts(const Config& c) {
  return {.facts = c.facts,
          .swizzle = c.swizzle,
          .pack_gqa = c.pack_gqa,
          .padded_heads = fmha_tcgen05::padded_heads(c),
          .is_split = fmha_tcgen05::is_split(c),
          .copies_keys = c.kv_copy == KvCopy::cp_async,
          .tile_rows = fmha_tcgen05::used_rows_of_tile(c),
          .tile_n = c.tile_n,
          .merge_rows = kMergeRows,
          .merge_warps = kMergeRows,
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
  std::vector<MemoryPhase> of_q = {{"Q tile on its way", "load_q", "barrier q_full"},
                                   {"Q tile, read by S = Q K^T", "mma", "barrier o_done of the last step"}};
  if (!fmha_tcgen05::is_split(c)) {
    of_q.push_back({"O tile", "correction", "barrier o_staged"});
    of_q.push_back({"O tile on its way out", "store_o", "barrier q_empty"});
  }
  add(layout.q, tiles, std::move(of_q));
  const bool is_widened = widens_keys(c.facts);
  const MemoryPhase k_comes = fmha_tcgen05::gathers(c)
                                  ? MemoryPhase{"listed keys on their way", "gather", "barrier k_full"}
                              : is_widened ? MemoryPhase{"K tile, widened", "widen_kv", "barrier k_full"}
                                           : MemoryPhase{"K tile on its way", "load_kv", "barrier k_full"};
  const MemoryPhase v_comes = is_widened ? MemoryPhase{"V tile, widened", "widen_kv", "barrier v_full"}
                                         : MemoryPhase{"V tile on its way", "load_kv", "barrier v_full"};
  std::vector<MemoryPhase> of_k = {
      k_comes,
      {fmha_tcgen05::is_latent(c) ? "K tile, read by both products" : "K tile, read by S = Q K^T", "mma",
       "barrier k_empty"}};
  if (is_widened && fmha_tcgen05::is_latent(c))
    of_k.insert(of_k.begin(), {"8-bit K on its way, to the second half", "load_kv", "barrier raw_k_full"});
  add(layout.k, c.stages, std::move(of_k));
  add(layout.v, c.stages, {v_comes, {"V tile, read by O += P V", "mma", "barrier v_empty"}});
  add(layout.p, tiles, {{"P", "softmax", "barrier p_full"}, {"P, read by O += P V", "mma", "barrier o_done"}});
  const std::string narrow = has_key_nibbles(c.facts) ? "4-bit" : "8-bit";
  add(layout.raw_k, fmha_tcgen05::raw_stages(c),
      {{narrow + " K on its way", "load_kv", "barrier raw_k_full"},
       {narrow + " K of a block", "widen_kv", "barrier raw_k_empty"}});
  add(layout.raw_v, fmha_tcgen05::raw_stages(c),
      {{narrow + " V on its way", "load_kv", "barrier raw_v_full"},
       {narrow + " V of a block", "widen_kv", "barrier raw_v_empty"}});
  add(layout.k_scales, fmha_tcgen05::raw_stages(c),
      {{"scales of K on their way", "load_kv", "barrier raw_k_full"},
       {"scales of K's block", "widen_kv", "barrier raw_k_empty"}});
  add(layout.v_scales, fmha_tcgen05::raw_stages(c),
      {{"scales of V on their way", "load_kv", "barrier raw_v_full"},
       {"scales of V's block", "widen_kv", "barrier raw_v_empty"}});
  add(layout.factors, fmha_tcgen05::step_slots(c),
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
  for (int b = 0; b < fmha_tcgen05::s_buffers(c); ++b) {
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

void FmhaTcgen05Operator::describe(const Config& config, Plan& plan) {
  const std::string dtype(to_word(config.facts.dtype));
  const std::string_view o_type = config.facts.output == Output::unnormalized ? "f32" : to_word(o_dtype(config.facts));
  const std::string keys(to_word(key_dtype(config.facts)));
  const auto operand = [&](const char* name, std::string_view type, const char* use, Swizzle swizzle) {
    plan.operands.push_back({.name = name,
                             .dtype = std::string(type),
                             .tensor_map_type = std::string(type),
                             .swizzle = std::string(to_word(swizzle)),
                             .use = use});
  };
  const auto plain = [&](const char* name, const char* type, const char* use) {
    plan.operands.push_back({.name = name, .dtype = type, .tensor_map_type = {}, .swizzle = {}, .use = use});
  };
  plan.mma_kind = to_word(config.mma_kind);
  operand("q", dtype, "A of S = Q K^T, from shared memory", config.swizzle);
  // Through a tensor map, or by threads.
  const auto of_keys = [&](const char* name, const char* use) {
    if (config.kv_copy == KvCopy::tma)
      operand(name, keys, use, key_swizzle(config.facts, config.swizzle));
    else
      plain(name, has_cache(config.facts) ? "u8" : keys.c_str(), use);
  };
  const bool is_latent = fmha_tcgen05::is_latent(config);
  of_keys("k", is_latent ? "B of S = Q K^T, K-major, and its first columns of O = P V, MN-major"
                         : "B of S = Q K^T, K-major");
  if (!is_latent)
    of_keys("v", config.facts.v_layout == Layout::mn_major ? "B of O = P V, MN-major" : "B of O = P V, K-major");
  if (fmha_tcgen05::is_split(config)) {
    plain("o", std::string(o_type).c_str(), "D of O = P V, merged from parts in the workspace");
  } else {
    operand("o", o_type, "D of O = P V, from Tensor Memory, stored through shared memory", config.swizzle);
  }
  plain("lse", "f32", "written if not null");
  if (fmha_tcgen05::gathers(config)) {
    for (OperandPlan& of_list : listed_operands(has_cache(config.facts) ? "u8" : dtype))
      plan.operands.push_back(std::move(of_list));
  } else if (has_pools(config.facts)) {
    for (OperandPlan& of_pools : pool_operands(dtype, std::string(to_word(config.swizzle))))
      plan.operands.push_back(std::move(of_pools));
  }
  for (OperandPlan& of_fact : fact_operands(config.facts)) plan.operands.push_back(std::move(of_fact));
  describe_smem(config, plan);
  describe_tmem(config, plan);
  plan.entry_registers = fmha_tcgen05::register_budget(config).entry;
  for (int i = 0; i < fmha_tcgen05::num_roles(config); ++i) {
    const fmha_tcgen05::Role role = fmha_tcgen05::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  plan.launch = fmha_launch(launch_facts(config), plan.arch.to_string(), plan.kernel,
                            merge_name<FmhaTcgen05Operator>(plan.arch, config));
}

MergeCode FmhaTcgen05Operator::merge_code(const Config& config) { return merge_code_of<FmhaTcgen05Operator>(config); }

std::string FmhaTcgen05Operator::launch_bounds() { return "tessera::fmha_tcgen05::num_threads(kConfig), 1"; }

std::string FmhaTcgen05Operator::call_of_step(const Config& config, std::size_t step) {
  return step == 0 ? fmha_call(launch_facts(config), "fmha_tcgen05") : fmha_merge_call(launch_facts(config));
}

}  // namespace tessera::fmha_tcgen05
