// Shared memory of an attention kernel on Hopper: its regions, its barriers, and the slots that loading warps fill.
#pragma once

#include "spec/fmha_config.h"
#include "spec/fmha_transposed.h"
#include "spec/fmha_warps.h"
#include "spec/fmha_widened.h"
#include "spec/kernel_parts.h"

namespace tessera::fmha {

using common::BarrierRow;
using common::row_at;
using common::SmemRegion;

struct SmemLayout {
  SmemRegion q;          // [q_stages][row group][columns / span][64][span]; O leaves through the same bytes
  SmemRegion k;          // [stages][columns / span][tile_n][span]
  SmemRegion v;          // as k; K-major, and transposed 8-bit: [stages][tile_n / span][columns][span]
  SmemRegion exchange;   // CTA pairs: [consumer warpgroup][tile_n / 8][thread][4], the other CTA's scores, fp32
  SmemRegion raw_k;      // 8-bit keys: [raw_stages][columns / span][tile_n][span], no swizzle; see fmha_widened.h
  SmemRegion raw_v;      // as raw_k; before it is transposed: as k, [raw_v_stages]
  SmemRegion joined;     // mma.sync: [warp][16][2], references and sums, fp32; [warp][vectors][lane], O, fp32
  SmemRegion promoted;   // 8 bits in all: [consumer warpgroup]: [words / 4][thread][4], sums, and [thread][2]
  SmemRegion present;    // two pools: [stages], a bit for each key of K's slot: fmha/pools.cuh
  SmemRegion step_work;  // what the CTA does of a step: fmha/step_work.cuh; where the Config has whole tiles
  SmemRegion passed;     // [kPassedTiles], what the roles are told of a tile: fmha/passed_tiles.cuh
  SmemRegion k_scales;   // keys with scales: [slots of the ring that loads fill][tile_n][scales of a key]
  SmemRegion v_scales;   // as k_scales
  SmemRegion barriers;   // in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

struct Barriers {
  BarrierRow q_full;   // [q_stages][row group]
  BarrierRow q_empty;  // as q_full
  BarrierRow k_full;   // [stages]
  BarrierRow k_empty;
  BarrierRow v_full;
  BarrierRow v_empty;
  BarrierRow o_full;          // as q_full
  BarrierRow o_read;          // [row group]
  BarrierRow exchange_full;   // [consumer warpgroup], CTA pairs only
  BarrierRow exchange_empty;  // as exchange_full
  BarrierRow tail;            // one, of keys that do not lie dense: V's boxes in which a sequence ends are there
  BarrierRow early;           // of K and of V: the first block's boxes, where asks_ahead()
  BarrierRow passed;          // [kPassedTiles], where tiles are passed on
  BarrierRow raw_k_full;      // [raw_stages], 8-bit keys only
  BarrierRow raw_k_empty;
  BarrierRow raw_v_full;  // [raw_v_stages], or as raw_k_full
  BarrierRow raw_v_empty;
  BarrierRow raw_k_ready;  // [raw_stages], of raw tiles' blocks one after the other: widening warps have seen them come
  BarrierRow raw_v_ready;
  int count = 0;  // of all
};
// The first one at `offset` of the shared memory at `smem`.
TESSERA_HD constexpr Barriers barriers_from(const Config& c, int offset, unsigned smem) {
  const int groups = row_groups(c);
  const int num_q = c.q_stages * groups;
  const int exchanging = c.cta_pair ? groups : 0;
  const int raw = raw_stages(c), raw_v = raw_v_stages(c);
  const bool has_stores = has_storing_warp(c);
  common::BarrierCursor cursor{{smem, offset, 0}};
  Barriers b;
  b.q_full = cursor.take(num_q);
  b.q_empty = cursor.take(num_q);
  b.k_full = cursor.take(c.stages);
  b.k_empty = cursor.take(c.stages);
  b.v_full = cursor.take(c.stages);
  b.v_empty = cursor.take(c.stages);
  b.o_full = cursor.take(has_stores ? num_q : 0);
  b.o_read = cursor.take(has_stores ? groups : 0);
  b.exchange_full = cursor.take(exchanging);
  b.exchange_empty = cursor.take(exchanging);
  b.tail = cursor.take(has_placed_keys(c) ? 1 : 0);
  b.early = cursor.take(asks_ahead(c) ? 2 : 0);
  b.passed = cursor.take(passes_tiles(c) ? kPassedTiles : 0);
  b.raw_k_full = cursor.take(raw);
  b.raw_k_empty = cursor.take(raw);
  b.raw_v_full = cursor.take(raw_v);
  b.raw_v_empty = cursor.take(raw_v);
  b.raw_k_ready = cursor.take(has_raw_tiles(c) ? raw : 0);
  b.raw_v_ready = cursor.take(has_raw_tiles(c) ? raw : 0);
  b.count = cursor.next.index;
  return b;
}

TESSERA_HD constexpr int q_slot_bytes(const Config& c) {
  return rows_of_box(c) * qk_columns(c) * dtype_bytes(c.facts.dtype);
}
// Of a key, as consumers read it.
TESSERA_HD constexpr int slot_row_bytes(const Config& c, int columns) {
  return has_widening_warps(c) ? columns * dtype_bytes(c.facts.dtype) : key_row_bytes(c.facts, columns);
}
TESSERA_HD constexpr int k_slot_bytes(const Config& c) { return c.tile_n * slot_row_bytes(c, qk_columns(c)); }
TESSERA_HD constexpr int v_slot_bytes(const Config& c) { return c.tile_n * slot_row_bytes(c, v_columns(c)); }
// A bit for each key of a block, in whole 16 bytes.
TESSERA_HD constexpr int present_slot_bytes(const Config& c) {
  return has_pools(c) ? static_cast<int>(round_up(c.tile_n, 128)) / 8 : 0;
}
// The scores of a warpgroup's block, fp32.
TESSERA_HD constexpr int exchange_slot_bytes(const Config& c) {
  return c.cta_pair ? kRowsPerWarpgroup * c.tile_n * 4 : 0;
}

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  const int groups = row_groups(c);
  const int num_q = c.q_stages * groups;
  layout.q = {"q", 0, num_q * q_slot_bytes(c)};
  layout.k = {"k", end_of(layout.q), c.stages * k_slot_bytes(c)};
  layout.v = {"v", end_of(layout.k), c.stages * v_slot_bytes(c)};
  layout.exchange = {"exchange", end_of(layout.v), groups * exchange_slot_bytes(c)};
  layout.raw_k = {"raw_k", end_of(layout.exchange), raw_stages(c) * raw_k_slot_bytes(c)};
  layout.raw_v = {"raw_v", end_of(layout.raw_k), raw_v_stages(c) * raw_v_slot_bytes(c)};
  const int of_raw = has_raw_tiles(c) ? sums_bytes_of_raw(c) : 0;
  layout.joined = {"joined", end_of(layout.raw_v), joined_sums_bytes(c) + joined_rows_bytes(c) + of_raw};
  layout.promoted = {"promoted", end_of(layout.joined), groups * promoted_slot_bytes(c)};
  layout.present = {"present", end_of(layout.promoted), c.stages * present_slot_bytes(c)};
  layout.step_work = {"step_work", end_of(layout.present), has_whole_tiles(c) ? kStepWorkBytes : 0};
  layout.passed = {"passed", end_of(layout.step_work), passes_tiles(c) ? kPassedTiles * kPassedTileBytes : 0};
  layout.k_scales = {"k_scales", end_of(layout.passed), load_stages(c, false) * scale_slot_bytes(c, qk_columns(c))};
  layout.v_scales = {"v_scales", end_of(layout.k_scales), load_stages(c, true) * scale_slot_bytes(c, v_columns(c))};
  layout.barriers = {"barriers", end_of(layout.v_scales), 8 * barriers_from(c, 0, 0).count};
  layout.total_bytes = end_of(layout.barriers);
  return layout;
}

// Addresses, where `smem` is that of the CTA's shared memory.
TESSERA_HD constexpr Barriers barriers(const Config& c, unsigned smem = 0) {
  return barriers_from(c, smem_layout(c).barriers.offset, smem);
}

// What loading warps fill: bytes from the begin of shared memory, and their barriers.
struct LoadRing {
  int offset = 0;
  int slot_bytes = 0;
  BarrierRow full;
  BarrierRow empty;
};
// Where a slot's scales begin.
TESSERA_HD constexpr int scales_offset(const Config& c, bool is_v) {
  const SmemLayout layout = smem_layout(c);
  return is_v ? layout.v_scales.offset : layout.k_scales.offset;
}
TESSERA_HD constexpr LoadRing load_ring(const Config& c, bool is_v, unsigned smem = 0) {
  const SmemLayout layout = smem_layout(c);
  const Barriers b = barriers(c, smem);
  if (!has_widening_warps(c) && !(transposes_v(c) && is_v)) {
    return is_v ? LoadRing{layout.v.offset, v_slot_bytes(c), b.v_full, b.v_empty}
                : LoadRing{layout.k.offset, k_slot_bytes(c), b.k_full, b.k_empty};
  }
  return is_v ? LoadRing{layout.raw_v.offset, raw_v_slot_bytes(c), b.raw_v_full, b.raw_v_empty}
              : LoadRing{layout.raw_k.offset, raw_k_slot_bytes(c), b.raw_k_full, b.raw_k_empty};
}

}  // namespace tessera::fmha
