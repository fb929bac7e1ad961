// Tokens in pages of caches that row operators write, to the byte. Host and device evaluate the same functions.
//
//   mla_656      512 e4m3, 4 fp32 scales (128 columns each), 64 of bf16, token by token
//   mla_584      448 e4m3 and 64 of bf16, token by token; behind all tokens 8 bytes each: 7 ue8m0 (64 columns each), a
//   0 indexer_132  128 e4m3, token by token; behind all tokens an fp32 scale each
#pragma once

#include "tessera/spec/row_chain.h"

namespace tessera {

// Of a cache: columns that are e4m3, of them those of a scale; bytes of a token without what lies behind all tokens,
// and of that. Columns behind the values are bf16.
TESSERA_HD constexpr int cache_columns(RowCache cache) {
  return cache == RowCache::mla_656 ? 576 : cache == RowCache::mla_584 ? 512 : 128;
}
TESSERA_HD constexpr int cache_values(RowCache cache) {
  return cache == RowCache::mla_656 ? 512 : cache == RowCache::mla_584 ? 448 : 128;
}
TESSERA_HD constexpr int cache_block(RowCache cache) { return cache == RowCache::mla_584 ? 64 : 128; }
TESSERA_HD constexpr int cache_token_bytes(RowCache cache) {
  return cache == RowCache::mla_656 ? 656 : cache == RowCache::mla_584 ? 576 : 128;
}
TESSERA_HD constexpr int cache_tail_bytes(RowCache cache) {
  return cache == RowCache::mla_656 ? 0 : cache == RowCache::mla_584 ? 8 : 4;
}
// Bytes in front of the columns that are bf16.
TESSERA_HD constexpr int cache_bf16_at(RowCache cache) { return cache == RowCache::mla_656 ? 528 : 448; }
// Whether scales are powers of two: FlashMLA's caches, not the indexer's.
TESSERA_HD constexpr bool cache_has_powers(RowCache cache) { return cache != RowCache::indexer_132; }
// Where the scale of a block stands, from the start of the page.
TESSERA_HD constexpr long long cache_scale_at(RowCache cache, long long page_size, long long place, int block) {
  if (cache == RowCache::mla_656) return place * 656 + 512 + 4 * block;
  return page_size * cache_token_bytes(cache) + place * cache_tail_bytes(cache) +
         (cache == RowCache::mla_584 ? block : 0);
}

}  // namespace tessera
