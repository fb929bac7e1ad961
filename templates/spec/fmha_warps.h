// Attention by mma.sync (mma_kind mma.f16): what its CTAs have besides. For the targets that have nothing else, sm_120
// and sm_121, and on Hopper for few queries, and by pin.
//
// Few queries. wgmma takes 64 rows whatever there is to multiply, from operands in shared memory. Here a tile is 16
// rows, mma.sync's M: the four consumer warps have the same rows, each a quarter of every block's keys, and fragments
// come from shared memory once, straight from the slots that loads fill. 8-bit keys are widened in registers, so no
// warps, slots and passes through shared memory stand between loads and products, as they do beside wgmma
// (spec/fmha_widened.h). At the end of a tile each warp leaves its rows' references, sums and columns in shared memory,
// and adds up and stores every fourth of the columns.
//
// At most eight rows. Of mma.sync's 16 half would be none, and each CTA's time is that of one warp's instructions, for
// a scheduler has only one. So products are transposed (tile_m 8): S^T = K Q^T and O^T = V^T P^T have 16 keys or
// columns in M and the rows in N. The same loads from shared memory give the A operands, a product does the work of
// two, and S, P and O take half of the registers and instructions (fmha/eight_rows.cuh).
//
// Many queries. Tiles of 64 or more rows: each warp has 16 rows of a group of 64, or of two such groups, and all of a
// block's keys. What a thread holds of S and O is what wgmma would give it, so everything but the products is the other
// kernels'. With two groups a fragment of K or V is multiplied twice: of what an SM reads from shared memory, mma.sync
// on Hopper leaves no more room than that. Q stays in registers where these suffice.
//
// Fragments of 8-bit keys: a word of a key's row is four columns, where the instruction wants two pairs eight columns
// apart. The columns of Q are taken in the same order, so that sums are those of the same products. Of V a word has two
// columns of two keys: even and odd columns become accumulators of their own, and a thread has four columns of O side
// by side, as in spec/fmha_transposed.h.
//
// 8 bits in all: a thread's scores of 32 keys are the A operand of a product if its keys are counted in their order,
// two of each eight, and V's words have just these keys: bytes of two words, picked, are the B operand of an even or an
// odd column. Sums are fp32, nothing is promoted. Rows' references lie 2^6 to 2^8 below.
#pragma once

#include "spec/fmha_config.h"

namespace tessera::fmha {

inline constexpr int kLoweredOfWarps = 6;  // powers of two, of references beside P of 8 bits

// Keys of a block that one warp takes.
TESSERA_HD constexpr int keys_of_warp(const Config& c) { return c.tile_n / kConsumerWarps; }

// Whether a CTA looks up its first keys while the kernel before still runs, and asks the L2 for them:
// fmha/keys_ahead.cuh. On Hopper, where keys lie in pages, and every key of a sequence is seen.
TESSERA_HD constexpr bool asks_ahead(const Config& c) {
  return shares_blocks(c) && is_split(c) && c.facts.kv_layout == KvLayout::paged && c.kv_copy == KvCopy::tma &&
         !has_key_scales(c.facts) && c.sm_smem_bytes == kSmemBytesOfSm && c.facts.head_dim == c.facts.head_dim_v &&
         !hides_first_keys(c.facts) && !has_split_size(c.facts) && !is_ragged(c.facts);
}
// Of tile_n keys. H200, 32/8 heads, one query, bf16, microseconds without any and with 2, 4 and 8: 8 x 1,024 keys in
// pages of 64, dealt, 15.4, 14.4, 15.0; 8 x 8,192 in pages of 16 69.3, 68.9, 69.3, 70.3. More stand in the way of
// loads.
inline constexpr int kBlocksAhead = 2;

// The Config of what one warp computes: the same rows, its keys.
TESSERA_HD constexpr Config of_one_warp(Config c) {
  c.tile_n = keys_of_warp(c);
  return c;
}

// Whether consumers read 8-bit keys as they were loaded.
TESSERA_HD constexpr bool reads_raw_slots(const Config& c) {
  return widens_keys(c.facts) && (uses_mma_sync(c) || has_raw_tiles(c));
}
TESSERA_HD constexpr Swizzle swizzle_of_span(int bytes) {
  return bytes == 128 ? Swizzle::b128 : bytes == 64 ? Swizzle::b64 : bytes == 32 ? Swizzle::b32 : Swizzle::none;
}
// How k or v comes to shared memory. Eight keys' chunks of the same columns are read at once, so 8-bit ones are
// swizzled by the span of their rows.
TESSERA_HD constexpr Swizzle swizzle_of_keys(const Config& c, int columns) {
  if (!reads_raw_slots(c)) return key_swizzle(c.facts, c.swizzle);
  return swizzle_of_span(key_span_bytes(c.facts, c.swizzle, columns));
}

// Where warps join their rows: of each warp references and sums of 16 rows, and columns of eight of them on their way,
// fp32.
TESSERA_HD constexpr int joined_sums_bytes(const Config& c) {
  return shares_blocks(c) ? kConsumerWarps * rows_of_box(c) * 8 : 0;
}
// Of eight rows all at once: [warp][row][columns], a row 16 bytes further than it is long, so that stores of a column
// by lanes with different rows meet in no bank.
TESSERA_HD constexpr int joined_row_bytes(const Config& c) { return 4 * v_columns(c) + 16; }
TESSERA_HD constexpr int joined_rows_bytes(const Config& c) {
  if (has_eight_rows(c)) return kConsumerWarps * kRowsOfTransposed * joined_row_bytes(c);
  return shares_blocks(c) ? kRowsOfWarpMma * ((v_columns(c) + 31) / 32 * 32) * 4 : 0;
}

// Whether a warp keeps the fragments of its rows of Q for the whole tile, or reads them again for each block.
TESSERA_HD constexpr bool holds_queries(const Config& c) {
  return shares_blocks(c) || (row_blocks(c) == 1 && qk_columns(c) * dtype_bytes(c.facts.dtype) <= 256);
}

// A warp's Q, S, P and O. With rows of its own P takes the place of S, a few keys after the other.
TESSERA_HD constexpr int registers_of_warp(const Config& c) {
  const int of_q = holds_queries(c) ? qk_columns(c) * dtype_bytes(c.facts.dtype) / 8 : 0;
  if (has_eight_rows(c)) return qk_columns(c) / 8 + keys_of_warp(c) / 2 + keys_of_warp(c) / 8 + v_columns(c) / 4;
  if (owns_rows(c)) return of_q + row_blocks(c) * (c.tile_n / 2 + v_columns(c) / 2);
  return of_q + keys_of_warp(c) / 2 + keys_of_warp(c) / 4 + v_columns(c) / 2;
}

// What a thread needs beside them: fragments of K and V on their way, and of what is widened.
TESSERA_HD constexpr int registers_beside_accumulators(const Config& c) {
  return shares_blocks(c) ? 72 : owns_rows(c) ? 40 : kRegistersBesideAccumulators;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_warps(const Config& c) {
  if (!uses_mma_sync(c)) return {};
  const bool has_groups = c.tile_m == 64 || c.tile_m == 128 || c.tile_m == 256;
  if (c.tile_m != kRowsOfWarpMma && c.tile_m != kRowsOfTransposed && !has_groups)
    return {Rule::tile_m_of_warps, c.tile_m, kRowsOfWarpMma};
  constexpr int kKeys = 16 * kConsumerWarps;
  if (shares_blocks(c) && (c.tile_n < kKeys || c.tile_n % kKeys != 0))
    return {Rule::tile_n_not_multiple_of_16, c.tile_n, kKeys};
  // Four warps that share a block's keys have no code for what they would share of these.
  const int of_shared = is_8_bit(c.facts) + has_pools(c) + (c.facts.v_layout == Layout::k_major) + is_padded(c.facts);
  const int others = (c.facts.head_dim > 256) + (shares_blocks(c) ? of_shared : 0);
  if (others != 0) return {Rule::facts_of_warps, others, 0};
  if (!has_eight_rows(c)) return {};
  const int of_eight_rows = !asks_ahead(c) + alters_scores(c.facts) + (c.facts.tree_mask != TreeMask::none) +
                            has_sink(c.facts) + copies_q(c) + (c.facts.output != Output::normalized) +
                            (c.facts.head_dim % 32 != 0);
  if (of_eight_rows != 0) return {Rule::facts_of_eight_rows, of_eight_rows, 0};
  return {};
}

}  // namespace tessera::fmha
