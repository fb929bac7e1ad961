// A Config of attention on tcgen05, why one may be illegal, and the extents that follow from one. What all of it is
// for: spec/fmha_tcgen05.h.
#pragma once

#include "spec/attention_cache.h"
#include "spec/attention_facts.h"
#include "spec/limits.h"
#include "tessera/spec/types.h"

namespace tessera::fmha_tcgen05 {

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  AttentionFacts facts{};
  int tile_m = 256;  // queries of a CTA, or of a pair: one or two products
  int tile_n = 128;  // keys of a step
  int stages = 2;    // slots of the K ring and of the V ring
  Swizzle swizzle = Swizzle::b128;
  MmaKind mma_kind = MmaKind::tcgen05_f16;
  KvCopy kv_copy = KvCopy::tma;  // of keys that do not lie dense
  ProbabilityPath p_path = ProbabilityPath::tmem;
  bool cta_pair = false;
  int pack_gqa = 1;                 // query heads of a key head that share a tile's rows
  SplitKv split_kv = SplitKv::off;  // num_splits CTAs share a tile's keys, a second kernel merges

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kMaxStages = 8;
inline constexpr int kMaxProductN = 256;
inline constexpr int kMaxHeadDim = 512;
inline constexpr int kLatentHeadDim = 576, kLatentHeadDimV = 512;  // of keys that are values too
inline constexpr int kMaxTileN = 128;
inline constexpr int kMaxPackedHeads = 1 << 16;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_16_bit,               // bytes of the type; 2: neither bf16, f16 nor e4m3
  head_dim_not_multiple_of_8,     // head_dim or head_dim_v; 8 (16 bytes, TMA), 32 for a pair, or 8 bits (tcgen05 K, N)
  head_dim_out_of_range,          // head_dim or head_dim_v; 512
  head_dim_v_exceeds_head_dim,    // head_dim_v; head_dim (O leaves through Q's slot)
  head_dim_not_multiple_of_span,  // bytes of a row of Q or of a CTA's columns of V; bytes of the swizzle span
  tile_m_not_whole_products,      // tile_m; rows of a product
  tile_m_out_of_range,            // tile_m; rows of two products
  tile_n_not_multiple_of_32,      // tile_n; 32, 64 where lanes are folded
  tile_n_out_of_range,            // tile_n; 128
  tile_n_not_multiple_of_span,    // bytes of tile_n keys of a K-major V; bytes of the swizzle span
  stages_out_of_range,            // stages; 8
  head_dim_v_needs_pair,          // head_dim_v; 256
  folded_p_in_tmem,               // rows of a CTA; 128
  k_major_v_of_used_keys,         // bytes of a key; 16 (TMA starts at multiples of it along keys)
  pack_gqa_out_of_range,          // pack_gqa; 65,536
  split_size_not_of_tiles,        // split_size; tile_n
  pools_need_one_q_tile,          // Q tiles; 1
  pools_need_wider_swizzle,       // bytes of the swizzle span; 32 (four gathered rows begin at multiples of 128)
  pools_need_dense_facts,   // 1 for each of: used lengths, window, split keys (not gathered), K-major V, un-normalised
                            // O, ragged; 0
  page_size_unknown,        // page_size; 256 (kPageSizes)
  page_size_without_pages,  // page_size; 0
  pages_without_lengths,    // 0; 1 (seqused k or qk: where a sequence ends in its last page)
  kv_copy_of_dense_keys,    // 1; 0 (dense keys come by TMA)
  page_too_small_for_tma,   // page_size; 8 (rows of a swizzle's pattern)
  placed_keys_in_pair,      // CTAs; 1 (each warp completes its own CTA's copies)
  placed_keys_need_dense_facts,  // 1 for each of: K-major V, two pools; 0
  widened_keys_in_pair,          // CTAs; 1 (each CTA's threads widen for their own)
  descaled_keys_need_mn_major,   // 1; 0 (K-major V)
  widened_keys_of_two_q_tiles,   // tile_n; 64 (registers of softmax threads beside those of widening ones)
  facts_of_scaled_keys,          // 1 for each of: dtype not bf16, keys not in pages, other head_dims; 0
  scaled_keys_need_tma,          // 1; 0 (scales come beside boxes of keys)
  latent_head_dim,               // head_dim; 576: keys that are values too
  latent_head_dim_v,             // head_dim_v; 512: likewise
  latent_in_pair,                // CTAs; 1 (halves of keys for one product, halves of columns for the other)
  latent_needs_two_stages,       // stages; 2 (the next block's scores come before a block is given back)
  latent_needs_plain_facts,      // 1 for each of: un-normalised O, K-major V, ragged keys, keys that threads copy; 0
  latent_head_dim_of_pools,      // head_dim; 512 (the other one is 576)
  gathered_keys_tile,            // tile_n; 64 (16 keys of each of four warps): keys that are values too, of pools
  gathered_keys_swizzle,         // bytes of the swizzle span; 128: likewise
  gathered_keys_need_threads,    // 0; 1 (kv_copy cp_async)
  head_dim_not_of_cache,         // head_dim; columns of a token
  cache_not_beside_bf16,         // 1; 0
  tensor_memory_exceeded,        // columns; 512
  shared_memory_exceeded,        // bytes; 232,448
};

TESSERA_HD constexpr int ctas_per_tile(const Config& c) { return c.cta_pair ? 2 : 1; }
// See above: lane l holds row l % 64.
TESSERA_HD constexpr bool is_latent(const Config& c) { return c.facts.v_is_k == VIsK::on; }
TESSERA_HD constexpr bool is_folded(const Config& c) {
  return is_latent(c) || (c.cta_pair && c.facts.head_dim_v > kMaxProductN);
}
TESSERA_HD constexpr int rows_per_cta(const Config& c) { return is_folded(c) ? 64 : 128; }
// Of a lane: which of the CTA's rows it holds, and which part of a product's columns. Keys that are values too have
// products of 64 rows in one CTA, which take half of each warp's lanes: the lower half of them the first part.
TESSERA_HD constexpr int row_of_lane(const Config& c, int lane) {
  return is_latent(c) ? lane / 32 * 16 + lane % 16 : lane % rows_per_cta(c);
}
TESSERA_HD constexpr int part_of_lane(const Config& c, int lane) {
  return is_latent(c) ? lane / 16 % 2 : lane / rows_per_cta(c);
}
TESSERA_HD constexpr int rows_per_product(const Config& c) { return rows_per_cta(c) * ctas_per_tile(c); }
// For default template arguments: with C.facts there, NVRTC takes two names of one type for two types.
TESSERA_HD constexpr bool has_pools(const Config& c) { return tessera::has_pools(c.facts); }

// Keys that are values too, of pools: threads gather them, rows or tokens of a cache.
TESSERA_HD constexpr bool gathers(const Config& c) { return has_pools(c) && is_latent(c); }
// Whether a warpgroup of its own writes the blocks of keys that products read.
TESSERA_HD constexpr bool makes_keys(const Config& c) { return widens_keys(c.facts) || gathers(c); }

// A CTA's rows hold whole queries of pack_gqa heads each, the heads of a query side by side, and what is left over is
// not used. Where a query has more heads than a CTA has rows, several CTAs have equal parts of them. With pools each
// query has keys of its own, so a tile is one query or a part of one, and the CTAs of a pair share it. Equal parts may
// hold more heads than there are: packed row u of a sequence is head u % padded_heads of query u / padded_heads, and
// heads from pack_gqa on are none: TMA loads zeros for them and stores nothing.
TESSERA_HD constexpr int parts_of_query(const Config& c) {
  const long long parts = ceil_div(c.pack_gqa, rows_per_cta(c));
  return static_cast<int>(has_pools(c.facts) ? round_up(parts, ctas_per_tile(c)) : parts);
}
TESSERA_HD constexpr int packed_heads(const Config& c) {
  return static_cast<int>(ceil_div(c.pack_gqa, parts_of_query(c)));
}
TESSERA_HD constexpr int padded_heads(const Config& c) { return packed_heads(c) * parts_of_query(c); }
TESSERA_HD constexpr int packed_queries(const Config& c) {
  return has_pools(c.facts) ? 1 : rows_per_cta(c) / packed_heads(c);
}
TESSERA_HD constexpr int used_rows(const Config& c) { return packed_heads(c) * packed_queries(c); }
TESSERA_HD constexpr int q_tiles(const Config& c) { return c.tile_m / rows_per_product(c); }
TESSERA_HD constexpr int used_rows_of_product(const Config& c) { return used_rows(c) * ctas_per_tile(c); }
TESSERA_HD constexpr int used_rows_of_tile(const Config& c) { return q_tiles(c) * used_rows_of_product(c); }
TESSERA_HD constexpr bool is_packed(const Config& c) { return c.pack_gqa > 1 || has_pools(c.facts) || is_latent(c); }
TESSERA_HD constexpr bool is_split(const Config& c) { return c.split_kv == SplitKv::on; }
// Control warps, correction, softmax for each Q tile, and those that widen 8-bit keys or gather listed ones.
TESSERA_HD constexpr int num_threads(const Config& c) {
  return (2 + q_tiles(c) + (makes_keys(c) ? 1 : 0)) * kWarpgroupThreads;
}
TESSERA_HD constexpr int ctas_per_sm(const Config&) { return 1; }

TESSERA_HD constexpr int span_elements(const Config& c) {
  return swizzle_span_bytes(c.swizzle) / dtype_bytes(c.facts.dtype);
}
TESSERA_HD constexpr int o_span_elements(const Config& c) {
  return swizzle_span_bytes(c.swizzle) / o_element_bytes(c.facts);
}

// P and V of O += P V. 8-bit values become f16 whatever the queries are: that takes a third of the instructions that
// bf16 takes, and probabilities, at most 2^8, have finer steps. Those that are keys too become what the queries are,
// and those with scales, whose exponents f16 has not.
TESSERA_HD constexpr DType p_dtype(const Config& c) {
  return widens_keys(c.facts) && !is_latent(c) && !has_key_scales(c.facts) ? DType::f16 : c.facts.dtype;
}

// Keys of a step of O += P V, and elements of one of S = Q K^T: 32 bytes.
TESSERA_HD constexpr int step_elements(const Config& c) { return 32 / dtype_bytes(c.facts.dtype); }

// What Q and K, and V and O, have of a row in shared memory and in products.
TESSERA_HD constexpr int qk_columns(const Config& c) { return padded_columns(c.facts.head_dim); }
TESSERA_HD constexpr int vo_columns(const Config& c) { return padded_columns(c.facts.head_dim_v); }

// O += P V in products of at most 256 columns; a CTA's shared memory has v_columns of each.
TESSERA_HD constexpr int pv_products(const Config& c) { return c.facts.head_dim_v > kMaxProductN ? 2 : 1; }
TESSERA_HD constexpr int pv_columns(const Config& c) { return vo_columns(c) / pv_products(c); }
TESSERA_HD constexpr int v_columns(const Config& c) { return pv_columns(c) / ctas_per_tile(c); }
TESSERA_HD constexpr int k_rows(const Config& c) { return c.tile_n / ctas_per_tile(c); }

// Tensor Memory: S buffers, then O of each Q tile. Columns of 32 bits in all lanes.
TESSERA_HD constexpr int folds(const Config& c) { return is_folded(c) ? 2 : 1; }
// Products whose sums one column of lanes holds, the second from lane 16 on: parts of S by keys, of O by columns.
TESSERA_HD constexpr int products_of_lanes(const Config& c) { return is_latent(c) ? 2 : 1; }
TESSERA_HD constexpr unsigned lane_offset(int lane) { return static_cast<unsigned>(lane) << 16; }
TESSERA_HD constexpr int s_columns(const Config& c) { return c.tile_n / folds(c); }
TESSERA_HD constexpr int p_offset(const Config& c) { return c.tile_n / 2; }  // of P in its S
TESSERA_HD constexpr int o_columns(const Config& c) { return vo_columns(c) / folds(c); }
TESSERA_HD constexpr int s_column(const Config& c, int buffer) { return buffer * s_columns(c); }
// Two buffers of S; two Q tiles have three where there is room, which all their steps take in turn: the next scores of
// both are there when one's softmax ends. P in shared memory has one slot for each Q tile anyway.
TESSERA_HD constexpr bool has_third_buffer(const Config& c) {
  return q_tiles(c) == 2 && c.p_path == ProbabilityPath::tmem && 3 * s_columns(c) + 2 * o_columns(c) <= kTmemColumns;
}
TESSERA_HD constexpr int s_buffers(const Config& c) { return has_third_buffer(c) ? 3 : 2; }
// What a step has of the barriers between roles, and of factors: one for each buffer, and of three for each Q tile, so
// that no role sees another's phases.
TESSERA_HD constexpr int step_slots(const Config& c) { return has_third_buffer(c) ? 3 * q_tiles(c) : 2; }
TESSERA_HD constexpr int o_column(const Config& c, int q_tile) {
  return s_buffers(c) * s_columns(c) + q_tile * o_columns(c);
}
TESSERA_HD constexpr int used_columns(const Config& c) { return o_column(c, q_tiles(c)); }
TESSERA_HD constexpr int allocated_columns(const Config& c) {
  int columns = 32;
  while (columns < used_columns(c)) columns *= 2;
  return columns;
}

// P is handed over in two parts, so that O += P V begins while the last exponentials are computed: keys of the first
// part; all of them where a thread has only one load's worth of scores, or its scores are half of the keys, or a third
// buffer of S lets O wait. Halves of 128 keys and 128 columns where two Q tiles have the same blocks: three quarters
// are not multiplied yet when the last one comes. (With a causal mask, or 96 columns, the time model has a quarter more
// time so.)
TESSERA_HD constexpr int p_first_keys(const Config& c) {
  if (is_folded(c) || c.tile_n < 64 || has_third_buffer(c)) return c.tile_n;
  const bool has_same_blocks = q_tiles(c) == 2 && c.facts.mask == Mask::none && c.facts.window == Window::none;
  return has_same_blocks && c.tile_n == 128 && o_columns(c) == 128 ? c.tile_n / 2 : c.tile_n - 32;
}
TESSERA_HD constexpr bool has_p_parts(const Config& c) { return p_first_keys(c) < c.tile_n; }

// P in shared memory has the widest swizzle that its rows allow: no TMA sees it.
TESSERA_HD constexpr int p_row_bytes(const Config& c) { return c.tile_n * dtype_bytes(c.facts.dtype); }
TESSERA_HD constexpr Swizzle p_swizzle(const Config& c) {
  return p_row_bytes(c) % 128 == 0 ? Swizzle::b128 : p_row_bytes(c) % 64 == 0 ? Swizzle::b64 : Swizzle::b32;
}

TESSERA_HD constexpr int q_slot_bytes(const Config& c) {
  return rows_per_cta(c) * qk_columns(c) * dtype_bytes(c.facts.dtype);
}
TESSERA_HD constexpr int q_bytes(const Config& c) { return used_rows(c) * qk_columns(c) * dtype_bytes(c.facts.dtype); }
TESSERA_HD constexpr int k_slot_bytes(const Config& c) {
  return k_rows(c) * qk_columns(c) * dtype_bytes(c.facts.dtype);
}
TESSERA_HD constexpr int v_part_bytes(const Config& c) { return c.tile_n * v_columns(c) * dtype_bytes(c.facts.dtype); }
TESSERA_HD constexpr int v_slot_bytes(const Config& c) { return is_latent(c) ? 0 : pv_products(c) * v_part_bytes(c); }
TESSERA_HD constexpr int p_slot_bytes(const Config& c) {
  return c.p_path == ProbabilityPath::smem ? rows_per_cta(c) * c.tile_n * dtype_bytes(c.facts.dtype) : 0;
}

}  // namespace tessera::fmha_tcgen05
