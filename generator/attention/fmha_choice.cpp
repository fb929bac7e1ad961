#include "generator/attention/fmha_choice.h"

#include <algorithm>

#include "generator/attention/fmha_cost.h"
#include "generator/attention/fmha_explain.h"
#include "generator/attention/fmha_tile_cost.h"
#include "generator/facts.h"
#include "tessera/targets.h"

namespace tessera {

namespace {

constexpr Hint kEnoughTilesOfFmha = 133;  // more than half of what an H200 has places for: two parts would not fit

/// Whether sequences may be longer than others where their number of keys is said in memory.
bool may_differ(const Fmha& p) {
  return p.batch > 1 && (p.seqused != UsedLengths::none || p.kv_layout != KvLayout::dense);
}

constexpr Hint kBriefKeys = 1024;
constexpr Hint kTilesOfBrief = 67;  // of which two parts each would not find a multiprocessor of their own on an H200

/// Whether a launch is so short that its time is that of latencies, and the longest sequence's at most: finding ranges
/// takes longer than they save. H200, 32/8 heads, one query of 8 x 1,024 keys, pages of 64 and 16, microseconds: dealt
/// 14.4 and 14.4, by num_splits 13.4 and 13.5 (bench/results/fmha-few-queries.md).
bool is_brief(const Fmha& p, const fmha::Config& c) {
  const bool has_few_rows = fmha::shares_blocks(c) && c.sm_smem_bytes == kSmemBytesOfSm;
  return has_few_rows && p.q_layout == QueryLayout::dense && p.split_size == 0 && expected_keys(p) <= kBriefKeys &&
         !has_tiles(p, c.pack_gqa, kTilesOfBrief);
}

}  // namespace

bool fmha_may_be_step(const Fmha& p) {
  return p.q_layout == QueryLayout::ragged && p.split_size == 0 && p.head_dim <= 256 && has_fmha_cost(p) &&
         may_differ(p) && p.seqlen_k > 2 * p.seqlen_q;
}

int fmha_packed_heads(const Fmha& p) {
  if (p.kv_pools != KvPools::dense) return packed_heads_of_pools(p);
  const Hint heads =
      packable_heads(p, fmha_may_be_step(p) ? std::max(p.seqlen_q, kFewQueriesOfFmha) : kFewQueriesOfFmha - 1);
  return heads <= kShortLength ? static_cast<int>(heads) : 1;
}

namespace {

/// Parts with a size of their own: what the choice may go by. Small tiles for few queries, and where sequences with few
/// may be among the others, their heads side by side.
Fmha of_sized_parts(const Fmha& p) {
  Fmha one = known_of_kernel(p);
  if (!one.split_kv) one.split_kv = SplitKv::dealt;
  const bool has_few = one.seqlen_q >= 0 && one.seqlen_q < kFewQueriesOfFmha;
  if (!one.tile_n && has_few && p.split_size % kFewQueriesOfFmha == 0) one.tile_n = kFewQueriesOfFmha;
  if (!one.tile_m && has_few && one.mma_kind != MmaKind::mma_f16) one.tile_m = fmha::kRowsPerWarpgroup;
  if (!one.pack_gqa && one.seqlen_q < 0) {
    Fmha few = one;
    few.seqlen_q = 1;
    one.pack_gqa = fmha_packed_heads(few);
  }
  return one;
}

}  // namespace

Fmha fmha_of_one_sequence(const Fmha& p) { return p.split_size > 0 ? of_sized_parts(p) : with_equal_queries(p); }

SplitKv fmha_split(const Fmha& p, const fmha::Config& c) {
  // A split launch needs a workspace: nobody gets one unasked, whose keys may be few.
  if (!has_fmha_cost(p) || p.head_dim > 256) return SplitKv::off;
  if (expected_keys(p) < kManyKeys) return SplitKv::off;
  if (fmha_may_be_step(p)) return SplitKv::dealt;
  if (p.seqlen_q > kFewQueriesOfFmha) return SplitKv::off;
  if (may_differ(p) && !is_brief(p, c)) return SplitKv::dealt;
  if (has_tiles(p, c.pack_gqa, kEnoughTilesOfFmha)) return SplitKv::off;
  return p.q_layout == QueryLayout::ragged ? SplitKv::dealt : SplitKv::on;
}

fmha::HeadDims fmha_head_dims(const Fmha& problem) {
  return {problem.head_dim, problem.head_dim_v.value_or(problem.head_dim)};
}

fmha::Config fmha_config(const Fmha& problem, const fmha::Tile& tile, Swizzle swizzle, MmaKind kind) {
  fmha::Config c{.facts = attention_facts(problem)};
  c.tile_m = problem.tile_m.value_or(tile.tile_m);
  c.tile_n = problem.tile_n.value_or(tile.tile_n);
  c.stages = problem.stages.value_or(tile.stages);
  c.swizzle = problem.swizzle.value_or(swizzle);
  c.mma_kind = kind;
  c.sm_smem_bytes = static_cast<int>(smem_bytes_of(problem.arch)) + kSmemBytesOfSystem;
  const KvCopy usual = fmha::has_pools(c) ? KvCopy::cp_async : default_kv_copy(c.facts.kv_layout, c.facts.page_size);
  c.kv_copy = problem.kv_copy.value_or(usual);
  c.cta_pair = fmha::needs_cta_pair(c.facts.head_dim);
  c.pack_gqa = problem.pack_gqa.value_or(fmha_packed_heads(problem));
  c.split_kv = problem.split_kv.value_or(fmha_split(problem, c));
  c.promote_every = problem.promote_every.value_or(fmha::default_promotion(c));
  // Only a Config whose extents are sane is completed: completing evaluates products of them.
  const bool is_sane = c.tile_m <= 1024 && c.tile_n <= 1024 && c.stages <= 1024;
  return is_sane ? fmha::complete(c) : c;
}

}  // namespace tessera
