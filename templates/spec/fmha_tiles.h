// The tiles of attention on Hopper that are worth considering, which of them a Problem gets that pins none, with what
// was measured, and what completes a Config. For the planner: kernels have their Config.
#pragma once

#include "spec/fmha.h"

namespace tessera::fmha {

TESSERA_HD constexpr bool needs_cta_pair(int head_dim) { return head_dim > 256; }

// The widest swizzle whose span divides what a CTA has of a row.
TESSERA_HD constexpr Swizzle widest_swizzle(const Config& c) {
  const int qk_bytes = qk_columns(c) * dtype_bytes(c.facts.dtype);
  const int v_bytes = v_columns(c) * dtype_bytes(c.facts.dtype);
  if (qk_bytes % 128 == 0 && v_bytes % 128 == 0) return Swizzle::b128;
  return qk_bytes % 64 == 0 && v_bytes % 64 == 0 ? Swizzle::b64 : Swizzle::b32;
}

// Whether joined tiles would wait for each other: a tile's first step holds the turn and waits for its first V, since
// what threads write must not be multiplied meanwhile; the only slot is free once the other warpgroup had its turn.
TESSERA_HD constexpr bool locks_joined(const Config& c) {
  const bool is_written_by_threads = has_placed_keys(c) || has_descales(c.facts);
  return is_written_by_threads && c.stages == 1 && consumer_warpgroups(c) >= 2;
}

// Completes a Config whose head_dims, tile, stages, swizzle, types, mask and output are set: the choices that nobody
// pins.
TESSERA_HD constexpr Config complete(Config c) {
  c.cta_pair = needs_cta_pair(c.facts.head_dim);
  c.ping_pong = consumer_warpgroups(c) >= 2 && !uses_mma_sync(c);
  c.q_stages = 2;
  if (smem_layout(c).total_bytes > most_smem_bytes(c) || (has_widening_warps(c) && raw_stages(c) < 2)) c.q_stages = 1;
  // A tile's Q is in registers once it has begun: the next one's may come.
  if (shares_blocks(c)) c.q_stages = 1;
  if (locks_joined(c)) c.q_stages = 1;
  // Of two CTAs on an SM each has the other's products beside its last one, and one more slot of keys.
  if (has_raw_tiles(c) && (consumer_warpgroups(c) == 1 || raw_stages(c) < 2)) c.q_stages = 1;
  return c;
}

// Whether a step takes this tile whose sequences have few rows each.
TESSERA_HD constexpr bool is_tile_of_singles(const Config& c) {
  if (c.tile_n != 64) return false;
  Config small = c, large = c;
  small.tile_m = 64;
  large.tile_m = 128;
  if (has_raw_tiles(small)) return c.tile_m == 64 && c.stages == 1;
  return has_raw_tiles(large) ? c.tile_m == 128 && c.stages == 2 : c.tile_m == 64;
}

// From how many rows of a sequence on, in the mean, a step takes a large tile (H200, H100: bench/results/fmha-step.md):
// where single queries are multiplied from raw slots they take as long beside tiles of 128 rows.
TESSERA_HD constexpr int least_rows_of_large(const Config& c) {
  Config large = c;
  large.tile_m = 128;
  large.tile_n = 64;
  large.stages = 2;
  return has_raw_tiles(large) ? 64 : 128;
}

// The head dimensions that kernels are made for.
struct HeadDims {
  int head_dim = 0;
  int head_dim_v = 0;
};

inline constexpr HeadDims kHeadDims[] = {{16, 16},   {32, 32},   {64, 64},   {72, 72},   {80, 80},   {96, 96},
                                         {128, 128}, {160, 160}, {192, 128}, {192, 192}, {256, 256}, {512, 512}};

// Tiles worth considering for a head_dim.
struct Tile {
  int head_dim = 0;
  int head_dim_v = 0;
  int tile_m = 0;
  int tile_n = 0;
  int stages = 0;
};

inline constexpr Tile kTiles[] = {
    {64, 64, 192, 128, 2},   {64, 64, 256, 64, 2},    {64, 64, 128, 128, 2},   {64, 64, 192, 96, 2},
    {64, 64, 128, 128, 3},   {64, 64, 64, 128, 2},    {96, 96, 192, 96, 2},    {96, 96, 128, 128, 2},
    {96, 96, 128, 160, 2},   {96, 96, 192, 96, 3},    {96, 96, 192, 80, 2},    {96, 96, 64, 96, 2},
    {128, 128, 128, 128, 2}, {128, 128, 192, 80, 2},  {128, 128, 128, 160, 2}, {128, 128, 192, 80, 3},
    {128, 128, 128, 176, 2}, {128, 128, 128, 96, 3},  {128, 128, 64, 64, 1},   {192, 128, 128, 128, 2},
    {192, 128, 128, 96, 2},  {192, 128, 192, 80, 2},  {192, 128, 192, 64, 2},  {192, 128, 128, 80, 3},
    {192, 128, 64, 64, 2},   {192, 192, 128, 112, 2}, {192, 192, 128, 96, 2},  {192, 192, 128, 80, 2},
    {192, 192, 128, 64, 3},  {192, 192, 64, 64, 2},   {256, 256, 128, 80, 2},  {256, 256, 128, 64, 2},
    {256, 256, 128, 48, 3},  {256, 256, 64, 64, 3},   {512, 512, 128, 64, 2},  {512, 512, 128, 48, 2},
    {512, 512, 128, 32, 3},  {512, 512, 64, 48, 2},   {16, 16, 192, 128, 2},   {16, 16, 256, 64, 2},
    {16, 16, 64, 128, 2},    {32, 32, 192, 128, 2},   {32, 32, 256, 64, 2},    {32, 32, 64, 128, 2},
    {72, 72, 192, 96, 2},    {72, 72, 128, 128, 2},   {72, 72, 64, 96, 2},     {80, 80, 192, 96, 2},
    {80, 80, 128, 128, 2},   {80, 80, 64, 96, 2},     {160, 160, 128, 80, 2},  {160, 160, 128, 112, 2},
    {160, 160, 64, 64, 2},
};

// The tile that a Problem gets which pins none; seqlen_k: the number of keys that is expected, or -1. Why: an H200,
// 16,384 tokens of 2,048 features, bf16, TFLOP/s at S = 1,024 / 4,096 / 16,384, all candidates in one run:
//   head_dim 64   no mask 192x128 462 546 586, 256x64 506 543 559; causal 256x64 352 511 543, 192x128 278 480 531
//   head_dim 128  no mask 192x80 624 735 755, 128x128 644 686 689; causal 128x128 455 631 667, 192x80 396 628 750
//   head_dim 256  no mask 128x64 671 774 806, 128x80 671 765 808; causal 128x64 507 720 766, 128x80 490 717 767 (and it
//                 spills)
// At S = 1,024 / 16,384, in another run:
//   head_dim 96   no mask 192x96 536 641, 128x128 568 556, 192x80 532 607; causal 192x96 368 657, 128x128 389 548
//   192/128       no mask 128x96 657 773, 128x128 656 811, 192x64 604 770; causal 128x128 482 790, 128x96 468 755
//                 (as multiples of cuDNN, whose clocks varied likewise: 1.21 1.22, 1.20 1.20;
//                 causal 1.21 1.31, 1.17 1.32)
//   head_dim 192  no mask 128x80 694 753, 128x96 655 806, 128x112 633 770; causal 128x80 482 779, 128x96 480 783
//                 (likewise 1.16 1.24, 1.10 1.23; causal 1.10 1.31, 1.10 1.30)
//   head_dim 512  no mask, S = 16,384: 128x64 477, 128x48 455, 128x32 with 3 stages 372; causal 128x64 450, 128x48 455
// Three slots of 256x64, head_dim 64, causal: 0.95 to 0.98 of the time of two at S = 400 and 512, 0.99 at 1,024 and
// 2,048, 0.99 to 1.00 from 4,096 on (bench/results/fmha-vs-cudnn.md).
// Not measured: 16 and 32 take the tiles of 64, 72 and 80 those of 96, 160 that of 192.
TESSERA_HD constexpr Tile default_tile(int head_dim, int head_dim_v, Mask mask, long long seqlen_k = -1) {
  const bool is_full = mask == Mask::none;
  const bool is_short = seqlen_k >= 0 && seqlen_k <= 2048;
  const bool is_long = seqlen_k >= 8192;
  const auto tile = [&](int tile_m, int tile_n, int stages = 2) {
    return Tile{head_dim, head_dim_v, tile_m, tile_n, stages};
  };
  if (head_dim <= 64 && is_full) return is_short ? tile(256, 64) : tile(192, 128);
  if (head_dim <= 64) return tile(256, 64, head_dim == 64 ? 3 : 2);
  if (head_dim <= 96) return is_short ? tile(128, 128) : tile(192, 96);
  if (head_dim <= 128) return (is_full ? !is_short : is_long) ? tile(192, 80) : tile(128, 128);
  if (head_dim <= 192 && head_dim_v <= 128) return is_full ? tile(128, 96) : tile(128, 128);
  if (head_dim <= 192) return tile(128, 80);
  return tile(128, 64);
}

// The same for keys in pages, and copied queries: with the registers that their loads leave, and keys of whole pages.
TESSERA_HD constexpr Tile tile_of_pages(const AttentionFacts& f, bool copies_rows) {
  const bool is_raw_pair = copies_rows && f.head_dim == 512 && f.output == Output::unnormalized;
  const int tile_n = f.head_dim <= 128     ? 128
                     : f.head_dim_v <= 128 ? 96
                     : f.head_dim <= 192   ? 64
                     : is_raw_pair         ? 32
                                           : 48;
  return {f.head_dim, f.head_dim_v, 128, tile_n, 2};
}

// For a V whose keys are contiguous: with keys of whole spans.
TESSERA_HD constexpr Tile tile_of_k_major(int head_dim, int head_dim_v) {
  const int tile_n = head_dim > 64 && head_dim <= 96 ? 96 : head_dim_v <= 128 ? 128 : 64;
  return {head_dim, head_dim_v, 128, tile_n, 2};
}

// Keys of a tile of 128 rows beside 8-bit keys, at most: what else is looked up for a score leaves registers for fewer.
TESSERA_HD constexpr int most_keys_of_widened(const AttentionFacts& f, bool copies_rows) {
  if (f.head_dim > 128) return copies_rows ? 48 : 64;
  const bool is_heavy = f.tree_mask != TreeMask::none || (f.softcap != Softcap::none && f.alibi != Alibi::none) ||
                        (alters_scores(f) && copies_rows);
  return is_heavy ? 64 : f.head_dim <= 64 ? 128 : f.head_dim <= 96 ? 96 : 80;
}

// For 8-bit keys: with the registers that widening leaves.
TESSERA_HD constexpr Tile tile_of_widened(const AttentionFacts& f, bool copies_rows) {
  if (f.head_dim_v > 128) return {f.head_dim, f.head_dim_v, 64, 64, 1};
  return {f.head_dim, f.head_dim_v, 128, most_keys_of_widened(f, copies_rows), 2};
}

// For 8 bits in all: those worth considering, and the first of a head_dim that fits is what a Problem gets which pins
// none. H100, 16,384 keys, 16 heads of 128, TFLOP/s without promotion: no mask 192x96 1001, 128x160 965, 128x192 945,
// 192x64 918, 128x128 864; causal 1015, 867, 880, 917, 854. Others were not measured.
inline constexpr Tile kTilesOf8Bit[] = {
    {64, 64, 192, 128, 2},  {64, 64, 128, 128, 2},  {64, 64, 64, 128, 2},    {64, 64, 64, 64, 2},
    {128, 128, 192, 96, 2}, {128, 128, 192, 64, 2}, {128, 128, 128, 128, 2}, {128, 128, 128, 160, 2},
    {128, 128, 64, 128, 2}, {128, 128, 64, 64, 2},  {192, 128, 192, 96, 2},  {192, 128, 128, 128, 2},
    {192, 128, 64, 64, 2},  {192, 192, 128, 64, 2}, {192, 192, 64, 64, 2},   {256, 256, 128, 96, 2},
    {256, 256, 128, 64, 2}, {256, 256, 64, 64, 2},
};
// Whether a tile of 8 bits compiles without a spill: three consumer warpgroups leave 160 registers to each of their
// threads, and 32 to those that load and transpose, too few for pages, ragged sequences or copied queries. Which
// window a row of packed heads has takes registers too, and so does O of fp32.
TESSERA_HD constexpr bool fits_8_bit(const AttentionFacts& f, const Config& packed, int tile_m, int tile_n) {
  if (f.head_dim == 256 && tile_m == 128 && tile_n >= 64) {
    if (tile_n > 64 && packed.pack_gqa > 1 && f.window != Window::none) return false;
    return f.output == Output::normalized && f.seqused == UsedLengths::none;
  }
  if (tile_m <= 128) return true;
  if (f.kv_layout != KvLayout::dense || is_ragged(f) || copies_q(packed)) return false;
  if (tile_n > 64 && f.head_dim == 192 && f.output == Output::unnormalized) return false;
  return tile_n <= 64 || (f.window == Window::none && f.seqused == UsedLengths::none);
}
TESSERA_HD constexpr Tile tile_of_8_bit(const AttentionFacts& f, const Config& packed) {
  for (const Tile& tile : kTilesOf8Bit) {
    if (tile.head_dim != f.head_dim || tile.head_dim_v != f.head_dim_v) continue;
    if (fits_8_bit(f, packed, tile.tile_m, tile.tile_n)) return tile;
  }
  return {f.head_dim, f.head_dim_v, 64, 64, 2};
}

// For few queries. More slots, or more keys of a step, are slower: H100, 32/8 heads, one query of 8 sequences, pages of
// 16, microseconds with 2, 3 and 4 slots of 64 keys, and 1 and 2 of 128: e4m3, 8,192 keys 56.6 57.7 58.7, 57.0 58.7;
// 32,768 keys 197 200 207, 199 204; bf16, 32,768 keys with 1, 2 and 4 slots of 64 keys 361 359 370, one of 128 364.
TESSERA_HD constexpr Tile tile_of_warps(const AttentionFacts& f) {
  return {f.head_dim, f.head_dim_v, kRowsOfWarpMma, 16 * kConsumerWarps, 2};
}

// For two pools of keys: rows for a query's heads.
TESSERA_HD constexpr Tile tile_of_pools(const AttentionFacts& f, int pack_gqa) {
  Tile tile = tile_of_pages(f, false);
  if (pack_gqa <= kRowsPerWarpgroup) tile.tile_m = kRowsPerWarpgroup;
  if (f.head_dim < 32 && tile.tile_m == 128) tile.tile_n = 96;  // with 112 and 128 keys ptxas spills
  return tile;
}

// The tile that a Problem with these facts and packed heads gets which pins none.
TESSERA_HD constexpr Tile standard_tile(const AttentionFacts& f, int pack_gqa, long long seqlen_k) {
  if (has_pools(f)) return tile_of_pools(f, pack_gqa);
  Config packed;
  packed.pack_gqa = pack_gqa;
  if (is_8_bit(f)) return tile_of_8_bit(f, packed);
  if (widens_keys(f)) return tile_of_widened(f, copies_q(packed));
  if (f.v_layout == Layout::k_major) return tile_of_k_major(f.head_dim, f.head_dim_v);
  return has_plain_loads(f) && !copies_q(packed) ? default_tile(f.head_dim, f.head_dim_v, f.mask, seqlen_k)
                                                 : tile_of_pages(f, copies_q(packed));
}

// standard_tile() with 128-byte swizzle, or the widest that divides the rows, completed. `promotes`: sums of 8 bits.
TESSERA_HD constexpr Config default_config(const AttentionFacts& facts, int pack_gqa = 1, long long seqlen_k = -1,
                                           bool promotes = true) {
  const Tile tile = standard_tile(facts, pack_gqa, seqlen_k);
  Config c;
  c.facts = facts;
  c.pack_gqa = pack_gqa;
  if (has_pools(c)) c.kv_copy = KvCopy::cp_async;
  c.tile_m = tile.tile_m;
  c.tile_n = tile.tile_n;
  c.stages = tile.stages;
  c.promote_every = promotes ? default_promotion(c) : 0;
  c = complete(c);
  c.swizzle = widest_swizzle(c);
  return c;
}

}  // namespace tessera::fmha
