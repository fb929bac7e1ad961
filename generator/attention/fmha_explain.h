// What the planners of attention have in common on every target: words for rules, and how much of a tile is work. Rules
// are enumerations of each target's spec header; these have the same names in all of them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "generator/candidates.h"
#include "generator/words.h"
#include "tessera/problem.h"
#include "tessera/spec/types.h"

namespace tessera {

/// Of pages' sizes and lengths.
template <class Rule>
std::string explain_pages(const Verdict<Rule>& verdict) {
  switch (verdict.rule) {
    case Rule::page_size_unknown:
      return verdict.found == 0 ? std::string("kv_layout paged without a page_size: take 1, 8, 16, 32, 64, 128 or 256")
                                : fmt::format("page_size {}: there are kernels for 1, 8, 16, 32, 64, 128 and {}",
                                              grouped(verdict.found), grouped(verdict.bound));
    case Rule::page_size_without_pages:
      return fmt::format("page_size {} without pages: take kv_layout paged", grouped(verdict.found));
    default:
      return "kv_layout paged without lengths, which say where a sequence ends: take seqused k or qk";
  }
}

/// Of keys in two pools.
template <class Rule>
std::string explain_pools(const Verdict<Rule>& verdict) {
  if (verdict.rule == Rule::placed_keys_need_dense_facts)
    return "kv_layout paged or ragged with v_layout k or two pools of keys: take none of these";
  return "two pools of keys with used lengths, a sliding window of its own, split keys, v_layout k or output "
         "unnormalized: take none of these";
}

template <class Config, class Rule>
std::string explain_shared_rule(const Config& config, const Verdict<Rule>& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::dtype_not_16_bit:
      return fmt::format("{} elements of {} bytes, {} allowed: take bf16 or f16", to_word(config.facts.dtype), found,
                         bound);
    case Rule::head_dim_v_exceeds_head_dim:
      return fmt::format("head_dim_v {}, at most head_dim {} allowed (O leaves through Q's slot)", found, bound);
    case Rule::head_dim_not_multiple_of_span:
      return fmt::format(
          "rows of {} bytes, a multiple of the {} bytes of a swizzle span needed: take a narrower swizzle", found,
          bound);
    case Rule::stages_out_of_range:
      return fmt::format("{}, 1 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::split_size_not_of_tiles:
      return fmt::format("split_size {}, a multiple of {} needed (tile_n)", found, bound);
    case Rule::page_size_unknown:
    case Rule::page_size_without_pages:
    case Rule::pages_without_lengths:
      return explain_pages(verdict);
    case Rule::placed_keys_need_dense_facts:
    case Rule::pools_need_dense_facts:
      return explain_pools(verdict);
    case Rule::tile_n_not_multiple_of_span:
      return fmt::format(
          "{} bytes of keys in a step, a multiple of the {} bytes of a swizzle span needed: take a "
          "narrower swizzle",
          found, bound);
    case Rule::k_major_v_of_used_keys:
      return fmt::format(
          "V with keys side by side, {} bytes each, and used lengths: loads would begin off the {} bytes "
          "that TMA needs: take v_layout mn",
          found, bound);
    case Rule::pack_gqa_out_of_range:
      return fmt::format("pack_gqa {}, 1 to {} allowed (heads of a launch)", found, bound);
    case Rule::kv_copy_of_dense_keys:
      return "kv_copy cp_async, dense keys come by TMA: take tma";
    case Rule::page_too_small_for_tma:
      return fmt::format(
          "page_size {}, at least {} needed for TMA (rows of a swizzle's pattern): take kv_copy cp_async", found,
          bound);
    case Rule::facts_of_scaled_keys:
      return fmt::format(
          "kv_format {} with head_dim {}, dtype {} or keys that are in no pages: take 64, 128 or 256, "
          "bf16 and kv_layout paged",
          to_word(config.facts.kv_format), config.facts.head_dim, to_word(config.facts.dtype));
    case Rule::scaled_keys_need_tma:
      return fmt::format("kv_copy cp_async with kv_format {}: a box of keys brings its scales: take tma",
                         to_word(config.facts.kv_format));
    case Rule::shared_memory_exceeded:
      return fmt::format("{} bytes of shared memory, {} allowed: {}", found, bound,
                         config.stages > 1 ? "drop a stage" : "take a smaller tile");
    default:
      return "?";
  }
}

/// The problem as far as a kernel may be chosen by it: where parts have a size, bits may not depend on what else is in
/// the batch, nor then may the kernel.
inline Fmha known_of_kernel(Fmha p) {
  if (p.split_size == 0) return p;
  p.batch = p.seqlen_k = kUnknownHint;
  if (p.q_layout == QueryLayout::ragged || p.seqused == UsedLengths::qk) p.seqlen_q = kUnknownHint;
  return p;
}

/// With the queries of one sequence, as far as they are expected to be equally many.
inline Fmha with_equal_queries(Fmha p) {
  if (p.q_layout == QueryLayout::ragged && p.seqlen_q >= 0)
    p.seqlen_q = p.batch > 0 ? ceil_div(p.seqlen_q, p.batch) : kUnknownHint;
  return p;
}

/// From here on a sequence counts as long: it fills its tiles but for a small part.
inline constexpr Hint kShortLength = 1024;

inline constexpr int kHeadsOfPools = 128;  ///< of models that list their keys
/// Heads that are packed with two pools of keys where the caller does not say: a query's heads have its keys in common,
/// and nobody else has.
inline int packed_heads_of_pools(const Fmha& p) {
  return p.heads_q > 0 && p.heads_q <= kShortLength ? static_cast<int>(p.heads_q) : kHeadsOfPools;
}

inline constexpr Hint kManyKeys = 1024;  ///< from here on they are worth a second kernel

inline constexpr Hint kFewListingQueries = 64;  ///< of all sequences: half of an H200's multiprocessors
/// Whether so few queries list so many keys that these are worth being split: more queries, which have equally many
/// keys, are shared out well enough (bench/results/fmha-listed.md).
inline bool is_list_of_few(const Fmha& p) {
  const bool is_known = p.batch >= 0 && p.batch <= kFewListingQueries && p.seqlen_q >= 0;
  const bool has_few = is_known && p.seqlen_q <= kFewListingQueries && p.batch * p.seqlen_q <= kFewListingQueries;
  return has_few && p.topk >= kManyKeys;
}

/// Keys that the queries see together, as far as hints tell: a window's, where both of its sides are bounded.
inline Hint expected_keys(const Fmha& p) {
  const bool has_end = p.mask == Mask::causal || p.window_size_right >= 0;
  if (p.window == Window::none || p.window_size_left < 0 || !has_end) return p.seqlen_k;
  const Hint right = p.mask == Mask::causal ? 0 : p.window_size_right;
  const auto few = [](Hint count) { return std::min(count, kManyKeys); };  // hints may be huge
  const Hint seen = few(p.window_size_left) + few(right) + p.seqlen_q;
  return p.seqlen_k < 0 ? seen : std::min(p.seqlen_k, seen);
}

/// Which part of the extents of tiles is work that was asked for, where a sequence is short.
inline double useful_share(Hint length, int tile) {
  if (length <= 0 || length >= kShortLength) return 1;
  return static_cast<double>(length) / static_cast<double>(round_up(length, tile));
}

/// Of rows and keys.
template <class Config>
double useful_part(const Config& c, const Fmha& problem) {
  const Hint rows =
      problem.seqlen_q < 0 ? problem.seqlen_q : std::min<Hint>(problem.seqlen_q, kShortLength) * c.pack_gqa;
  return useful_share(rows, c.tile_m) * useful_share(problem.seqlen_k, c.tile_n);
}

}  // namespace tessera
