// Keys of attention that are tokens of a cache (kv_cache), for planner and device code alike.
#pragma once

#include "spec/attention_facts.h"
#include "tessera/spec/row_cache.h"

namespace tessera {

TESSERA_HD constexpr RowCache cache_of(const AttentionFacts& f) {
  return f.kv_cache == KvCache::mla_584   ? RowCache::mla_584
         : f.kv_cache == KvCache::mla_384 ? RowCache::mla_384
                                          : RowCache::mla_656;
}
TESSERA_HD constexpr int cache_page_bytes(const AttentionFacts& f) {
  const CacheLayout layout = cache_layout(cache_of(f));
  const int unit = cache_page_unit(cache_of(f));
  return (f.page_size * (layout.token_bytes + layout.tail_bytes) + unit - 1) / unit * unit;
}

}  // namespace tessera
