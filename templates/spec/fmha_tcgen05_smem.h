// Shared memory of attention on tcgen05: regions and barriers. Who hands what on to whom: templates/fmha_tcgen05.
//
// 8-bit keys under 16-bit queries come to rings of raw slots, raw_k and raw_v, as TMA or cp.async brings them and
// without a swizzle. Four warps more (widen_kv) write each block to a slot of k or of v. The issuer does not know: the
// barriers k_full, k_empty and their like stand between it and the widening warps, raw_k_full and its like between
// these and the loading warp. There are as many raw slots as there is room for.
#pragma once

#include "spec/fmha_tcgen05_config.h"
#include "spec/kernel_parts.h"

namespace tessera::fmha_tcgen05 {

using common::barrier_at;
using common::BarrierRow;
using common::row_at;
using common::SmemRegion;

struct SmemLayout {
  SmemRegion q;         // [Q tile][head_dim / span][rows][span]; O leaves through the same bytes
  SmemRegion k;         // [stages][head_dim / span][keys][span]
  SmemRegion v;         // [stages][product][columns / span][keys][span]; K-major: [keys / span][columns][span]
  SmemRegion p;         // [Q tile][tile_n / span][rows][span], p_path smem only
  SmemRegion raw_k;     // [raw_stages][head_dim / span][keys][span], no swizzle: 8-bit keys only
  SmemRegion raw_v;     // likewise
  SmemRegion k_scales;  // [raw_stages][keys][scales of a key]: keys with scales only
  SmemRegion v_scales;  // likewise
  SmemRegion factors;   // [step slot][lane], fp32: what the rows of O are multiplied with
  SmemRegion last;      // [Q tile][lane], fp32: likewise at the end
  SmemRegion halves;    // [2][Q tile][lane], fp32: maxima and sums that folded lanes exchange
  SmemRegion tmem;      // the address that tcgen05.alloc writes
  SmemRegion barriers;  // in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

struct Barriers {
  BarrierRow q_full;     // [Q tile]
  BarrierRow q_empty;    // likewise
  BarrierRow o_staged;   // likewise
  BarrierRow o_done;     // likewise: a step's O += P V is complete
  BarrierRow last_full;  // likewise: the final factors are there
  BarrierRow o_read;     // one: a pass of O has left
  BarrierRow k_full;     // [stages]
  BarrierRow k_empty;
  BarrierRow v_full;
  BarrierRow v_empty;
  BarrierRow s_full;        // [step slot]
  BarrierRow p_full;        // likewise: P, or its first part, is there and O may be added to
  BarrierRow p_rest;        // likewise: the second part
  BarrierRow factors_full;  // likewise
  BarrierRow raw_k_full;    // [raw_stages], 8-bit keys only
  BarrierRow raw_k_empty;
  BarrierRow raw_v_full;
  BarrierRow raw_v_empty;
  BarrierRow tail;  // one, of keys that do not lie dense: the boxes in which a sequence ends are there
  int count = 0;    // of all
};

inline constexpr int kWideningWarps = 4;
inline constexpr int kMaxRawStages = 8;

TESSERA_HD constexpr int raw_k_slot_bytes(const Config& c) {
  return widens_keys(c.facts) ? c.tile_n * key_row_bytes(c.facts, qk_columns(c)) : 0;
}
TESSERA_HD constexpr int raw_v_slot_bytes(const Config& c) {
  return widens_keys(c.facts) && !is_latent(c) ? c.tile_n * key_row_bytes(c.facts, v_columns(c)) : 0;
}
TESSERA_HD constexpr int scale_slot_bytes(const Config& c, int columns) {
  return c.tile_n * key_scale_bytes(c.facts, columns);
}
// What else there is, with barriers for the most raw slots.
TESSERA_HD constexpr int bytes_beside_raw(const Config& c) {
  const int barriers = 5 * q_tiles(c) + 1 + 4 * c.stages + 4 * step_slots(c) + 4 * kMaxRawStages + 1;
  const int tiles = q_tiles(c) * (q_slot_bytes(c) + p_slot_bytes(c)) + c.stages * (k_slot_bytes(c) + v_slot_bytes(c));
  return tiles + (step_slots(c) + q_tiles(c)) * 128 * 4 + 8 + 8 * barriers;
}
TESSERA_HD constexpr int raw_stages(const Config& c) {
  if (!widens_keys(c.facts)) return 0;
  if (is_latent(c)) return c.stages;  // in the slots themselves
  const int slots = raw_k_slot_bytes(c) + raw_v_slot_bytes(c) + scale_slot_bytes(c, qk_columns(c)) +
                    scale_slot_bytes(c, v_columns(c));
  const int stages = slots <= 0 ? 0 : (kMaxSmemBytes - bytes_beside_raw(c)) / slots;
  return stages < 1 ? 1 : stages > kMaxRawStages ? kMaxRawStages : stages;
}
// Slots of the rings that the loading warp fills.
TESSERA_HD constexpr int load_stages(const Config& c) { return widens_keys(c.facts) ? raw_stages(c) : c.stages; }

// The first one at `offset` of the shared memory at `smem`.
TESSERA_HD constexpr Barriers barriers_from(const Config& c, int offset, unsigned smem) {
  common::BarrierCursor cursor{{smem, offset, 0}};
  Barriers b;
  b.q_full = cursor.take(q_tiles(c));
  b.q_empty = cursor.take(q_tiles(c));
  b.o_staged = cursor.take(q_tiles(c));
  b.o_done = cursor.take(q_tiles(c));
  b.last_full = cursor.take(q_tiles(c));
  b.o_read = cursor.take(1);
  b.k_full = cursor.take(c.stages);
  b.k_empty = cursor.take(c.stages);
  b.v_full = cursor.take(c.stages);
  b.v_empty = cursor.take(c.stages);
  b.s_full = cursor.take(step_slots(c));
  b.p_full = cursor.take(step_slots(c));
  b.p_rest = cursor.take(step_slots(c));
  b.factors_full = cursor.take(step_slots(c));
  b.raw_k_full = cursor.take(raw_stages(c));
  b.raw_k_empty = cursor.take(is_latent(c) ? 0 : raw_stages(c));
  b.raw_v_full = cursor.take(is_latent(c) ? 0 : raw_stages(c));
  b.raw_v_empty = cursor.take(is_latent(c) ? 0 : raw_stages(c));
  b.tail = cursor.take(c.facts.kv_layout == KvLayout::dense ? 0 : 1);
  b.count = cursor.next.index;
  return b;
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
  layout.raw_k = {"raw_k", end_of(layout.p), is_latent(c) ? 0 : raw_stages(c) * raw_k_slot_bytes(c)};
  layout.raw_v = {"raw_v", end_of(layout.raw_k), raw_stages(c) * raw_v_slot_bytes(c)};
  layout.k_scales = {"k_scales", end_of(layout.raw_v), raw_stages(c) * scale_slot_bytes(c, qk_columns(c))};
  layout.v_scales = {"v_scales", end_of(layout.k_scales), raw_stages(c) * scale_slot_bytes(c, v_columns(c))};
  layout.factors = {"factors", end_of(layout.v_scales), step_slots(c) * lanes};
  layout.last = {"last_factors", end_of(layout.factors), q_tiles(c) * lanes};
  layout.halves = {"halves", end_of(layout.last), is_folded(c) && !is_latent(c) ? 2 * q_tiles(c) * lanes : 0};
  layout.tmem = {"tmem_address", end_of(layout.halves), 8};
  layout.barriers = {"barriers", end_of(layout.tmem), 8 * barriers_from(c, 0, 0).count};
  layout.total_bytes = end_of(layout.barriers);
  return layout;
}

// Addresses, where `smem` is that of the CTA's shared memory.
TESSERA_HD constexpr Barriers barriers(const Config& c, unsigned smem = 0) {
  return barriers_from(c, smem_layout(c).barriers.offset, smem);
}

// A ring that the loading warp fills: slots of `slot_bytes` from `offset` on.
struct LoadRing {
  int offset = 0;
  int slot_bytes = 0;  // from one to the next
  int bytes = 0;       // of a load
  BarrierRow full;
  BarrierRow empty;
};
TESSERA_HD constexpr LoadRing load_ring(const Config& c, bool is_v) {
  const SmemLayout layout = smem_layout(c);
  const Barriers b = barriers(c);
  const auto ring = [](int offset, int slot_bytes, BarrierRow full, BarrierRow empty) {
    return LoadRing{offset, slot_bytes, slot_bytes, full, empty};
  };
  if (widens_keys(c.facts) && is_latent(c) && !is_v) {
    const int raw = raw_k_slot_bytes(c);
    return {layout.k.offset + k_slot_bytes(c) - raw, k_slot_bytes(c), raw, b.raw_k_full, b.k_empty};
  }
  if (widens_keys(c.facts)) {
    return is_v ? ring(layout.raw_v.offset, raw_v_slot_bytes(c), b.raw_v_full, b.raw_v_empty)
                : ring(layout.raw_k.offset, raw_k_slot_bytes(c), b.raw_k_full, b.raw_k_empty);
  }
  return is_v ? ring(layout.v.offset, v_slot_bytes(c), b.v_full, b.v_empty)
              : ring(layout.k.offset, k_slot_bytes(c), b.k_full, b.k_empty);
}

// Where those rings' slots have their scales.
TESSERA_HD constexpr int scales_offset(const Config& c, bool is_v) {
  const SmemLayout layout = smem_layout(c);
  return is_v ? layout.v_scales.offset : layout.k_scales.offset;
}

}  // namespace tessera::fmha_tcgen05
