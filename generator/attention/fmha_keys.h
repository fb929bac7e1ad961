// The launch's side of keys that do not lie dense: in pages of a pool, or packed sequence behind sequence. What the
// sizes and buffers mean: docs/operators.md.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/attention/fmha_operator.h"
#include "generator/launch_limits.h"

namespace tessera {

/// Keys are values too: all heads share one key head.
inline bool is_latent(const FmhaLaunch& c) { return c.facts.v_is_k == VIsK::on; }
/// The name of a map of k or v whose boxes have so many keys.
inline std::string part_map(std::string_view tensor, int keys) { return fmt::format("{}_{}", tensor, keys); }
inline bool lies_in_places(const FmhaLaunch& c) { return c.facts.kv_layout != KvLayout::dense; }
/// Two pools of keys, which threads load.
inline bool copies_pools(const FmhaLaunch& c) { return has_pools(c.facts) && c.copies_keys; }

/// Whether the window's keys may be rows of its pool that a query lists.
inline bool has_second_list(const FmhaLaunch& c) { return has_pools(c.facts) && is_latent(c); }

/// Sizes of pools and tables, and the most keys of a sequence; strides of k or v.
void add_key_sizes(const FmhaLaunch& c, LaunchPlan& launch);
void add_key_strides(const FmhaLaunch& c, const std::string& tensor, int head_dim, LaunchPlan& launch);
/// Extents and strides of k or v.
void set_key_map(const FmhaLaunch& c, const std::string& tensor, int head_dim, int span, int bytes,
                 TensorMapRecipe& map);
void set_key_buffer(const FmhaLaunch& c, const std::string& tensor, int head_dim, BufferSpec& buffer);
/// The table of pages, or the ends of sequences.
void add_key_places(const FmhaLaunch& c, LaunchPlan& launch);
void add_key_domain(const FmhaLaunch& c, LaunchPlan& launch);
/// What threads need, behind a step's other parameters.
void add_key_parameters(const FmhaLaunch& c, LaunchStep& step);

/// Whether o leaves through a tensor map; else by threads.
inline bool has_map_of_o(const FmhaLaunch& c) {
  return !c.is_split && !c.walks_sequences && !c.stores_o && !c.copies_q;
}
/// Whether the first step stores rows of o by threads.
inline bool stores_rows(const FmhaLaunch& c) {
  return c.is_dealt || ((is_ragged(c.facts) || c.stores_o || c.copies_q) && !c.is_split);
}

/// Factors of 8-bit q, k and v, for each sequence and key head; strides of 0: one for all. Empty where there are none.
std::span<const char* const> descales_of(const AttentionFacts& facts);
void add_descale_sizes(const FmhaLaunch& c, LaunchPlan& launch);
void add_descales(const FmhaLaunch& c, LaunchPlan& launch);
void add_descale_parameters(const FmhaLaunch& c, LaunchStep& step);

/// Scales of keys, in pages of their own: [pages, heads_kv, page_size, scales of a key]. Empty where there are none.
std::span<const char* const> key_scales_of(const AttentionFacts& facts);
void add_key_scale_sizes(const FmhaLaunch& c, LaunchPlan& launch);
void add_key_scales(const FmhaLaunch& c, LaunchPlan& launch);
void add_key_scale_domain(const FmhaLaunch& c, LaunchPlan& launch);
void add_key_scale_parameters(const FmhaLaunch& c, LaunchStep& step);

/// Numbers that lie in memory: of any kind, lengths of sequences, rows that queries list beside a window's keys.
void add_numbers(const char* name, const char* dtype, std::vector<Expression> shape, std::vector<Expression> strides,
                 LaunchPlan& launch);
void add_lengths(const char* name, LaunchPlan& launch);
void add_pools(const FmhaLaunch& c, LaunchPlan& launch);
/// Where threads load them: what strides must be, and what threads need behind a step's other parameters.
std::vector<std::string> strides_of_pools(const FmhaLaunch& c);
void add_pool_domain(const FmhaLaunch& c, LaunchPlan& launch);
void add_pool_parameters(const FmhaLaunch& c, LaunchStep& step);
/// k and swa_k that are pages of a cache: `tokens` of them.
void add_cache_strides(const FmhaLaunch& c, const std::string& tensor, const char* tokens, LaunchPlan& launch);
void set_cache_buffer(const FmhaLaunch& c, const std::string& tensor, const char* tokens, BufferSpec& buffer);
/// A row of words for each query.
inline constexpr std::int64_t kMaxTreeWords = 1 << 12;
void add_tree(const FmhaLaunch& c, LaunchPlan& launch);
/// A number of each head: a logit, a slope.
void add_of_heads(const char* name, bool is_optional, LaunchPlan& launch);

}  // namespace tessera
