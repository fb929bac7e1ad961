// Attention on Hopper over 8-bit keys and values (kv_dtype e4m3): what its CTAs have besides.
//
// Tensor cores multiply them as 16-bit numbers, which hold each e4m3 exactly. Loaded tiles come to a ring of raw slots,
// raw_k and raw_v, and the warpgroup that produces otherwise widens them into the slots that consumers read: two warps
// (widen_k) those of K, two (widen_v) those of V. Consumers do not know: the barriers k_full and k_empty and their like
// stand between them and widening warps, raw_k_full and raw_k_empty between these and the loading warps, which stand
// behind the consumers: load_k, which loads Q too, and load_v. O leaves from registers: there is no map of it, and
// void* o_rows stands where ragged queries have it.
//
// Tiles of at most eight rows in a step of prefills and single queries are another matter (has_raw_tiles): consumers
// read their blocks from the raw slots themselves, by mma.sync, and widening warps only tell them that a block has come
// (raw_k_ready, raw_v_ready): a ring of its own, so that consumers miss no phase of blocks that are widened. A raw slot
// goes back by four arrivals: those of one warpgroup's warps, or of two widening warps that count twice.
//
// k_descale and v_descale, fp32 [batch, heads_kv] or null (1), multiply K and V: the one the scale of the scores, the
// other a finished row of O. Behind softmax_scale, or the parameters of pages, the entry has
//   float* k_descale, v_descale
//   long long k_descale_stride_batch, k_descale_stride_head, the same of v
// and then the strides of o, unless keys are split in num_splits parts.
#pragma once

#include "spec/fmha_config.h"

namespace tessera::fmha {

inline constexpr int kWideningWarps = 2;  // of K, of V
inline constexpr int kMaxRawStages = 8;

TESSERA_HD constexpr int raw_k_slot_bytes(const Config& c) {
  return has_widening_warps(c) ? c.tile_n * key_row_bytes(c.facts, qk_columns(c)) : 0;
}
TESSERA_HD constexpr int raw_v_slot_bytes(const Config& c) {
  return has_widening_warps(c) || transposes_v(c) ? c.tile_n * key_row_bytes(c.facts, v_columns(c)) : 0;
}
// Of a block of K or V: [tile_n][scales of a key].
TESSERA_HD constexpr int scale_slot_bytes(const Config& c, int columns) {
  return c.tile_n * key_scale_bytes(c.facts, columns);
}

// What warps that share a raw tile's blocks join at its end: references and sums of their rows, here; O in Q's slot.
TESSERA_HD constexpr int sums_bytes_of_raw(const Config& c) {
  return consumer_warpgroups(c) * kConsumerWarps * kRowsOfTransposed * 8;
}

// Shared memory beside raw slots.
TESSERA_HD constexpr int bytes_beside_raw(const Config& c) {
  const int columns = qk_columns(c) + v_columns(c);
  const int slots = c.q_stages * c.tile_m * qk_columns(c) + c.stages * c.tile_n * columns;
  const int barriers = 3 * c.q_stages * consumer_warpgroups(c) + 4 * c.stages + consumer_warpgroups(c) + 1;
  const int step_work = has_whole_tiles(c) ? kStepWorkBytes : 0;
  const int passed = passes_tiles(c) ? kPassedTiles * (kPassedTileBytes + 8) : 0;
  const int joined = has_raw_tiles(c) ? sums_bytes_of_raw(c) : 0;
  return slots * dtype_bytes(c.facts.dtype) + step_work + passed + joined +
         8 * (barriers + (has_raw_tiles(c) ? 6 : 4) * kMaxRawStages);
}
TESSERA_HD constexpr int raw_stages_within(const Config& c, int bytes) {
  const int slot = raw_k_slot_bytes(c) + raw_v_slot_bytes(c) + scale_slot_bytes(c, qk_columns(c)) +
                   scale_slot_bytes(c, v_columns(c));
  int stages = slot == 0 ? 0 : (bytes - bytes_beside_raw(c)) / slot;
  if (has_raw_tiles(c)) stages -= stages % consumer_warpgroups(c);  // which take raw tiles' blocks in turns
  return stages > kMaxRawStages ? kMaxRawStages : stages;
}

// Registers of a thread. Each quarter of an SM has 512 for a warp's lane and a share of the warps, which counts as the
// largest: what the assembler takes at entry. Loading warps keep that; consumers get what widening warps leave.
// With 48 some kernels spill, but two CTAs on an SM leave no more. Where the warps find their part of dealt keys
// themselves 56 are too few; with 64 consumers have as many.
TESSERA_HD constexpr int widening_registers(const Config& c, int ctas) {
  const bool finds_part = is_dealt(c) && !has_whole_tiles(c);
  return ctas == 2 ? 48 : consumer_warpgroups(c) == 1 ? 88 : finds_part ? 64 : 56;
}
TESSERA_HD constexpr int entry_registers_of_widened(const Config& c, int ctas) {
  const int warps_of_quarter = static_cast<int>(ceil_div(ctas * num_threads(c) / 32, 4));
  const int registers = 512 / warps_of_quarter / 8 * 8;
  return registers > 248 ? 248 : registers;
}
TESSERA_HD constexpr int consumer_registers_of_widened(const Config& c, int ctas) {
  const int entry = entry_registers_of_widened(c, ctas);
  const int registers = entry + (entry - widening_registers(c, ctas)) / consumer_warpgroups(c) / 8 * 8;
  return registers > 240 ? 240 : registers;
}

// Two CTAs on an SM: one converts and computes while the other waits.
TESSERA_HD constexpr bool fits_two_widened(const Config& c) {
  const int accumulators = c.tile_n / 2 + c.tile_n / 4 + v_columns(c) / 2;
  const int instruction = (c.tile_n > v_columns(c) ? c.tile_n : v_columns(c)) / 2;
  return consumer_warpgroups(c) == 1 && raw_stages_within(c, kMaxSmemBytesOfTwo) >= 2 &&
         accumulators + kRegistersBesideAccumulators <= consumer_registers_of_widened(c, 2) &&
         instruction + kRegistersBesideInstruction <= entry_registers_of_widened(c, 2);
}

// As many as there is room for.
TESSERA_HD constexpr int raw_stages(const Config& c) {
  if (!has_widening_warps(c)) return 0;
  const int stages = raw_stages_within(c, fits_two_widened(c) ? kMaxSmemBytesOfTwo : kMaxSmemBytes);
  return stages < 1 ? 1 : stages;
}

// Where V is transposed: whether sums that were promoted wait in the tile's own rows of o, as f16, and leave shared
// memory to slots.
TESSERA_HD constexpr bool keeps_sums_in_o(const Config& c) {
  return c.promote_every > 0 && keeps_f16_sums(c.tile_m, v_columns(c)) && !is_split(c) && !passes_tiles(c) &&
         o_element_bytes(c.facts) == 2;
}
// Slots of V as it was loaded where it is transposed: as many as of K. Beside the sums of 256 columns in shared memory
// there is room for two slots of what consumers read if there is one of these, which is free again as soon as its block
// is transposed.
TESSERA_HD constexpr int transposing_stages(const Config& c) {
  return c.promote_every > 0 && c.tile_m * v_columns(c) >= 128 * 256 && !keeps_sums_in_o(c) ? 1 : c.stages;
}

// Slots of the rings that loading warps fill.
TESSERA_HD constexpr int load_stages(const Config& c, bool is_v) {
  if (has_widening_warps(c)) return raw_stages(c);
  return is_v && transposes_v(c) ? transposing_stages(c) : c.stages;
}

// Whether one copy of the code loads K and V, which are alike: where compiles are the longest, by mma.sync keys that do
// not lie dense, by wgmma dealt ones and those of ragged queries with 8 bits.
TESSERA_HD constexpr bool loads_alike(const Config& c) {
  const bool has_others = has_placed_keys(c) || has_descales(c.facts);  // than the loads of dense keys of 16 bits
  const bool is_long = owns_rows(c) ? has_placed_keys(c) : has_others && (is_dealt(c) || has_descales(c.facts));
  return is_long && (owns_rows(c) || passes_tiles(c)) && !has_pools(c) && c.facts.head_dim == c.facts.head_dim_v &&
         load_stages(c, false) == load_stages(c, true);
}

}  // namespace tessera::fmha
