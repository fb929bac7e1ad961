// Keys that are tokens of a cache (tessera/spec/row_cache.h), and the bf16 rows that attention takes them for: a value
// is the product of its code and its scale, rounded to bf16, where an fp32 scale is rounded to bf16 first. Powers of
// two, which writers of caches have, lose nothing by that. The codes of NaN count as 480, the next number of their
// exponent.
#pragma once

#include <cstdint>

#include "reference/random.h"
#include "reference/tensor.h"
#include "spec/attention_cache.h"

namespace tessera::reference {

/// u8 [ceil(tokens / page_size), bytes of a page] with random values, rotations and scales; what belongs to no token is
/// 0xFF. Integer fills have scales of 1 and whole numbers.
Tensor make_cache(const AttentionFacts& facts, std::int64_t tokens, Fill fill, std::uint64_t seed,
                  std::uint64_t stream);
/// What a reader of caches may have done in place of what was asked. Who would leave the pool stays inside.
struct CacheSlip {
  int page_shift = 0;                 ///< of data and scales: the page beside
  bool has_scales_of_pair = false;    ///< scales of the token whose number differs in the lowest bit
  int scale_token_shift = 0;          ///< scales of the token beside, of the same page
  int scale_block_shift = 0;          ///< of a row's scales the one beside
  bool has_scales_of_blocks = false;  ///< neighbouring ones are exchanged
  bool turns_four_scales = false;     ///< of every four the next, of the last the first
  bool has_first_scale = false;       ///< of a row's scales the first for all
  bool is_unscaled = false;           ///< scales count as 1
  bool has_nibbles_exchanged = false;
};

/// As bf16 [tokens, columns]. `pages`: of page_bytes each, side by side.
Tensor rows_of_cache(const AttentionFacts& facts, const std::byte* pages, std::int64_t tokens,
                     const CacheSlip& slip = {});
/// The same of windows: u8 [batch, pages, bytes of a page], where sequence b has lengths[b] tokens, and what is none is
/// 0xFF; as bf16 [batch, tokens, 1, columns].
Tensor make_window_cache(const AttentionFacts& facts, const Tensor& lengths, std::int64_t tokens, Fill fill,
                         std::uint64_t seed, std::uint64_t stream);
Tensor rows_of_window_cache(const AttentionFacts& facts, const TensorView& pages, std::int64_t tokens,
                            const CacheSlip& slip = {});

}  // namespace tessera::reference
