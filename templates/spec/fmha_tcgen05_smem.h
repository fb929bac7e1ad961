// Shared memory of attention on tcgen05: regions and barriers. Who hands what on to whom: templates/fmha_tcgen05.
#pragma once

#include "spec/fmha_tcgen05_config.h"
#include "spec/kernel_parts.h"

namespace tessera::fmha_tcgen05 {

using common::SmemRegion;

struct SmemLayout {
  SmemRegion q;         // [Q tile][head_dim / span][rows][span]; O leaves through the same bytes
  SmemRegion k;         // [stages][head_dim / span][keys][span]
  SmemRegion v;         // [stages][product][columns / span][keys][span]; K-major: [keys / span][columns][span]
  SmemRegion p;         // [Q tile][tile_n / span][rows][span], p_path smem only
  SmemRegion factors;   // [S buffer][lane], fp32: what the rows of O are multiplied with
  SmemRegion last;      // [Q tile][lane], fp32: likewise at the end
  SmemRegion halves;    // [2][Q tile][lane], fp32: maxima and sums that folded lanes exchange
  SmemRegion tmem;      // the address that tcgen05.alloc writes
  SmemRegion barriers;  // 8 bytes each, in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

// Byte offsets of the mbarriers.
struct Barriers {
  int q_full = 0;     // [Q tile]
  int q_empty = 0;    // likewise
  int o_staged = 0;   // likewise
  int o_done = 0;     // likewise: a step's O += P V is complete
  int last_full = 0;  // likewise: the final factors are there
  int o_read = 0;     // one: a pass of O has left
  int k_full = 0;     // [stages]
  int k_empty = 0;
  int v_full = 0;
  int v_empty = 0;
  int s_full = 0;        // [S buffer]
  int p_full = 0;        // likewise: P, or its first part, is there and O may be added to
  int p_rest = 0;        // likewise: the second part
  int factors_full = 0;  // likewise
  int tail = 0;          // one, of keys that do not lie dense: the boxes in which a sequence ends are there
  int end = 0;
};

TESSERA_HD constexpr int num_barriers(const Config& c) {
  return 5 * q_tiles(c) + 1 + 4 * c.stages + 4 * kNumBuffers + (c.facts.kv_layout == KvLayout::dense ? 0 : 1);
}

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  const int lanes = 128 * 4;
  // Every tile starts on a repeat of the widest pattern; small head_dims have slots below it.
  const auto aligned = [](int offset) { return static_cast<int>(round_up(offset, 1024)); };
  layout.q = {"q", 0, q_tiles(c) * q_slot_bytes(c)};
  layout.k = {"k", aligned(end_of(layout.q)), c.stages * k_slot_bytes(c)};
  layout.v = {"v", aligned(end_of(layout.k)), c.stages * v_slot_bytes(c)};
  layout.p = {"p", aligned(end_of(layout.v)), q_tiles(c) * p_slot_bytes(c)};
  layout.factors = {"factors", end_of(layout.p), kNumBuffers * lanes};
  layout.last = {"last_factors", end_of(layout.factors), q_tiles(c) * lanes};
  layout.halves = {"halves", end_of(layout.last), is_folded(c) ? 2 * q_tiles(c) * lanes : 0};
  layout.tmem = {"tmem_address", end_of(layout.halves), 8};
  layout.barriers = {"barriers", end_of(layout.tmem), 8 * num_barriers(c)};
  layout.total_bytes = end_of(layout.barriers);
  return layout;
}

TESSERA_HD constexpr Barriers barriers(const Config& c) {
  const int tiles = 8 * q_tiles(c);
  Barriers b;
  b.q_full = smem_layout(c).barriers.offset;
  b.q_empty = b.q_full + tiles;
  b.o_staged = b.q_empty + tiles;
  b.o_done = b.o_staged + tiles;
  b.last_full = b.o_done + tiles;
  b.o_read = b.last_full + tiles;
  b.k_full = b.o_read + 8;
  b.k_empty = b.k_full + 8 * c.stages;
  b.v_full = b.k_empty + 8 * c.stages;
  b.v_empty = b.v_full + 8 * c.stages;
  b.s_full = b.v_empty + 8 * c.stages;
  b.p_full = b.s_full + 8 * kNumBuffers;
  b.p_rest = b.p_full + 8 * kNumBuffers;
  b.factors_full = b.p_rest + 8 * kNumBuffers;
  b.tail = b.factors_full + 8 * kNumBuffers;
  b.end = b.tail + (c.facts.kv_layout == KvLayout::dense ? 0 : 8);
  return b;
}

}  // namespace tessera::fmha_tcgen05
