// What follows from an attention Config of sm_90a: operands, shared memory, roles, launch, generated code.
#include <fmt/format.h>

#include "generator/attention/consumer_registers.h"
#include "generator/attention/fmha_facts.h"
#include "generator/attention/fmha_merge.h"
#include "generator/attention/fmha_operator.h"
#include "generator/facts.h"
#include "generator/operator_words.h"
#include "generator/wgmma_header.h"
#include "generator/words.h"

namespace tessera::fmha {

namespace {

FmhaLaunch::Box box_of(const fmha::TmaBox& box) { return {{std::begin(box.extents), std::end(box.extents)}}; }

/// Of the boxes of further maps of K and V: two and more times the usual ones'.
std::vector<int> part_keys(const Config& c) {
  std::vector<int> keys;
  if (!fmha::has_page_parts(c)) return keys;
  for (int of_box = 2 * fmha::box_keys(c); of_box <= c.facts.page_size; of_box += fmha::box_keys(c))
    keys.push_back(of_box);
  return keys;
}

FmhaLaunch launch_facts(const Config& c) {
  return {.facts = c.facts,
          .swizzle = c.swizzle,
          .pack_gqa = c.pack_gqa,
          .padded_heads = fmha::padded_heads(c),
          .is_split = fmha::is_split(c),
          .is_dealt = fmha::is_dealt(c),
          .has_cuts = fmha::has_whole_tiles(c),
          .copies_keys = c.kv_copy == KvCopy::cp_async,
          .copies_q = fmha::copies_q(c),
          .stores_o = fmha::leaves_from_registers(c),
          .swizzles_keys = fmha::uses_mma_sync(c) || fmha::has_raw_tiles(c),
          .tile_rows = c.tile_m,
          .tile_n = c.tile_n,
          .merge_rows = kMergeRows,
          .merge_warps = kMergeRows,
          .ctas_per_tile = fmha::ctas_per_tile(c),
          .ctas_per_sm = fmha::ctas_per_sm(c),
          .threads = fmha::num_threads(c),
          .smem_bytes = fmha::smem_layout(c).total_bytes,
          .q = box_of(fmha::q_box(c)),
          .k = box_of(fmha::k_box(c)),
          .v = box_of(fmha::v_box(c)),
          .o = box_of(fmha::o_box(c)),
          .part_keys = part_keys(c)};
}

/// Who owns which bytes when, as templates/fmha hands them on: producer.cuh, consumer.cuh, epilogue.cuh, exchange.cuh.
void describe_smem(const Config& config, Plan& plan) {
  const fmha::SmemLayout layout = fmha::smem_layout(config);
  const int groups = fmha::row_groups(config);
  const auto add = [&](const fmha::SmemRegion& region, int slots, std::vector<MemoryPhase> phases) {
    if (region.bytes > 0) plan.smem.push_back({region.name, region.offset, region.bytes, slots, std::move(phases)});
  };
  std::vector<MemoryPhase> of_q = {
      {"Q on its way", fmha::has_widening_warps(config) || fmha::transposes_v(config) ? "load_k" : "load_q",
       "barrier q_full"},
      {"Q of a tile", "consumer", "last S = Q K^T of the tile"}};
  for (int pass = 0; !fmha::leaves_from_registers(config) && pass < fmha::o_passes(config); ++pass) {
    const bool is_last = pass == fmha::o_passes(config) - 1;
    const std::string part = fmha::o_passes(config) == 1 ? "O"
                             : pass == 0                 ? "O, first columns"
                             : is_last                   ? "O, last columns"
                                                         : "O, next columns";
    of_q.push_back({part + ", being written", "consumer", "barrier o_full"});
    of_q.push_back({part + ", being stored", "store_o", is_last ? "barrier q_empty" : "barrier o_read"});
  }
  add(layout.q, config.q_stages * groups, std::move(of_q));
  const bool is_widened = fmha::has_widening_warps(config), is_transposed = fmha::transposes_v(config);
  add(layout.k, config.stages,
      {{is_widened ? "K, being widened" : "K on its way", is_widened ? "widen_k" : "load_k", "barrier k_full"},
       {"K of a block", "consumer", "barrier k_empty"}});
  add(layout.v, config.stages,
      {{is_transposed ? "V, being transposed"
        : is_widened  ? "V, being widened"
                      : "V on its way",
        is_transposed ? "transpose_v"
        : is_widened  ? "widen_v"
                      : "load_v",
        "barrier v_full"},
       {"V of a block", "consumer", "barrier v_empty"}});
  add(layout.exchange, groups,
      {{"scores of the other CTA on their way", "consumer of the other CTA", "barrier exchange_full"},
       {"scores of the other CTA", "consumer", "barrier exchange_empty of the other CTA"}});
  const std::string narrow = has_key_nibbles(config.facts) ? "4-bit" : "8-bit";
  add(layout.raw_k, fmha::raw_stages(config),
      {{narrow + " K on its way", "load_k", "barrier raw_k_full"},
       {narrow + " K of a block", "widen_k", "barrier raw_k_empty"}});
  add(layout.raw_v, fmha::raw_v_stages(config),
      {{narrow + " V on its way", "load_v", "barrier raw_v_full"},
       {narrow + " V of a block", is_transposed ? "transpose_v" : "widen_v", "barrier raw_v_empty"}});
  add(layout.joined, 1,
      {{"references, sums and rows of warps", "consumer", "named barrier of the consumers"},
       {"rows of all keys", "consumer", "the end of the tile"}});
  add(layout.promoted, groups, {{"sums of O", "consumer", "the end of the tile"}});
  add(layout.present, config.stages,
      {{"which keys of K's slot are there", "load_k", "barrier k_full"},
       {"which keys are there, read", "consumer", "barrier k_empty"}});
  add(layout.step_work, 1, {});
  add(layout.passed, fmha::kPassedTiles,
      {{"where a tile lies, being written", "load_q", "barrier passed"},
       {"where a tile lies", "all roles", "the Q slot of the tile after it"}});
  const char* const readers[] = {is_widened ? "widen_k" : "consumer", is_widened ? "widen_v" : "consumer"};
  const std::string raw = is_widened ? "barrier raw_" : "barrier ";
  add(layout.k_scales, fmha::load_stages(config, false),
      {{"scales of K on their way", "load_k", raw + "k_full"}, {"scales of K's block", readers[0], raw + "k_empty"}});
  add(layout.v_scales, fmha::load_stages(config, true),
      {{"scales of V on their way", "load_v", raw + "v_full"}, {"scales of V's block", readers[1], raw + "v_empty"}});
  add(layout.barriers, 1, {});
  plan.smem_bytes = layout.total_bytes;
}

}  // namespace

void FmhaOperator::describe(const Config& config, Plan& plan) {
  const std::string dtype(to_word(config.facts.dtype));
  const std::string_view type_of_o =
      config.facts.output == Output::unnormalized ? "f32" : to_word(o_dtype(config.facts));
  const auto operand = [&](const char* name, std::string_view type, const char* use) {
    return OperandPlan{.name = name,
                       .dtype = std::string(type),
                       .tensor_map_type = std::string(type),
                       .swizzle = std::string(to_word(config.swizzle)),
                       .use = use};
  };
  plan.mma_kind = to_word(fmha::uses_mma_sync(config) ? mma_sync_kind(config.facts) : config.mma_kind);
  const auto plain = [](const char* name, std::string_view type, const char* use) {
    return OperandPlan{.name = name, .dtype = std::string(type), .tensor_map_type = {}, .swizzle = {}, .use = use};
  };
  // Through a tensor map, or by threads.
  const auto of_keys = [&](const char* name, int columns, const char* use) {
    const std::string_view type = to_word(key_dtype(config.facts));
    OperandPlan keys = config.kv_copy == KvCopy::tma ? operand(name, type, use) : plain(name, type, use);
    if (!keys.swizzle.empty()) keys.swizzle = to_word(fmha::swizzle_of_keys(config, columns));
    return keys;
  };
  plan.operands = {operand("q", dtype, "A of S = Q K^T, from shared memory"),
                   of_keys("k", fmha::qk_columns(config), "B of S = Q K^T, K-major"),
                   of_keys("v", fmha::v_columns(config),
                           fmha::transposes_v(config) ? "B of O = P V, transposed to K-major"
                           : is_8_bit(config.facts) || fmha::reads_mn_major_v(config) ? "B of O = P V, MN-major"
                                                                                      : "B of O = P V, K-major"),
                   fmha::is_split(config) ? plain("o", type_of_o, "D of O = P V, merged from parts in the workspace")
                   : fmha::leaves_from_registers(config)
                       ? plain("o", type_of_o, "D of O = P V, stored by threads")
                       : operand("o", type_of_o, "D of O = P V, stored through shared memory"),
                   plain("lse", "f32", "written if not null")};
  if (fmha::has_pools(config)) {
    for (OperandPlan& of_pools : pool_operands(dtype, {})) plan.operands.push_back(std::move(of_pools));
  }
  for (OperandPlan& of_fact : fact_operands(config.facts)) plan.operands.push_back(std::move(of_fact));
  describe_smem(config, plan);
  plan.entry_registers = fmha::launched_registers(config);
  for (int i = 0; i < fmha::num_roles(config); ++i) {
    const fmha::Role role = fmha::role(config, i);
    plan.roles.push_back({role.name, role.first_warp, role.warps, role.registers});
  }
  plan.launch = fmha_launch(launch_facts(config), plan.arch.to_string(), plan.kernel,
                            merge_name<FmhaOperator>(plan.arch, config));
}

MergeCode FmhaOperator::merge_code(const Config& config) { return merge_code_of<FmhaOperator>(config); }

std::string FmhaOperator::launch_bounds() {
  return "tessera::fmha::num_threads(kConfig), tessera::fmha::ctas_per_sm(kConfig)";
}

std::string FmhaOperator::call_of_step(const Config& config, std::size_t step) {
  return step == 0 ? fmha_call(launch_facts(config), "fmha") : fmha_merge_call(launch_facts(config));
}

/// Producers and consumers: on an H200 joined kernels take 0.95 to 1.00 of a whole one's time where the right ones of
/// both keep their values. By mma.sync, which few queries are taken by, they took up to half a microsecond of 6 to 15
/// longer.
int FmhaOperator::pieces(const Config& config) { return uses_mma_sync(config) ? 1 : 2; }

/// Producers that find pages, sequences, or their shares of keys: else NVVM computes much of it again for each block.
/// Consumers, but for those of 16 bits in such layouts, which ran as fast or up to 0.6 % slower; and four warpgroups of
/// dealt keys, which have too few registers. Pools, whose producers spilled, and scaled keys were not timed.
bool FmhaOperator::keeps_values(const Config& config, int piece) {
  constexpr int kFourWarpgroups = 4;
  const AttentionFacts& facts = config.facts;
  const bool is_dealt = config.split_kv == SplitKv::dealt;
  const bool has_own_layout = facts.q_layout == QueryLayout::ragged || facts.kv_layout == KvLayout::paged;
  if (has_pools(config) || has_key_scales(facts)) return false;
  if (piece == 1) return is_dealt || has_own_layout || has_widening_warps(config);
  const bool has_few_registers = has_raw_tiles(config) && consumer_warpgroups(config) == 1;
  if (is_dealt) return consumer_warpgroups(config) < kFourWarpgroups && !has_few_registers;
  return !has_own_layout || is_8_bit(facts) || widens_keys(facts);
}

std::vector<SourceFile> FmhaOperator::generated_headers(const Config& config) {
  if (fmha::uses_mma_sync(config)) return {{"wgmma_shapes.cuh", wgmma_header({})}};
  return {{"wgmma_shapes.cuh", consumer_registers(config)}};
}

}  // namespace tessera::fmha
