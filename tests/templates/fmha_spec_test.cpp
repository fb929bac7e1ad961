// The rules of attention Configs, and what follows from a legal one.
#include <doctest/doctest.h>

#include <initializer_list>
#include <vector>

#include "spec/fmha_tiles.h"

namespace tessera::fmha {
namespace {

constexpr Swizzle kSwizzles[] = {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128};

Config with_tile(const Tile& tile, Swizzle swizzle = Swizzle::b128) {
  Config c;
  c.facts.head_dim = tile.head_dim;
  c.facts.head_dim_v = tile.head_dim_v;
  c.tile_m = tile.tile_m;
  c.tile_n = tile.tile_n;
  c.stages = tile.stages;
  c.swizzle = swizzle;
  return complete(c);
}

std::vector<Config> legal_configs() {
  std::vector<Config> configs;
  for (const Tile& tile : kTiles) {
    for (const Swizzle swizzle : kSwizzles) {
      for (const Output output : {Output::normalized, Output::unnormalized}) {
        Config c = with_tile(tile, swizzle);
        if (swizzle_span_bytes(swizzle) > swizzle_span_bytes(widest_swizzle(c))) continue;
        c.facts.output = output;
        configs.push_back(c);
      }
    }
  }
  return configs;
}

void check_rule(Config c, Rule rule, long long found, long long bound) {
  const Verdict<Rule> verdict = why_invalid(c);
  CHECK(static_cast<int>(verdict.rule) == static_cast<int>(rule));
  CHECK(verdict.found == found);
  CHECK(verdict.bound == bound);
}

TEST_CASE("every default is legal") {
  for (const HeadDims& dims : {HeadDims{16, 16},
                               {32, 32},
                               {64, 64},
                               {64, 32},
                               {72, 72},
                               {80, 80},
                               {96, 96},
                               {128, 128},
                               {128, 64},
                               {160, 160},
                               {192, 128},
                               {192, 192},
                               {256, 256},
                               {256, 128},
                               {512, 512},
                               {512, 256}}) {
    for (const Mask mask : {Mask::none, Mask::causal}) {
      for (const DType dtype : {DType::bf16, DType::f16}) {
        for (const Output output : {Output::normalized, Output::unnormalized}) {
          const Config c = default_config({.head_dim = dims.head_dim,
                                           .head_dim_v = dims.head_dim_v,
                                           .dtype = dtype,
                                           .mask = mask,
                                           .output = output});
          CAPTURE(dims.head_dim);
          CAPTURE(dims.head_dim_v);
          CHECK(why_invalid(c).ok());
          CHECK(c.facts.head_dim == dims.head_dim);
          CHECK(c.facts.head_dim_v == dims.head_dim_v);
          CHECK(c.cta_pair == (dims.head_dim > 256));
        }
      }
    }
  }
}

TEST_CASE("every candidate is legal with every swizzle whose span divides its rows") {
  for (const Config& c : legal_configs()) {
    CAPTURE(c.facts.head_dim);
    CAPTURE(c.tile_m);
    CAPTURE(c.tile_n);
    check_rule(c, Rule::ok, 0, 0);
  }
}

TEST_CASE("each rule names what it found and its bound") {
  Config c;
  c.facts.dtype = DType::f32;
  check_rule(c, Rule::dtype_not_16_bit, 4, 2);
  c = {};
  c.facts.head_dim = 68;
  check_rule(c, Rule::head_dim_not_multiple_of_8, 68, 8);
  c.facts.head_dim = 0;
  check_rule(c, Rule::head_dim_not_multiple_of_8, 0, 8);
  c.facts.head_dim = 512;
  check_rule(c, Rule::head_dim_out_of_range, 512, 256);
  c.cta_pair = true;
  c.facts.head_dim = 528;
  check_rule(c, Rule::head_dim_not_multiple_of_8, 528, 32);
  c.facts.head_dim = 544;
  check_rule(c, Rule::head_dim_out_of_range, 544, 512);
  c = {};
  c.facts.head_dim = 80;
  check_rule(c, Rule::head_dim_not_multiple_of_span, 160, 128);
  c = {};
  c.facts.head_dim_v = 68;
  check_rule(c, Rule::head_dim_not_multiple_of_8, 68, 8);
  c.facts.head_dim_v = 72;
  check_rule(c, Rule::head_dim_not_multiple_of_span, 160, 128);  // of 80 columns
  c.facts.head_dim_v = 96;
  check_rule(c, Rule::head_dim_not_multiple_of_span, 192, 128);
  c.facts.head_dim_v = 192;
  check_rule(c, Rule::head_dim_v_exceeds_head_dim, 192, 128);
  c = {};
  c.tile_m = 96;
  check_rule(c, Rule::tile_m_not_multiple_of_64, 96, 64);
  c.tile_m = 320;
  check_rule(c, Rule::tile_m_out_of_range, 320, 256);
  c = {};
  c.tile_n = 72;
  check_rule(c, Rule::tile_n_not_multiple_of_16, 72, 16);
  c.tile_n = 272;
  check_rule(c, Rule::tile_n_out_of_range, 272, 256);
  c = {};
  c.stages = 0;
  check_rule(c, Rule::stages_out_of_range, 0, 8);
  c.stages = 9;
  check_rule(c, Rule::stages_out_of_range, 9, 8);
  c = {};
  c.q_stages = 3;
  check_rule(c, Rule::q_stages_out_of_range, 3, 2);
  c = {};
  c.tile_m = 64;
  check_rule(c, Rule::ping_pong_needs_two_warpgroups, 1, 2);
  c = {};
  c.facts.head_dim = c.facts.head_dim_v = 256;
  c.tile_n = 128;
  check_rule(c, Rule::accumulators_exceed_registers, 224, 200);
  c = {};
  c.facts.head_dim = c.facts.head_dim_v = 32;
  c.swizzle = Swizzle::b64;
  c.tile_m = 256;
  c.tile_n = 80;
  check_rule(c, Rule::ok, 0, 0);
  c.facts.head_dim = c.facts.head_dim_v = 16;
  c.swizzle = Swizzle::b32;
  c.tile_m = 192;
  c.tile_n = 160;
  check_rule(c, Rule::ok, 0, 0);
  c = {};
  c.stages = 4;
  check_rule(c, Rule::shared_memory_exceeded, 4 * 2 * 32768 + 32768 + 8 * (6 + 16 + 2), 232448);
}

TEST_CASE("one instruction must fit the registers that a thread has at entry") {
  Config c;
  c.facts.head_dim = c.facts.head_dim_v = 256;
  c.tile_m = 192;
  c.tile_n = 16;
  c.stages = 1;
  check_rule(c, Rule::accumulators_exceed_registers, 140, 128);
  c.facts.head_dim = c.facts.head_dim_v = 208;
  c.swizzle = Swizzle::b32;
  check_rule(c, Rule::instruction_exceeds_registers, 104, 98);
}

TEST_CASE("shared memory: regions follow each other, tiles start on a repeat of the swizzle") {
  for (const Config& c : legal_configs()) {
    const SmemLayout layout = smem_layout(c);
    CHECK(layout.q.offset == 0);
    CHECK(layout.k.offset == layout.q.offset + layout.q.bytes);
    CHECK(layout.v.offset == layout.k.offset + layout.k.bytes);
    CHECK(layout.exchange.offset == layout.v.offset + layout.v.bytes);
    CHECK((layout.exchange.bytes > 0) == c.cta_pair);
    CHECK(layout.barriers.offset == layout.exchange.offset + layout.exchange.bytes);
    CHECK(layout.total_bytes == layout.barriers.offset + layout.barriers.bytes);
    CHECK(barriers(c).raw_v_empty[raw_stages(c)] == static_cast<unsigned>(layout.total_bytes));
    CHECK(layout.total_bytes <= kMaxSmemBytes);
    CHECK(q_slot_bytes(c) % 1024 == 0);
    CHECK(k_slot_bytes(c) % 1024 == 0);
    CHECK(v_slot_bytes(c) % 1024 == 0);
    CHECK(c.tile_n * swizzle_span_bytes(c.swizzle) % swizzle_repeat_bytes(c.swizzle) == 0);
  }
}

TEST_CASE("boxes fill their slots and respect TMA") {
  const auto bytes = [](const TmaBox& box, int element_bytes) {
    int product = element_bytes;
    for (const int extent : box.extents) {
      CHECK(extent >= 1);
      CHECK(extent <= 256);
      product *= extent;
    }
    return product;
  };
  for (const Config& c : legal_configs()) {
    // Where columns are padded a box is one panel, else all of them.
    const int of_qk = is_padded(c.facts) ? qk_columns(c) / span_elements(c) : 1;
    const int of_v = is_padded(c.facts) ? v_columns(c) / span_elements(c) : 1;
    const int of_o = is_padded(c.facts) ? v_columns(c) / o_passes(c) / o_span_elements(c) : 1;
    CHECK(bytes(q_box(c), 2) * of_qk == q_slot_bytes(c));
    CHECK(bytes(k_box(c), 2) * of_qk == k_slot_bytes(c));
    CHECK(bytes(v_box(c), 2) * of_v == v_slot_bytes(c));
    CHECK(bytes(o_box(c), o_element_bytes(c.facts)) * of_o == q_slot_bytes(c) * c.facts.head_dim_v / c.facts.head_dim);
    CHECK(q_box(c).extents[0] * 2 == swizzle_span_bytes(c.swizzle));
    CHECK(o_box(c).extents[0] * o_element_bytes(c.facts) == swizzle_span_bytes(c.swizzle));
    CHECK(o_box(c).extents[0] * o_box(c).extents[2] * of_o * o_passes(c) == v_columns(c));
  }
}

TEST_CASE("registers and threads fit the SM") {
  for (const Config& c : legal_configs()) {
    const RegisterBudget budget = register_budget(c);
    const int groups = consumer_warpgroups(c);
    CAPTURE(c.tile_m);
    CHECK(budget.entry * num_threads(c) * ctas_per_sm(c) <= 65536);
    CHECK((budget.producer + groups * budget.consumer) * kWarpgroupThreads <= budget.entry * num_threads(c));
    // An inc to fewer registers than a warp was dealt is undefined, as is a dec to more.
    const int dealt = 65536 / (num_threads(c) * ctas_per_sm(c)) / 8 * 8;
    CHECK((budget.consumer == budget.entry || budget.consumer >= dealt));
    CHECK((budget.producer == budget.entry || budget.producer <= budget.entry));
    CHECK(budget.producer % 8 == 0);
    CHECK(budget.consumer % 8 == 0);
    CHECK(accumulator_registers(c) <= budget.consumer - kRegistersBesideAccumulators);
    CHECK(ctas_per_sm(c) * (smem_layout(c).total_bytes + 1024) <= 228 * 1024);
  }
}

TEST_CASE("roles cover every warp once") {
  for (const Config& c : legal_configs()) {
    int next = 0;
    for (int i = 0; i < num_roles(c); ++i) {
      CHECK(role(c, i).first_warp == next);
      next += role(c, i).warps;
    }
    CHECK(next * 32 == num_threads(c));
  }
}

}  // namespace
}  // namespace tessera::fmha
