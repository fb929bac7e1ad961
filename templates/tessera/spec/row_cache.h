// Tokens in pages of caches that row operators write, to the byte. Host and device evaluate the same functions. A page
// has the data of its tokens, token by token, and behind all of them their tails, token by token too.
//
//   cache        data of a token                                                 tail of a token
//   mla_656      512 e4m3, 4 fp32 scales (128 columns each), 64 bf16 columns     none
//   mla_584      448 e4m3, 64 bf16 columns                                       7 ue8m0 (64 columns each), a 0
//   mla_384      448 e2m1, 64 bf16 columns                                       28 ue4m3 (16 columns each), four 0
//   mla_528      512 e4m3                                                        16 ue8m0 (32 columns each)
//   mla_288      512 e2m1                                                        32 ue4m3 (16 columns each)
//   indexer_132  128 e4m3                                                        an fp32 scale
//   indexer_68   128 e2m1                                                        4 ue8m0 (32 columns each)
//
// Of two e2m1 in a byte the one of the smaller column is in the low four bits.
#pragma once

#include "tessera/spec/block_scale.h"
#include "tessera/spec/row_chain.h"

namespace tessera {

// How a block's scale follows from its largest magnitude.
enum class CacheScale {
  power,     // the least power of two that is not below max(amax / 448, 1e-4): fp32, or ue8m0 in a tail
  quotient,  // max(amax, 1e-4) / 448, fp32
  format     // as the block-scaled format has it; in mla_288 and indexer_68 never the code 0
};

struct CacheLayout {
  int values;  // columns that are values of `value`
  int bf16;    // columns behind them
  int block;   // columns of a scale
  ValueType value;
  CacheScale scale;
  BlockFormat format;  // of CacheScale::format
  int scale_bytes;     // of a scale
  int token_bytes;     // of data
  int tail_bytes;
  int bf16_at;    // from the start of the data
  int scales_at;  // of mla_656: in the data
  int least_code;
};

TESSERA_HD constexpr CacheLayout cache_layout(RowCache cache) {
  constexpr ValueType kE4m3 = ValueType::e4m3, kE2m1 = ValueType::e2m1;
  constexpr BlockFormat kNv = BlockFormat::nvfp4, kMx = BlockFormat::mxfp4;
  switch (cache) {
    case RowCache::mla_656:
      return {512, 64, 128, kE4m3, CacheScale::power, kNv, 4, 656, 0, 528, 512, 0};
    case RowCache::mla_584:
      return {448, 64, 64, kE4m3, CacheScale::power, kNv, 1, 576, 8, 448, 0, 0};
    case RowCache::mla_384:
      return {448, 64, 16, kE2m1, CacheScale::format, kNv, 1, 352, 32, 224, 0, 0};
    case RowCache::mla_528:
      return {512, 0, 32, kE4m3, CacheScale::power, kNv, 1, 512, 16, 0, 0, 0};
    case RowCache::mla_288:
      return {512, 0, 16, kE2m1, CacheScale::format, kNv, 1, 256, 32, 0, 0, 1};
    case RowCache::indexer_132:
      return {128, 0, 128, kE4m3, CacheScale::quotient, kNv, 4, 128, 4, 0, 0, 0};
    case RowCache::indexer_68:
      return {128, 0, 32, kE2m1, CacheScale::format, kMx, 1, 64, 4, 0, 0, 1};
  }
  return {};
}

TESSERA_HD constexpr int cache_columns(RowCache cache) { return cache_layout(cache).values + cache_layout(cache).bf16; }
TESSERA_HD constexpr int cache_blocks(RowCache cache) { return cache_layout(cache).values / cache_layout(cache).block; }
// Bytes of a tail behind its scales, which are 0.
TESSERA_HD constexpr int cache_padding(RowCache cache) {
  const CacheLayout l = cache_layout(cache);
  return l.tail_bytes == 0 ? 0 : l.tail_bytes - cache_blocks(cache) * l.scale_bytes;
}
// Where the scale of a block stands, from the start of the page.
TESSERA_HD constexpr long long cache_scale_at(RowCache cache, long long page_size, long long place, int block) {
  const CacheLayout l = cache_layout(cache);
  if (l.tail_bytes == 0) return place * l.token_bytes + l.scales_at + l.scale_bytes * block;
  return page_size * l.token_bytes + place * l.tail_bytes + l.scale_bytes * block;
}
// Bytes of a page: whole tokens of 576 bytes in mla_584, as FlashMLA has it, else whole 16 bytes.
TESSERA_HD constexpr int cache_page_unit(RowCache cache) { return cache == RowCache::mla_584 ? 576 : 16; }

}  // namespace tessera
