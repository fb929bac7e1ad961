// What attention over e4m3 q, k and v adds to a Config: slots, swizzles, roles; and that the order in which P's
// registers have keys is that in which V's transposed slots have them.
#include <doctest/doctest.h>

#include <array>
#include <set>

#include "spec/fmha_tiles.h"
#include "spec/fragment.h"

namespace tessera::fmha {
namespace {

template <class Visit>
void for_8_bit(const Visit& visit) {
  for (const Tile& tile : kTilesOf8Bit)
    for (const SplitKv split : {SplitKv::off, SplitKv::on, SplitKv::dealt})
      for (const int promote : {0, 2 * tile.tile_n}) {
        Config c;
        c.facts.head_dim = tile.head_dim;
        c.facts.head_dim_v = tile.head_dim_v;
        c.facts.dtype = c.facts.kv_dtype = DType::e4m3;
        c.tile_m = tile.tile_m;
        c.tile_n = tile.tile_n;
        c.stages = tile.stages;
        c.split_kv = split;
        c.promote_every = promote;
        c.swizzle = widest_swizzle(c);
        c = complete(c);
        CAPTURE(c.facts.head_dim);
        CAPTURE(c.tile_m);
        CAPTURE(c.tile_n);
        CHECK(why_invalid(c).rule == Rule::ok);
        visit(c);
      }
}

TEST_CASE("8 bits in all: slots begin where patterns do, regions follow each other, roles cover every warp") {
  for_8_bit([](const Config& c) {
    const SmemLayout layout = smem_layout(c);
    CHECK(layout.raw_k.bytes == 0);
    CHECK(layout.raw_v.bytes == raw_v_stages(c) * c.tile_n * v_columns(c));
    CHECK(layout.promoted.offset == end_of(layout.raw_v));
    CHECK(layout.promoted.bytes ==
          (c.promote_every > 0 ? c.tile_m * ((keeps_sums_in_o(c) ? 0 : v_columns(c) * (keeps_f16_sums(c) ? 2 : 4)) + 16)
                               : 0));
    CHECK(layout.barriers.offset == end_of(layout.promoted));
    CHECK(barriers(c).raw_v_empty[raw_v_stages(c)] == static_cast<unsigned>(layout.total_bytes));
    CHECK(k_slot_bytes(c) % swizzle_repeat_bytes(c.swizzle) == 0);
    CHECK(raw_v_slot_bytes(c) % swizzle_repeat_bytes(c.swizzle) == 0);
    CHECK(v_slot_bytes(c) % swizzle_repeat_bytes(transposed_swizzle(c)) == 0);
    CHECK(c.tile_n % swizzle_span_bytes(transposed_swizzle(c)) == 0);
    int next = 0;
    for (int i = 0; i < num_roles(c); ++i) {
      CHECK(role(c, i).first_warp == next);
      next += role(c, i).warps;
    }
    CHECK(next * 32 == num_threads(c));
    CHECK_FALSE(output_wgmma(c).b_is_mn_major);
    CHECK(output_wgmma(c).dtype == DType::e4m3);
  });
}

TEST_CASE("8 bits in all: a lane's scores are the A operand's bytes, in the order of V's transposed keys") {
  // The key at a place of 16, as ldmatrix.trans and the permutations of bytes leave them.
  const auto key_at = [](int place) { return 8 * (place % 4 / 2) + 2 * (place / 4) + place % 2; };
  std::set<int> keys;
  for (int place = 0; place < 16; ++place) keys.insert(key_at(place));
  CHECK(keys.size() == 16);
  for (int lane = 0; lane < 32; ++lane)
    for (int step_register = 0; step_register < 4; ++step_register)
      for (int byte = 0; byte < 4; ++byte) {
        // pack(): register i % 4 of a step of 32 keys has scores first, first + 1, first + 4 and first + 5.
        const int value = step_register / 2 * 8 + step_register % 2 * 2 + byte % 2 + byte / 2 * 4;
        // wgmma's D: value v is in column 8 (v / 4) + 2 (lane % 4) + v % 2; its 8-bit A: byte v of 16 is in column
        // 4 (lane % 4) + v % 4 + 16 (v / 8).
        const int key_of_score = 8 * (value / 4) + 2 * (lane % 4) + value % 2;
        const int place = 4 * (lane % 4) + byte + 16 * (step_register / 2);
        CHECK(value / 2 % 2 == step_register % 2);  // of the same row
        CHECK(key_of_score == place / 16 * 16 + key_at(place % 16));
      }
}

}  // namespace
}  // namespace tessera::fmha
