// A Config of attention by wgmma or mma.sync, why one may be illegal, and the extents that follow from one. What all of
// it is for: spec/fmha.h.
#pragma once

#include "spec/attention_facts.h"
#include "spec/limits.h"
#include "tessera/spec/types.h"

namespace tessera::fmha {

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  AttentionFacts facts{};
  int tile_m = 128;  // rows of a CTA: 64 for each consumer warpgroup, or 16, or 128; a row is a query of a head
  int tile_n = 128;  // keys of a step
  int stages = 2;    // slots of the K ring and of the V ring
  int q_stages = 1;  // slots for Q: with 2 the next tile's Q is loaded while this one is worked on
  Swizzle swizzle = Swizzle::b128;
  MmaKind mma_kind = MmaKind::wgmma_f16;
  KvCopy kv_copy = KvCopy::tma;     // of keys that do not lie dense
  bool ping_pong = true;            // consumer warpgroups take turns at the tensor cores
  bool cta_pair = false;            // two CTAs share a tile, each with half of head_dim and head_dim_v
  int pack_gqa = 1;                 // query heads of a key head whose rows share a tile; 1: a tile has rows of one head
  SplitKv split_kv = SplitKv::off;  // CTAs share a tile's keys, a second kernel merges
  int promote_every = 0;            // 8 bits: keys after which sums become fp32, a multiple of tile_n; 0: never
  int sm_smem_bytes = kSmemBytesOfSm;  // that a multiprocessor has

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// Limits that the rules use.
inline constexpr int kMaxStages = 8;
inline constexpr int kRowsPerWarpgroup = 64;  // wgmma M
inline constexpr int kRowsOfWarpMma = 16;     // mma.sync M
inline constexpr int kRowsOfTransposed = 8;   // mma.sync N
inline constexpr int kConsumerWarps = 4;      // of a warpgroup
inline constexpr int kMaxPackedHeads = 1 << 16;
// Addresses, statistics and loop state beside the accumulators; with fewer ptxas spills.
inline constexpr int kRegistersBesideAccumulators = 32;
// What ptxas asks for beside one instruction's accumulators; it counts from the registers at entry.
inline constexpr int kRegistersBesideInstruction = 30;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_16_bit,                // bytes of the type; 2: neither bf16, f16 nor e4m3
  head_dim_not_multiple_of_8,      // head_dim or head_dim_v; 8 (16 bytes, TMA); 32 in a pair, or of 8 bits (wgmma K)
  head_dim_out_of_range,           // head_dim or head_dim_v; 256 for each CTA (wgmma N)
  head_dim_v_exceeds_head_dim,     // head_dim_v; head_dim (O leaves through Q's slot)
  head_dim_not_multiple_of_span,   // bytes of a CTA's columns of Q or V; bytes of the swizzle span
  tile_m_not_multiple_of_64,       // tile_m; 64 (wgmma M)
  tile_m_out_of_range,             // tile_m; 256
  tile_m_of_warps,                 // tile_m; 16 (mma.sync M): or 8 (N), 64, 128, 256
  facts_of_warps,                  // CTA pairs; with tile_m 16 8 bits, pools, K-major V, padded columns; 0
  facts_of_eight_rows,             // 1 for each that tiles of 8 rows have no code for: spec/fmha_warps.h; 0
  tile_n_not_multiple_of_16,       // tile_n; 16, of 8 bits 32 (wgmma K of P V), shared by four warps 64
  tile_n_out_of_range,             // tile_n; 256 (wgmma N of Q K^T, TMA box)
  stages_out_of_range,             // stages; 8
  q_stages_out_of_range,           // q_stages; 2
  ping_pong_needs_two_warpgroups,  // consumer warpgroups; 2
  accumulators_exceed_registers,   // registers for S, P and O per thread; those that the budget leaves
  instruction_exceeds_registers,   // accumulators of one wgmma per thread; those that the launch bounds leave
  shared_memory_exceeded,          // bytes; 232,448, on sm_120 and sm_121 101,376
  pack_gqa_out_of_range,           // pack_gqa; 65,536
  tile_n_not_multiple_of_span,     // bytes of tile_n keys of a K-major V; bytes of the swizzle span
  k_major_v_of_used_keys,          // bytes of a key; 16 (TMA starts at multiples of it along keys)
  k_major_v_of_placed_keys,        // 1 for each of: pages or ragged keys, 8-bit keys, 8 bits in all; 0
  split_size_not_of_tiles,         // split_size; tile_n
  promotion_not_of_tiles,          // promote_every; tile_n
  promotion_of_16_bit,             // promote_every; 0
  page_size_unknown,               // page_size; 256 (kPageSizes)
  page_size_without_pages,         // page_size; 0
  pages_without_lengths,           // 0; 1 (seqused k or qk: where a sequence ends in its last page)
  kv_copy_of_dense_keys,           // 1; 0 (dense keys come by TMA)
  widened_keys_of_cta_pairs,       // head_dim; 256 (no registers and room beside the exchange); 8 bits in all too
  page_too_small_for_tma,          // page_size; 8 (rows of a swizzle's pattern)
  placed_keys_need_dense_facts,    // 1: two pools beside pages or ragged keys; 0
  pools_need_dense_facts,          // 1 for each of: used lengths, window, split keys, K-major V, un-normalised O; 0
  pools_need_cp_async,             // 1; 0 (rows of a list come by cp.async)
  facts_of_scaled_keys,            // 1 for each of: dtype not bf16, keys not in pages, other head_dims; 0
  scaled_keys_need_tma,            // 1; 0 (scales come beside boxes of keys)
};

// For requires clauses and template arguments: with C.facts there, NVRTC takes two names of one type for two types.
TESSERA_HD constexpr bool has_pools(const Config& c) { return tessera::has_pools(c.facts); }
// Whether products are mma.sync's, of fragments in registers. See spec/fmha_warps.h.
TESSERA_HD constexpr bool uses_mma_sync(const Config& c) { return c.mma_kind == MmaKind::mma_f16; }
// Of these, whether a tile is 16 or 8 rows, few queries, and the consumer warps share each block's keys; or each warp
// has rows of its own, and all of a block's keys.
TESSERA_HD constexpr bool shares_blocks(const Config& c) { return uses_mma_sync(c) && c.tile_m < kRowsPerWarpgroup; }
TESSERA_HD constexpr bool owns_rows(const Config& c) { return uses_mma_sync(c) && !shares_blocks(c); }
// Whether a tile is 8 rows, which are the columns of products.
TESSERA_HD constexpr bool has_eight_rows(const Config& c) { return shares_blocks(c) && c.tile_m == kRowsOfTransposed; }
// Rows of one box of Q.
TESSERA_HD constexpr int rows_of_box(const Config& c) {
  return has_eight_rows(c) ? kRowsOfTransposed : shares_blocks(c) ? kRowsOfWarpMma : kRowsPerWarpgroup;
}
// Whether warps transpose V of 8 bits for wgmma. Fragments of mma.sync take it as it lies.
TESSERA_HD constexpr bool transposes_v(const Config& c) { return is_8_bit(c.facts) && !uses_mma_sync(c); }
// Whether warps of their own widen 8-bit keys, or consumers do, in registers.
TESSERA_HD constexpr bool has_widening_warps(const Config& c) { return widens_keys(c.facts) && !uses_mma_sync(c); }

// Whether whole warps load keys, since these do not lie dense: in pages, ragged, or in two pools.
TESSERA_HD constexpr bool has_placed_keys(const Config& c) {
  return c.facts.kv_layout != KvLayout::dense || has_pools(c);
}
// Whether heads of a query share a tile's rows.
TESSERA_HD constexpr bool is_packed(const Config& c) { return c.pack_gqa > 1 || has_pools(c); }
// Rows that a query takes. With pools each query has keys of its own, so a tile is one query or a part of one, and rows
// behind its last head are none: TMA loads zeros for them and stores nothing.
TESSERA_HD constexpr int padded_heads(const Config& c) {
  if (!has_pools(c) || c.tile_m <= 0) return c.pack_gqa;
  return static_cast<int>(round_up(static_cast<long long>(c.pack_gqa), c.tile_m));
}

// Whether a tile's keys may belong to several CTAs. O leaves from registers then.
TESSERA_HD constexpr bool is_split(const Config& c) { return c.split_kv != SplitKv::off; }
// Whether CTAs have ranges of all tiles' key blocks, which need not end where a tile does: fmha/dealer.cuh.
TESSERA_HD constexpr bool is_dealt(const Config& c) { return c.split_kv == SplitKv::dealt; }
// Whether a CTA lets the merge begin two blocks before its first tile's keys end, not before they begin: CTAs of the
// merge that wait take places from CTAs of the next launch, which asks for its keys ahead. 8-bit keys: when the first
// block is there, and of launches of so few CTAs that each has a multiprocessor of its own; of more it took up to 11 %
// longer (H200, bench/results/fmha-few-queries.md).
TESSERA_HD constexpr bool launches_merge_late(const Config& c) { return has_eight_rows(c) && !is_dealt(c); }
inline constexpr unsigned kMostCtasOfLate = 132;  // the multiprocessors of an H200
// Whether a step's long prefills are left whole beside keys that are dealt: fmha/step_work.cuh.
TESSERA_HD constexpr bool has_whole_tiles(const Config& c) {
  return is_dealt(c) && is_ragged(c.facts) && !has_split_size(c.facts);
}
inline constexpr int kMostWholeSequences = 64;
inline constexpr int kStepWorkBytes = 4 * (11 + 2 * kMostWholeSequences) + 4;
inline constexpr int kMostCutCtas = 1024;
// Rows of a cut between them that a CTA merges, where most cuts lie in tiles of few rows: a warp for each row of the
// largest tile, 4,208 CTAs in all, came in waves on an H200.
inline constexpr int kMergeRowsOfCut = 32;
inline constexpr int kCutWords = 8;  // of a cut between ranges of dealt keys, in the workspace: fmha/step_work.cuh
// Of P, and of V as the second product takes it. What is widened from 8 bits becomes f16, which is less work.
// With scales it stays bf16, which has their exponents.
TESSERA_HD constexpr DType p_dtype(const Config& c) {
  return widens_keys(c.facts) && !has_key_scales(c.facts) ? DType::f16 : c.facts.dtype;
}
// Whether threads copy Q: a box of a warpgroup's rows has whole queries, or heads of one, and other packed heads have
// no such box.
TESSERA_HD constexpr bool copies_q(const Config& c) {
  return c.pack_gqa > 1 && !has_pools(c) && rows_of_box(c) % c.pack_gqa != 0 && c.pack_gqa % rows_of_box(c) != 0;
}
// Whether O leaves from the consumers' registers, and Q's slot with it: parts of split keys, and where no warp or no
// box is there to store it. 8 bits in all by mma.sync on Hopper too: TMA made attention 2.6 % slower there.
TESSERA_HD constexpr bool leaves_from_registers(const Config& c) {
  const bool is_8_bit_on_hopper = is_8_bit(c.facts) && c.sm_smem_bytes == kSmemBytesOfSm;
  return is_split(c) || (has_descales(c.facts) && !owns_rows(c)) || is_8_bit_on_hopper || copies_q(c) ||
         shares_blocks(c);
}
// Whether who stores a tile's O whole divides it with its head's sink; parts have it when they are merged.
TESSERA_HD constexpr bool divides_with_sink(const Config& c) {
  return has_sink(c.facts) && (!is_split(c) || is_dealt(c));
}
// Whether a finished row of O is multiplied with a factor: 1 / sum, or 1 for a part of split keys; and a descale. That
// ties it to the wait for the last product: the assembler would take registers of a part from under the product
// (C7514).
TESSERA_HD constexpr bool scales_finished(const Config& c) {
  return c.facts.output == Output::normalized || is_split(c) || has_descales(c.facts);
}
// Whether the first key of a tile's blocks is another than 0.
TESSERA_HD constexpr bool has_first_key(const Config& c) {
  return !has_pools(c) && (hides_first_keys(c.facts) || is_split(c) || reads_lengths(c.facts));
}

// Groups of 64 rows, each with a slot for Q.
TESSERA_HD constexpr int row_groups(const Config& c) { return shares_blocks(c) ? 1 : c.tile_m / kRowsPerWarpgroup; }
// Of these, those whose rows a warpgroup has: with mma.sync 16 of each group are a warp's.
TESSERA_HD constexpr int row_blocks(const Config& c) { return owns_rows(c) && row_groups(c) == 4 ? 2 : 1; }
TESSERA_HD constexpr int consumer_warpgroups(const Config& c) { return row_groups(c) / row_blocks(c); }
// Dealt keys of ragged queries: whether one thread finds the tiles, of which there is one copy then, and for which no
// role waits between a tile's last product and the next one's first. Four warpgroups have no register to spare for it.
TESSERA_HD constexpr bool passes_dealt_tiles(const Config& c) {
  return is_dealt(c) && is_ragged(c.facts) && (!copies_q(c) || has_widening_warps(c)) && !shares_blocks(c) &&
         c.tile_m <= 192;
}
inline constexpr int kMostStagesOfRaw = 3;  // of what is widened: has_raw_tiles()
// Whether a step's tiles of at most eight rows, single queries, are multiplied by mma.sync from slots as loads filled
// them, as spec/fmha_warps.h says of eight rows: wgmma would take 64 rows, of keys that were widened first. Longer
// heads are not decoded so either, and took 1.6 times as long to compile. One consumer warpgroup, of which an SM holds
// two, is faster where single queries are many, and has too few registers beside windows and sinks, and for f16. Two
// need a raw slot each, which more than three slots of what is widened leave no room for in the longest heads.
TESSERA_HD constexpr bool has_raw_tiles(const Config& c) {
  const AttentionFacts& f = c.facts;
  const bool is_step = has_whole_tiles(c) && passes_dealt_tiles(c) && has_widening_warps(c) && !has_key_scales(f) &&
                       f.kv_layout == KvLayout::paged && f.seqused != UsedLengths::qk;
  const bool is_plain = !alters_scores(f) && f.tree_mask == TreeMask::none && f.output == Output::normalized &&
                        f.head_dim == f.head_dim_v && f.head_dim % 32 == 0 && f.head_dim <= 128;
  const bool has_registers = consumer_warpgroups(c) == 2 || (consumer_warpgroups(c) == 1 && f.dtype == DType::bf16 &&
                                                             !hides_first_keys(f) && f.sink == Sink::none);
  return is_step && is_plain && has_registers && c.pack_gqa <= kRowsOfTransposed && c.tile_n >= 16 * kConsumerWarps &&
         c.tile_n % 16 == 0 && c.stages <= kMostStagesOfRaw;
}
// Whether a tile stays open until the next one's first step: products of both run at the same time. Behind the last one
// a tile that is not there serves for that, unless others than joined ones must be closed by themselves anyway.
TESSERA_HD constexpr bool joins_tiles(const Config& c) {
  return c.q_stages == 2 && !uses_mma_sync(c) && !has_raw_tiles(c);
}
// Whether a tile knows where its sequence's queries lie: ragged ones, but for some that each warpgroup of wgmma finds.
TESSERA_HD constexpr bool knows_sequence(const Config& c) {
  return is_ragged(c.facts) && (!is_dealt(c) || owns_rows(c) || passes_dealt_tiles(c));
}
// Whether the other roles are told of their tiles by the thread that loads Q: fmha/passed_tiles.cuh. For speed where
// long prefills are not dealt; else for the compiler. Four consumer warpgroups have no register to spare.
TESSERA_HD constexpr bool passes_prefills(const Config& c) {
  const bool is_small = consumer_warpgroups(c) <= 3;
  return knows_sequence(c) && !is_dealt(c) && !leaves_from_registers(c) && !has_descales(c.facts) && is_small;
}
TESSERA_HD constexpr bool passes_8_bit_tiles(const Config& c) {
  const bool is_small = consumer_warpgroups(c) <= 3;
  return knows_sequence(c) && !is_dealt(c) && has_descales(c.facts) && !uses_mma_sync(c) && !copies_q(c) && is_small;
}
TESSERA_HD constexpr bool passes_tiles(const Config& c) {
  return passes_dealt_tiles(c) || passes_prefills(c) || passes_8_bit_tiles(c);
}
// Messages of tiles: the one being written, and those of the tiles that some role may still work on.
inline constexpr int kPassedTiles = 4;
inline constexpr int kPassedTileBytes = 64;

// Whether a warp looks if any of its rows is one of the head's, and leaves out the softmax if not: decoding.
TESSERA_HD constexpr bool skips_idle_warps(const Config& c) {
  return has_widening_warps(c) || (transposes_v(c) && consumer_warpgroups(c) == 1);
}
// Whether a warp is there that stores O through Q's slots, where a tile's O leaves so.
TESSERA_HD constexpr bool has_storing_warp(const Config& c) { return !transposes_v(c) && !shares_blocks(c); }
// Whether a thread has four columns of O side by side: V had 8 bits.
TESSERA_HD constexpr bool has_fours(const Config& c) {
  return is_8_bit(c.facts) || (widens_keys(c.facts) && uses_mma_sync(c) && !has_key_nibbles(c.facts));
}
// Or eight: V had 4 bits.
TESSERA_HD constexpr bool has_eights(const Config& c) { return has_key_nibbles(c.facts) && uses_mma_sync(c); }
// Warps that load 8-bit keys, behind the consumers: one Q and K, one V. Else they are the producer warpgroup's.
TESSERA_HD constexpr int loading_warps(const Config& c) { return has_widening_warps(c) ? 2 : 0; }
TESSERA_HD constexpr int num_threads(const Config& c) {
  return (consumer_warpgroups(c) + 1) * kWarpgroupThreads + 32 * loading_warps(c);
}
TESSERA_HD constexpr int span_elements(const Config& c) {
  return swizzle_span_bytes(c.swizzle) / dtype_bytes(c.facts.dtype);
}
TESSERA_HD constexpr int o_span_elements(const Config& c) {
  return swizzle_span_bytes(c.swizzle) / o_element_bytes(c.facts);
}

// Of a CTA, and of each of two on a multiprocessor.
TESSERA_HD constexpr int most_smem_bytes(const Config& c) { return c.sm_smem_bytes - kSmemBytesOfSystem; }
TESSERA_HD constexpr int most_smem_bytes_of_two(const Config& c) { return c.sm_smem_bytes / 2 - kSmemBytesOfSystem; }

TESSERA_HD constexpr int ctas_per_tile(const Config& c) { return c.cta_pair ? 2 : 1; }
// What a CTA has of a row of Q and K, and of a row of V and O, in shared memory and in products.
TESSERA_HD constexpr int qk_columns(const Config& c) { return padded_columns(c.facts.head_dim) / ctas_per_tile(c); }
TESSERA_HD constexpr int v_columns(const Config& c) { return padded_columns(c.facts.head_dim_v) / ctas_per_tile(c); }
// Of O in memory.
TESSERA_HD constexpr int o_columns(const Config& c) { return c.facts.head_dim_v / ctas_per_tile(c); }

}  // namespace tessera::fmha
