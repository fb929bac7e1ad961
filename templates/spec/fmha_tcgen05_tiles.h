// The tiles of attention on tcgen05: what the planner considers, and the default of each head_dim.
#pragma once

#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

// The head dimensions that kernels are made for, and the tile that a Problem gets which pins none.
struct Tile {
  int head_dim = 0;
  int head_dim_v = 0;
  int tile_m = 0;
  int tile_n = 0;
  int stages = 0;
  ProbabilityPath p_path = ProbabilityPath::tmem;
  bool cta_pair = false;
};

// The first of a head_dim is its default: the published kernels' shape where there is one, two Q tiles and 128 keys, as
// long as Tensor Memory and a ring of two slots allow. Nothing was measured: there was no such device. head_dim 256 has
// a pair, whose CTAs read half of K and V each: predicted in 0.66 of the time of 128 x 64, which the L2 binds
// (docs/time.md). head_dim 512 has one slot of 128 keys: each half of it is loaded while the other product runs, and
// half as many steps pass through the softmax.
inline constexpr Tile kTiles[] = {
    {16, 16, 256, 128, 4},
    {16, 16, 128, 128, 4},
    {32, 32, 256, 128, 4},
    {32, 32, 128, 128, 4},
    {64, 64, 256, 128, 3},
    {64, 64, 128, 128, 3},
    {64, 64, 256, 64, 4},
    {72, 72, 256, 128, 3},
    {72, 72, 128, 128, 3},
    {80, 80, 256, 128, 3},
    {80, 80, 128, 128, 3},
    {96, 96, 256, 128, 2},
    {96, 96, 128, 128, 2},
    {128, 128, 256, 128, 2},
    {128, 128, 128, 128, 2},
    {128, 128, 256, 64, 4},
    {160, 160, 256, 64, 2},
    {160, 160, 128, 128, 2},
    {192, 128, 256, 64, 2},
    {192, 128, 256, 64, 3},
    {192, 128, 128, 128, 1},
    {192, 192, 256, 64, 2},
    {192, 192, 128, 64, 2},
    {256, 256, 256, 128, 2, ProbabilityPath::tmem, true},
    {256, 256, 128, 64, 2},
    {256, 256, 128, 128, 1},
    {128, 128, 512, 128, 4, ProbabilityPath::tmem, true},
    {512, 512, 128, 128, 1, ProbabilityPath::smem, true},
    {512, 512, 128, 64, 2, ProbabilityPath::smem, true},
};

// Over 8-bit keys, which take shared memory twice, for slots as they were loaded and as products read them, and
// registers for those that widen: two Q tiles have 64 keys, and where one alone has room it has one slot of K and of V.
// A pair has no kernel. head_dim 72 has none either: boxes of 8 columns of 8 bits lie 8 bytes apart, which no tensor
// map takes.
inline constexpr Tile kTilesOfWidened[] = {
    {16, 16, 256, 64, 4},   {16, 16, 128, 128, 4},  {32, 32, 256, 64, 4},   {32, 32, 128, 128, 4},
    {64, 64, 256, 64, 3},   {64, 64, 128, 128, 3},  {80, 80, 256, 64, 3},   {80, 80, 128, 128, 2},
    {96, 96, 256, 64, 3},   {96, 96, 128, 128, 2},  {128, 128, 256, 64, 2}, {128, 128, 128, 128, 2},
    {160, 160, 256, 64, 2}, {160, 160, 128, 64, 2}, {192, 128, 256, 64, 2}, {192, 128, 128, 64, 2},
    {192, 192, 256, 64, 1}, {192, 192, 128, 64, 2}, {256, 256, 128, 64, 1},
};

// Of 8 bits: half the shared memory, so that 192/128 has 128 keys, and 256 four products of them, and rings are longer.
inline constexpr Tile kTilesOf8Bit[] = {
    {64, 64, 256, 128, 4},
    {64, 64, 128, 128, 4},
    {128, 128, 256, 128, 4},
    {128, 128, 128, 128, 4},
    {128, 128, 256, 64, 4},
    {192, 128, 256, 128, 3},
    {192, 128, 128, 128, 3},
    {192, 192, 256, 64, 4},
    {192, 192, 128, 128, 3},
    {256, 256, 128, 128, 3},
    {256, 256, 128, 64, 4},
    {128, 128, 512, 128, 4, ProbabilityPath::tmem, true},
    {256, 256, 256, 128, 4, ProbabilityPath::tmem, true},
};

// Of keys that are values too: Q of 64 rows takes 72 KB, a block of 64 keys as much.
inline constexpr Tile kTilesOfLatent[] = {{kLatentHeadDim, kLatentHeadDimV, 64, 64, 2, ProbabilityPath::smem}};
inline constexpr Tile kTilesOfGathered[] = {{kLatentHeadDim, kLatentHeadDimV, 64, 64, 2, ProbabilityPath::smem},
                                            {kLatentHeadDimV, kLatentHeadDimV, 64, 64, 2, ProbabilityPath::smem}};

struct Tiles {
  const Tile* first = nullptr;
  int count = 0;
  TESSERA_HD constexpr const Tile* begin() const { return first; }
  TESSERA_HD constexpr const Tile* end() const { return first + count; }
};
template <unsigned long kCount>
TESSERA_HD constexpr Tiles all_of(const Tile (&tiles)[kCount]) {
  return {tiles, static_cast<int>(kCount)};
}
TESSERA_HD constexpr Tiles tiles_of(const AttentionFacts& facts) {
  if (facts.v_is_k == VIsK::on) return has_pools(facts) ? all_of(kTilesOfGathered) : all_of(kTilesOfLatent);
  return is_8_bit(facts) ? all_of(kTilesOf8Bit) : widens_keys(facts) ? all_of(kTilesOfWidened) : all_of(kTiles);
}
TESSERA_HD constexpr MmaKind mma_kind_of(const AttentionFacts& facts) {
  return is_8_bit(facts) ? MmaKind::tcgen05_f8f6f4 : MmaKind::tcgen05_f16;
}

// The widest swizzle whose span divides what a CTA has of a row.
TESSERA_HD constexpr Swizzle widest_swizzle(const Config& c) {
  const Swizzle swizzles[] = {Swizzle::b128, Swizzle::b64, Swizzle::b32};
  for (const Swizzle swizzle : swizzles) {
    Config widened = c;
    widened.swizzle = swizzle;
    if (why_invalid_head_dims(widened).rule != Rule::head_dim_not_multiple_of_span &&
        (c.facts.v_layout == Layout::mn_major || c.tile_n % span_elements(widened) == 0)) {
      return swizzle;
    }
  }
  return Swizzle::none;
}

// The default for these facts.
TESSERA_HD constexpr Config default_config(const AttentionFacts& facts) {
  Config c;
  c.facts = facts;
  c.mma_kind = mma_kind_of(facts);
  for (const Tile& tile : tiles_of(facts)) {
    if (tile.head_dim != facts.head_dim || tile.head_dim_v != facts.head_dim_v) continue;
    c.tile_m = tile.tile_m;
    c.tile_n = tile.tile_n;
    c.stages = tile.stages;
    c.p_path = tile.p_path;
    c.cta_pair = tile.cta_pair;
    break;
  }
  c.swizzle = widest_swizzle(c);
  if (gathers(c)) c.kv_copy = KvCopy::cp_async;
  return c;
}

}  // namespace tessera::fmha_tcgen05
