// Scores of an indexer: which keys a query should attend to, by cheap products of 8 or 4 bits.
//
//   scores[i, j] = s[j] sum_h w[i, h] max(q[i, h] . k[j], 0)        for keys j of query i's range
//
// q and k are e4m3, w and the keys' scales s fp32, s not negative. A query sees a range of keys: ks[i] <= j < ke[i] of
// keys that lie one behind the other, or the first ones of its sequence, which lie in pages of a cache.
//
// Or q and k are e2m1 with a scale ue8m0 for 32 elements, and s is 1. sm_120 multiplies them as they are. Elsewhere
// they are widened to bf16, which has room for every product of a code and a scale: keys on their way to registers, 16
// rows to a warp, and queries by all consumers into a slot of shared memory, once for a tile of queries. A sum has its
// terms in any order, so a lane takes the 32 elements of a row's quarter that lie side by side (of head_dim 64: 16) as
// its share of every step, and queries are written in that order: place_of_pair().
//
// Keys give matrix instructions their rows, 64 to a tile, and heads of `tile_q` queries their columns: a key's heads
// are then spread over the four lanes of a quad alone. A lane has the weights of its columns in registers, applies them
// and the maximum to accumulators as they come, and four lanes add up. Of 128-byte rows wgmma takes two cycles for what
// the epilogue does in one, so two warpgroups with a tile each keep the tensor cores busy. (They find turns by
// themselves: made to multiply one after the other they took 1.06 times as long on an H200.)
//
// A tile of queries has so many tiles of keys: those from the first key that one of its queries sees to the last. All
// tiles of keys are dealt to CTAs evenly, in one row, a tile of queries counting as one more: each CTA counts them
// anew from ks and ke, or context_lens. One
// warp loads by TMA: queries and weights into one of two slots, keys and scales into a ring; it writes beside the
// queries which keys they see. The other three warps of its warpgroup write what lies outside of ranges, or, where
// nobody asks for that, load pages too: loaders().
//
// fp32 scores of pages are stored such that they stay in the L2 (evict_last), while keys leave it first: writes to
// memory hold up reading for longer than their bytes take (without any an H200 needs 5 to 8 % less time, of 3 % of the
// bytes), and who selects from the scores reads them next.
//
// tcgen05 (sm_100, sm_103) multiplies both formats as they are: 128 keys are Tensor Memory's lanes, heads its columns,
// so that a thread has a key and adds up all heads by itself. Of the first four warps one loads, one multiplies and two
// write what lies outside: templates/indexer_tcgen05. No Blackwell device has run it.
//
// Numbers in memory may be anything: ranges are cut to the keys that there are and to the columns; a page outside of
// the pool is one of zeros, for the tensor map says so; entries behind a sequence's last key are not read.
//
// Entry parameters, in this order:
//   CUtensorMap q                 bytes {row_bytes, heads, m} in boxes of {row_bytes, heads, loaded_queries()}
//   CUtensorMap weights           f32 {heads, m} in boxes of {heads, loaded_queries()}
//   CUtensorMap keys              bytes {row_bytes, n} in boxes of {row_bytes, tile_keys()};
//                                 paged {row_bytes, page_size, pages}, boxes of {row_bytes, run, 1}
//   CUtensorMap scales            words {n} in boxes of {tile_keys()}; paged {words of a page, pages}, boxes of {run,
//   1} CUtensorMap q_scales          mxfp4 alone: words {heads, m} in boxes of {heads, loaded_queries()} const int*
//   first, *last       ks, ke; paged: block_table, context_lens void* scores long long scores_stride_m,
//   block_table_stride_batch int m, n, columns, max_pages  n: paged: pages; the stride and max_pages: else 0
// A word is a key's fp32 scale, or four ue8m0. Keys of a run lie side by side in a page: as many as divide
// tile_keys() and page_size. Rows in shared memory are row_bytes wide (head_dim, or half of it) and swizzled over as
// many; widened ones are panels of 64 elements, swizzled over 128 bytes. Launch: grid {num_sms}, block {threads(), 1,
// 1}, smem_bytes() of shared memory, programmatic stream serialization.
#pragma once

#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/wgmma_shape.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/indexer_types.h"
#include "tessera/spec/types.h"

namespace tessera::indexer {

struct Config {
  int heads = 64;
  int head_dim = 128;
  IndexFormat format = IndexFormat::e4m3;
  DType score_dtype = DType::f32;
  KvLayout kv_layout = KvLayout::ragged;
  int page_size = 64;
  int next_n = 1;
  ContextLengths context_lengths = ContextLengths::sequence;
  ScoreColumns score_columns = ScoreColumns::keys;
  Outside outside = Outside::minus_inf;
  MmaKind mma_kind = MmaKind::wgmma_f16;
  IndexOperands operands = IndexOperands::stored;
  int tile_q = 4;
  int consumers = 2;
  int stages = 16;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kWarp = 32, kWarpgroup = 128;
inline constexpr int kTileKeys = 64, kLanes = 128;  // rows of wgmma, and of mma.sync's four warps; of tcgen05
inline constexpr int kQuerySlots = 2;
inline constexpr int kMaxColumns = 256, kMaxTileQueries = 16, kMaxConsumers = 4, kMaxStages = 24, kMaxNextN = 4;
inline constexpr int kKeyAlignment = 8;  // of a tile's first key: sectors of scores, and 16 bytes of scales
// What a tile of queries costs beside its tiles of keys, in these: its weights, and who waits for whom.
inline constexpr int kQueryTileCost = 1;
inline constexpr int kFillColumns = 4096;  // of a row, that a warp writes in one go

TESSERA_HD constexpr bool is_paged(const Config& c) { return c.kv_layout == KvLayout::paged; }
TESSERA_HD constexpr bool uses_wgmma(const Config& c) { return c.mma_kind == MmaKind::wgmma_f16; }
TESSERA_HD constexpr bool uses_tcgen05(const Config& c) { return c.mma_kind == MmaKind::tcgen05_f16; }
TESSERA_HD constexpr bool is_fp4(const Config& c) { return c.format == IndexFormat::mxfp4; }
TESSERA_HD constexpr bool widens(const Config& c) { return c.operands == IndexOperands::bf16; }
// Warps that load: as many as multiply, each the tiles of one of them, so that nobody's full slots hold up the others
// (0.4 to 1.5 % of the time on an H200). Where -inf is written too, three of these four warps do that.
TESSERA_HD constexpr int loaders(const Config& c) {
  return is_paged(c) && uses_wgmma(c) && !widens(c) && c.outside == Outside::unwritten ? c.consumers : 1;
}
TESSERA_HD constexpr int tile_keys(const Config& c) { return uses_tcgen05(c) ? kLanes : kTileKeys; }
TESSERA_HD constexpr int columns_of_tile(const Config& c) { return c.tile_q * c.heads; }
// With tcgen05 columns are a multiple of 16: of eight heads a query more is loaded, which nobody looks at.
TESSERA_HD constexpr int loaded_queries(const Config& c) {
  return uses_tcgen05(c) && columns_of_tile(c) % 16 != 0 ? c.tile_q + 1 : c.tile_q;
}
TESSERA_HD constexpr int loaded_columns(const Config& c) { return loaded_queries(c) * c.heads; }
// Warps that write what lies outside of ranges: the last ones of the first warpgroup.
TESSERA_HD constexpr int fill_warps(const Config& c) { return uses_tcgen05(c) ? 2 : 3; }
TESSERA_HD constexpr int row_bytes(const Config& c) { return is_fp4(c) ? c.head_dim / 2 : c.head_dim; }
// Of a product: 32 bytes of what is multiplied.
TESSERA_HD constexpr int steps(const Config& c) { return widens(c) ? c.head_dim / 16 : row_bytes(c) / 32; }
TESSERA_HD constexpr int threads(const Config& c) { return kWarpgroup * (1 + c.consumers); }
TESSERA_HD constexpr Swizzle swizzle(const Config& c) {
  return row_bytes(c) == 128 ? Swizzle::b128 : row_bytes(c) == 64 ? Swizzle::b64 : Swizzle::b32;
}
TESSERA_HD constexpr WgmmaShape product_shape(const Config& c) {
  if (widens(c))
    return {.n = columns_of_tile(c),
            .dtype = DType::bf16,
            .a_in_registers = true,
            .steps = steps(c),
            .b_dtype = DType::bf16,
            .has_begin = true};
  return {.n = columns_of_tile(c), .dtype = DType::e4m3, .steps = steps(c), .b_dtype = DType::e4m3, .has_begin = true};
}
// Keys that lie side by side: a box, of which a tile has so many. Its scales begin at a multiple of 128 bytes.
TESSERA_HD constexpr int keys_of_run(const Config& c) {
  return is_paged(c) && c.page_size < tile_keys(c) ? c.page_size : tile_keys(c);
}
TESSERA_HD constexpr int runs(const Config& c) { return tile_keys(c) / keys_of_run(c); }
TESSERA_HD constexpr int scales_pitch(const Config& c) { return keys_of_run(c) < 32 ? 32 : keys_of_run(c); }
TESSERA_HD constexpr int page_bytes(const Config& c) { return c.page_size * (row_bytes(c) + 4); }

// Widened, word w of a quarter of a row, eight elements, is steps 2 w and 2 w + 1 of what lane `quarter` of a quad has:
// of its pairs, elements (j, j + 4), the first two are those of the first step, columns 2 quarter and 8 further of 16.
// In bytes from where the step's 16 begin.
TESSERA_HD constexpr int place_of_pair(int quarter, int pair) { return 4 * quarter + pair % 2 * 16; }

// Whether a lane has the weights of its columns in registers: with wgmma, whose columns are unrolled, where widened
// keys leave room for them. Else they are read from shared memory at every use.
inline constexpr int kMostColumnsBesideKeys = 192;
TESSERA_HD constexpr bool holds_weights(const Config& c) {
  return uses_wgmma(c) && !(widens(c) && columns_of_tile(c) > kMostColumnsBesideKeys);
}
// tcgen05: accumulators in Tensor Memory, as many for each consumer, which then sees every phase of their barriers.
// Where there are scales, those of a tile's keys lie behind all accumulators, one for each, and behind them the scales
// of both slots of queries: four columns for 128 keys or heads.
inline constexpr int kMaxAccumulators = 4, kScaleTileBytes = 512, kScaleTileColumns = 4;
TESSERA_HD constexpr int query_scale_tiles(const Config& c) { return (loaded_columns(c) + kLanes - 1) / kLanes; }
TESSERA_HD constexpr int tmem_columns(const Config& c, int accumulators) {
  const int of_scales = is_fp4(c) ? kScaleTileColumns : 0;
  return accumulators * (loaded_columns(c) + of_scales) + kQuerySlots * query_scale_tiles(c) * of_scales;
}
TESSERA_HD constexpr int accumulators(const Config& c) {
  const int most = kMaxAccumulators / c.consumers * c.consumers;
  return most > c.consumers && tmem_columns(c, most) <= kTmemColumns ? most : c.consumers;
}

// What wgmma's accumulators, the weights and the sums take, and widened keys.
TESSERA_HD constexpr int registers_needed(const Config& c) {
  return columns_of_tile(c) / 2 + (holds_weights(c) ? columns_of_tile(c) / 4 : 0) + 2 * c.tile_q + 24 +
         (widens(c) ? 4 * steps(c) : 0);
}
// CTAs that a multiprocessor has room for. One is launched for each; with room for two the next launch's waits beside
// it, its barriers and maps ready.
TESSERA_HD constexpr int min_ctas(const Config& c);

// Registers of a thread: as launched, of the warpgroup that loads, of one that multiplies; 0: as compiled. Only
// accumulators of wgmma all live at once.
struct RegisterBudget {
  int entry = 0, producer = 0, consumer = 0;
};
TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  if (!uses_wgmma(c) || min_ctas(c) == 2) return {};
  return c.consumers == 1                ? RegisterBudget{0, 0, 240}
         : c.consumers == 2 && widens(c) ? RegisterBudget{168, 56, 224}  // with 40 a page's eight keys were spilled
         : c.consumers == 2              ? RegisterBudget{168, 40, 232}
         : c.consumers == 3              ? RegisterBudget{128, 32, 160}
                                         : RegisterBudget{96, 32, 112};
}

// Offsets from the start of shared memory, which is aligned to 1,024 bytes.
struct SmemLayout {
  int q = 0;        // two slots
  int keys = 0;     // a ring
  int wide = 0;     // queries in bf16
  int weights = 0;  // beside q
  int q_scales = 0;
  int scales = 0;  // beside keys
  int ranges = 0;  // beside q: see Ranges in templates/indexer/ranges.cuh
  int deal = 0;    // where the CTA's share begins, and sums of warps; then entries of a table of pages
  int barriers = 0;
  int tmem_address = 0;  // tcgen05
  int total = 0;
};
TESSERA_HD constexpr int q_slot_bytes(const Config& c) {
  return static_cast<int>(round_up(loaded_columns(c) * row_bytes(c), 1024));
}
TESSERA_HD constexpr int wide_bytes(const Config& c) { return widens(c) ? columns_of_tile(c) * 2 * c.head_dim : 0; }
TESSERA_HD constexpr int key_slot_bytes(const Config& c) { return tile_keys(c) * row_bytes(c); }
TESSERA_HD constexpr int weights_slot_bytes(const Config& c) {
  return static_cast<int>(round_up(4 * loaded_columns(c), 128));
}
TESSERA_HD constexpr int query_scales_slot_bytes(const Config& c) {
  return uses_tcgen05(c) ? query_scale_tiles(c) * kScaleTileBytes : weights_slot_bytes(c);
}
TESSERA_HD constexpr int scales_slot_bytes(const Config& c) { return 4 * scales_pitch(c) * runs(c); }
TESSERA_HD constexpr int ranges_slot_bytes(const Config& c) {
  return static_cast<int>(round_up(16 + 8 * c.tile_q, 128));
}
inline constexpr int kDealBytes = 256;  // two times 32 entries of a table, of each warp that loads
TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.keys = kQuerySlots * q_slot_bytes(c);
  layout.wide = static_cast<int>(round_up(layout.keys + c.stages * key_slot_bytes(c), 1024));
  layout.weights = layout.wide + wide_bytes(c);
  layout.q_scales = layout.weights + kQuerySlots * weights_slot_bytes(c);
  layout.scales = layout.q_scales + (is_fp4(c) ? kQuerySlots * query_scales_slot_bytes(c) : 0);
  layout.ranges = layout.scales + c.stages * scales_slot_bytes(c);
  layout.deal = layout.ranges + kQuerySlots * ranges_slot_bytes(c);
  layout.barriers = layout.deal + loaders(c) * kDealBytes;
  layout.tmem_address = layout.barriers + 16 * (kQuerySlots + c.stages + (uses_tcgen05(c) ? accumulators(c) : 0));
  layout.total = layout.tmem_address + (uses_tcgen05(c) ? 16 : 0);
  return layout;
}
TESSERA_HD constexpr int smem_bytes(const Config& c) { return smem_layout(c).total; }
// Rings have full barriers, then empty ones.
struct Barriers {
  common::BarrierRow queries, keys, sums;
};
TESSERA_HD constexpr Barriers barriers(const Config& c) {
  common::BarrierCursor cursor{{0, smem_layout(c).barriers, 0}};
  Barriers rows;
  rows.queries = cursor.take(2 * kQuerySlots);
  rows.keys = cursor.take(2 * c.stages);
  rows.sums = cursor.take(uses_tcgen05(c) ? 2 * accumulators(c) : 0);
  return rows;
}
TESSERA_HD constexpr int min_ctas(const Config& c) {
  return uses_wgmma(c) && c.consumers <= 2 && registers_needed(c) <= 80 && smem_bytes(c) <= kMaxSmemBytesOfTwo ? 2 : 1;
}
// Bytes that come for a tile of queries, and for one of keys.
TESSERA_HD constexpr int query_bytes(const Config& c) {
  return loaded_columns(c) * (row_bytes(c) + (is_fp4(c) ? 8 : 4));
}
TESSERA_HD constexpr int key_bytes(const Config& c) { return tile_keys(c) * (row_bytes(c) + 4); }

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  heads,                    // heads, a multiple of 8; 64
  head_dim,                 // head_dim; 128
  head_dim_of_fp4,          // head_dim; 64
  score_dtype,              // bytes of a score; 4
  kv_layout,                // 0; 0
  page_size,                // keys of a page; 256
  page_size_without_pages,  // page_size; 64
  next_n_out_of_range,      // queries of a sequence; 4
  next_n_without_pages,     // next_n; 1
  lengths_without_pages,    // 0; 0
  columns_of_pages,         // 0; 0
  mma_kind,                 // 0; 0
  operands_of_format,       // 0; 0
  tile_q_out_of_range,      // queries of a tile; 16
  tile_q_of_pages,          // queries of a tile; next_n
  columns_out_of_range,     // heads times queries of a tile; 256
  consumers_out_of_range,   // warpgroups; 4
  stages_out_of_range,      // stages; 24
  stages_of_consumers,      // stages; warpgroups, of which they are a multiple
  tensor_memory_exceeded,   // columns of Tensor Memory; 512
  registers_exceeded,       // registers of a thread that multiplies; those that there are
  smem_exceeded,            // bytes of shared memory; those that there are
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.heads < 8 || c.heads > 64 || c.heads % 8 != 0) return {Rule::heads, c.heads, 64};
  if (c.head_dim != 32 && c.head_dim != 64 && c.head_dim != 128) return {Rule::head_dim, c.head_dim, 128};
  if (is_fp4(c) && c.head_dim < 64) return {Rule::head_dim_of_fp4, c.head_dim, 64};
  if (c.score_dtype != DType::f32 && c.score_dtype != DType::bf16)
    return {Rule::score_dtype, dtype_bytes(c.score_dtype), 4};
  if (c.kv_layout != KvLayout::ragged && c.kv_layout != KvLayout::paged) return {Rule::kv_layout, 0, 0};
  if (is_paged(c) && (c.page_size < 8 || c.page_size > 256 || (c.page_size & (c.page_size - 1)) != 0))
    return {Rule::page_size, c.page_size, 256};
  if (!is_paged(c) && c.page_size != Config{}.page_size)
    return {Rule::page_size_without_pages, c.page_size, Config{}.page_size};
  if (c.next_n < 1 || c.next_n > kMaxNextN) return {Rule::next_n_out_of_range, c.next_n, kMaxNextN};
  if (!is_paged(c) && c.next_n != 1) return {Rule::next_n_without_pages, c.next_n, 1};
  if (!is_paged(c) && c.context_lengths != ContextLengths::sequence) return {Rule::lengths_without_pages, 0, 0};
  if (is_paged(c) && c.score_columns != ScoreColumns::keys) return {Rule::columns_of_pages, 0, 0};
  if (c.mma_kind != MmaKind::wgmma_f16 && c.mma_kind != MmaKind::mma_f16 && !uses_tcgen05(c))
    return {Rule::mma_kind, 0, 0};
  if (widens(c) ? !is_fp4(c) || uses_tcgen05(c) : is_fp4(c) && uses_wgmma(c)) return {Rule::operands_of_format, 0, 0};
  if (c.tile_q < 1 || c.tile_q > kMaxTileQueries) return {Rule::tile_q_out_of_range, c.tile_q, kMaxTileQueries};
  if (is_paged(c) && c.tile_q != c.next_n) return {Rule::tile_q_of_pages, c.tile_q, c.next_n};
  if (columns_of_tile(c) > kMaxColumns) return {Rule::columns_out_of_range, columns_of_tile(c), kMaxColumns};
  if (c.consumers < 1 || c.consumers > kMaxConsumers) return {Rule::consumers_out_of_range, c.consumers, kMaxConsumers};
  if (c.stages < 1 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (c.stages % c.consumers != 0) return {Rule::stages_of_consumers, c.stages, c.consumers};
  if (uses_tcgen05(c) && tmem_columns(c, c.consumers) > kTmemColumns)
    return {Rule::tensor_memory_exceeded, tmem_columns(c, c.consumers), kTmemColumns};
  if (uses_wgmma(c) && min_ctas(c) == 1 && registers_needed(c) > register_budget(c).consumer)
    return {Rule::registers_exceeded, registers_needed(c), register_budget(c).consumer};
  const int most = uses_wgmma(c) || uses_tcgen05(c) || widens(c) ? kMaxSmemBytes : kMaxSmemBytesOfSm120;
  if (smem_bytes(c) > most) return {Rule::smem_exceeded, smem_bytes(c), most};
  return {};
}

}  // namespace tessera::indexer
