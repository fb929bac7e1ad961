// What attention over 8-bit keys adds to a Config: registers, slots, roles.
#include <doctest/doctest.h>

#include <initializer_list>

#include "spec/fmha_tiles.h"

namespace tessera::fmha {
namespace {

template <class Visit>
void for_widened(const Visit& visit) {
  for (const Tile& tile : kTiles)
    for (const SplitKv split : {SplitKv::off, SplitKv::on, SplitKv::dealt})
      for (const int stages : {1, 2, 3}) {
        Config c;
        c.facts.head_dim = tile.head_dim;
        c.facts.head_dim_v = tile.head_dim_v;
        c.facts.kv_dtype = DType::e4m3;
        c.tile_m = tile.tile_m;
        c.tile_n = tile.tile_n;
        c.stages = stages;
        c.split_kv = split;
        c.swizzle = widest_swizzle(c);
        c = complete(c);
        if (why_invalid(c).ok()) visit(c);
      }
}

TEST_CASE("8-bit keys: no quarter of an SM gives more registers than it has") {
  int two = 0;
  for_widened([&](const Config& c) {
    const RegisterBudget budget = register_budget(c);
    const int warps = num_threads(c) / 32 * ctas_per_sm(c);
    CHECK(budget.entry * ((warps + 3) / 4) <= 512);
    // Of each warpgroup a quarter has a warp; loading warps keep what they have.
    CHECK(budget.producer + consumer_warpgroups(c) * budget.consumer <= (1 + consumer_warpgroups(c)) * budget.entry);
    CHECK(budget.producer <= budget.entry);
    CHECK(budget.consumer >= budget.entry);
    CHECK(accumulator_registers(c) + kRegistersBesideAccumulators <= budget.consumer);
    CHECK(ctas_per_sm(c) * (smem_layout(c).total_bytes + 1024) <= 228 * 1024);
    two += ctas_per_sm(c) == 2 ? 1 : 0;
  });
  CHECK(two > 0);
}

TEST_CASE("8-bit keys: slots begin where patterns do, regions follow each other, roles cover every warp") {
  for_widened([](const Config& c) {
    const SmemLayout layout = smem_layout(c);
    CHECK(layout.raw_k.offset == end_of(layout.exchange));
    CHECK(layout.raw_v.offset == end_of(layout.raw_k));
    CHECK(layout.barriers.offset == end_of(layout.raw_v));
    CHECK(barriers(c).raw_v_empty[raw_stages(c)] == static_cast<unsigned>(layout.total_bytes));
    for (const int bytes : {k_slot_bytes(c), v_slot_bytes(c)}) CHECK(bytes % swizzle_repeat_bytes(c.swizzle) == 0);
    for (const bool is_v : {false, true}) CHECK(load_ring(c, is_v).offset % 128 == 0);
    int next = 0;
    for (int i = 0; i < num_roles(c); ++i) {
      CHECK(role(c, i).first_warp == next);
      next += role(c, i).warps;
    }
    CHECK(next * 32 == num_threads(c));
  });
}

TEST_CASE(
    "a step over 8-bit keys: raw slots under the swizzle of rows, as many for each warpgroup, and a join in Q's") {
  Config c;
  c.facts.kv_dtype = DType::e4m3;
  c.facts.kv_layout = KvLayout::paged;
  c.facts.page_size = 16;
  c.facts.seqused = UsedLengths::k;
  c.facts.q_layout = QueryLayout::ragged;
  c.split_kv = SplitKv::dealt;
  c.pack_gqa = 8;
  int checked = 0;
  constexpr int kTilesOfStep[][3] = {{128, 64, 2}, {128, 80, 2}, {128, 64, 3}};
  for (const int head_dim : {32, 64, 96, 128})
    for (const auto& tile : kTilesOfStep) {
      c.facts.head_dim = c.facts.head_dim_v = head_dim;
      c.tile_m = tile[0];
      c.tile_n = tile[1];
      c.stages = tile[2];
      c.swizzle = widest_swizzle(c);
      const Config whole = complete(c);
      if (!why_invalid(whole).ok()) continue;
      ++checked;
      CHECK(has_raw_tiles(whole));
      CHECK(raw_stages(whole) % consumer_warpgroups(whole) == 0);
      CHECK(swizzle_span_bytes(swizzle_of_keys(whole, head_dim)) ==
            key_span_bytes(whole.facts, whole.swizzle, head_dim));
      const int rows = consumer_warpgroups(whole) * kConsumerWarps * kRowsOfTransposed;
      CHECK(rows * v_columns(whole) * 4 <= row_groups(whole) * q_slot_bytes(whole));
      CHECK(smem_layout(whole).joined.bytes == rows * 8);
      CHECK_FALSE(joins_tiles(whole));
    }
  CHECK(checked > 8);
  for (const int head_dim : {32, 64, 96, 128})
    for (int tile_n = 16; tile_n <= 256; tile_n += 16)
      for (int stages = 1; stages <= 6; ++stages) {
        c.facts.head_dim = c.facts.head_dim_v = head_dim;
        c.tile_n = tile_n;
        c.stages = stages;
        c.swizzle = widest_swizzle(c);
        const Config whole = complete(c);
        if (!why_invalid(whole).ok() || !has_raw_tiles(whole)) continue;
        INFO(head_dim << ": 128x" << tile_n << ", " << stages << " slots");
        CHECK(raw_stages(whole) >= consumer_warpgroups(whole));  // each takes blocks from slots of its own
      }
  c.facts.head_dim = c.facts.head_dim_v = 128;
  c.tile_n = 80;
  c.stages = 4;
  CHECK_FALSE(has_raw_tiles(complete(c)));
  c.tile_m = 64;
  c.tile_n = 64;
  c.stages = 1;
  CHECK(has_raw_tiles(complete(c)));
  CHECK(is_tile_of_singles(complete(c)));
  CHECK(complete(c).q_stages == 1);
  c.facts.dtype = DType::f16;
  CHECK_FALSE(has_raw_tiles(complete(c)));
  CHECK_FALSE(is_tile_of_singles(complete(c)));
  c.tile_m = 128;
  c.stages = 2;
  CHECK(is_tile_of_singles(complete(c)));
  c.facts.dtype = DType::bf16;
  CHECK_FALSE(is_tile_of_singles(complete(c)));
  c.pack_gqa = 16;
  CHECK_FALSE(has_raw_tiles(complete(c)));
  c.pack_gqa = 8;
  c.facts.head_dim = c.facts.head_dim_v = 256;
  CHECK_FALSE(has_raw_tiles(complete(c)));
  c.facts.head_dim = c.facts.head_dim_v = 128;
  c.facts.split_size = 512;
  CHECK_FALSE(has_raw_tiles(complete(c)));
}

TEST_CASE("one slot that threads write, two warpgroups in turns: tiles are not joined") {
  Config c;
  c.facts.kv_layout = KvLayout::ragged;
  c.stages = 1;
  CHECK(complete(c).q_stages == 1);
  c.tile_m = 64;
  CHECK(complete(c).q_stages == 2);
  c.tile_m = 128;
  c.facts.kv_layout = KvLayout::dense;
  CHECK(complete(c).q_stages == 2);
  c.facts.kv_dtype = DType::e4m3;
  CHECK(complete(c).q_stages == 1);
}

}  // namespace
}  // namespace tessera::fmha
