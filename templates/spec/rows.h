// Row operators: a chain of parts over rows of x, one pass over memory. What a Config is, which ones are legal, and how
// threads divide a row. The chain: tessera/spec/row_chain.h.
//
// A row has threads_of_row threads, of which thread t has vectors of 8 neighbouring columns, the j-th of them from
// column (j threads_of_row + t) 8 on, in registers as fp32 from the first part to the last. Sums over a row go through
// shuffles and, where a row has more than a warp, once through shared memory for each part that needs one; their order
// is fixed. A CTA has rows_of_cta rows, or a row is shared by the ctas_of_row CTAs of a cluster, which give each other
// the sums of their warps (st.async).
//
// A row that is too wide for that is read in turns_of_row turns, of which each leaves nothing in registers: once for
// each sum over the row, and once more for its values, which are written then. A part that gives a sum ends the chain
// in the turns that are made for it.
//
// Entry parameters, in this order:
//   const void* x; long long x_stride_row           elements; of a head with pages or `heads`, and then long long that
//                                                   of a token
//   const int* indices                              gather: an index outside of x gives a row of zeros
//   int x_rows                                      gather, combine, compress
//   const int* positions                            rope: row i has position i / heads
//   int heads                                       rope, pages
//   const int* slots                                sinks that are placed, pages, caches: a slot outside of them is
//   none int placed_rows                                 of sinks that are placed int cache_slots, page_size of pages
//   and caches: pages * page_size float eps                                       rmsnorm, layernorm, mhc_mix int rows
//   of each part in turn:
//     mhc_pre    const float* mix; of a product const float* product [parts, rows, 24], sum_squares [parts, rows],
//                mix_base [24], mix_scale [3]; float* mix_out [rows, 24]; int parts
//     mhc_post   const void* streams; long long its stride; void* streams_out; long long its stride; const float* mix,
//                next_mix: [rows, 24] of which the first 4 are pre, the next 4 post, the others comb; with a product
//                in place of next_mix const float* mix_weight [24, 4 columns]; float* product, sum_squares
//     join       const void* x2; long long its stride, with pages that of a head and that of a token
//     combine    const int* indices; const float* weights (if it has them)       [rows, rows that are added]
//     compress   const void* scores; long long its stride; const float* ape; const int* tokens
//     dequant    const void* scales; (column-major) long long floats from one block to the next; const float* factor
//     rope       const float* table (if it reads one); int its rows (of the first: all have as many)
//     residual   const void* residual; long long its stride; void* residual_out; long long its stride   (if stored);
//                with `heads` two strides each, of a head and of a token, and so of store
//     factor     const float* factor
//     mhc_mix    const float* sum_squares, mix_base, mix_scale
//     rmsnorm    const void* weight       layernorm  const void* weight, bias
//     store      void* y; long long its stride, in pages those of a page, a token and a head
//     quantize   void* values, scales; const float* global_scale (if it has one)
//     scaled_8   void* values; (in pages three strides as of store); float* scales; long long floats, or words,
//                from one block of columns, or four, to the next (column-major, packed)
//     cache      void* pages; long long bytes from one page to the next
// Launch: grid {ceil(rows / rows_of_cta) ctas_of_row, 1, 1} in clusters of {ctas_of_row, 1, 1}, block
// {threads_of_cta(), 1, 1}, smem_bytes() of shared memory, programmatic stream serialization. With mhc_pre of a product
// there are mix_ctas() more, which stand in front.
//
// mhc_post with a product divides its work otherwise: a warp has 16 rows at a time and kPartColumns columns of x and of
// each stream, a CTA the same columns of rows_of_cta rows, and then of those gridDim.y times as many further; the sums
// over these columns are a part of the product. threads_of_row is 2. Grid {parts_of_product(), min(ceil(rows /
// rows_of_cta), most_turns()), 1}. Of few rows threads_of_row is 16, rows_of_cta too: all warps have the same 16 rows,
// each a quarter of the columns and two of the streams that come out.
#pragma once

#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/row_facts.h"
#include "tessera/spec/row_cache.h"
#include "tessera/spec/row_chain.h"

namespace tessera::rows {

struct Config {
  DType dtype = DType::bf16;  // of x, residual, weights
  int columns = 4096;         // of a row, after the gate
  Conversion conversion = Conversion::software;
  int threads_of_row = 128;
  int rows_of_cta = 1;
  int ctas_of_row = 1;
  int turns_of_row = 1;
  RowChain chain{};

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kVector = 8;  // columns
inline constexpr int kMaxThreads = 1024, kMaxVectors = 12, kMaxCtas = 8;
inline constexpr int kWarp = 32;
inline constexpr int kMaxColumns = 1 << 28, kMaxAdds = 96, kMaxTurns = 1 << 15;
inline constexpr int kMaxCombined = 16, kMaxCompressed = 256;

TESSERA_HD constexpr int vectors_of_thread(const Config& c) {
  const long long together = static_cast<long long>(c.threads_of_row) * kVector;
  return static_cast<int>(ceil_div(c.columns, together * (c.turns_of_row < 1 ? 1 : c.turns_of_row)));
}
TESSERA_HD constexpr int threads_of_cta(const Config& c) { return c.threads_of_row / c.ctas_of_row * c.rows_of_cta; }
// Whether the last vectors of a row's threads lie behind its end.
TESSERA_HD constexpr bool has_tail(const Config& c) {
  return c.columns != static_cast<long long>(vectors_of_thread(c)) * c.turns_of_row * c.threads_of_row * kVector;
}

// Whether both halves that a rope turns into each other are with one thread.
TESSERA_HD constexpr bool has_own_halves(const Config& c, const RowStep& step) {
  return step.is_halves && c.turns_of_row == 1 && width(step, c.columns) % (2 * c.threads_of_row * kVector) == 0;
}
// Columns that neighbouring threads of a warp have side by side, of one row.
TESSERA_HD constexpr int columns_together(const Config& c) {
  return (c.threads_of_row < kWarp ? c.threads_of_row : kWarp) * kVector;
}
// Whether a lane's number with one bit changed is that of the lane that has the other half.
TESSERA_HD constexpr bool has_halves_of_lanes(const Config& c, const RowStep& step) {
  const int columns = width(step, c.columns);
  return (columns & (columns - 1)) == 0 && step.first % columns == 0;
}

// Sums over a whole row that a step takes.
TESSERA_HD constexpr int sums_of_step(const RowStep& step) {
  switch (step.kind) {
    case RowPart::rmsnorm:
      return 1;
    case RowPart::layernorm:
    case RowPart::softmax:
      return 2;
    case RowPart::scaled_8:
      return step.block == 0 ? 1 : 0;
    default:
      return 0;
  }
}
// Those of the steps before, by which a sum finds its place in shared memory.
TESSERA_HD constexpr int sums_before(const RowChain& chain, int step) {
  int sums = 0;
  for (int i = 0; i < step; ++i) sums += sums_of_step(chain.steps[i]);
  return sums;
}
// Whether sum `number` of a row is its largest element, or magnitude.
TESSERA_HD constexpr bool is_largest(const RowChain& chain, int number) {
  for (int i = 0; i < kMaxRowSteps; ++i) {
    if (sums_before(chain, i) != number || sums_of_step(chain.steps[i]) == 0) continue;
    return chain.steps[i].kind == RowPart::softmax || chain.steps[i].kind == RowPart::scaled_8;
  }
  return false;
}
// How often a row is read.
TESSERA_HD constexpr int reads_of_row(const Config& c) {
  return c.turns_of_row == 1 ? 1 : sums_before(c.chain, kMaxRowSteps) + 1;
}
TESSERA_HD constexpr int warps_of_row(const Config& c) { return c.threads_of_row / kWarp; }
TESSERA_HD constexpr int sums_bytes(const Config& c) {
  return c.threads_of_row > kWarp ? sums_before(c.chain, kMaxRowSteps) * c.rows_of_cta * warps_of_row(c) * 4 : 0;
}
// Where CTAs share a row: behind them an mbarrier for each sum, at which what its warps have arrives.
TESSERA_HD constexpr bool has_shared_sums(const Config& c) { return c.ctas_of_row > 1 && sums_bytes(c) > 0; }
TESSERA_HD constexpr int barriers_at(const Config& c) { return static_cast<int>(round_up(sums_bytes(c), 8)); }
TESSERA_HD constexpr int barriers_end(const Config& c) {
  return has_shared_sums(c) ? barriers_at(c) + 8 * sums_before(c.chain, kMaxRowSteps) : sums_bytes(c);
}
// mhc_post with a product: rows of a warp, weights in tiles of 8 rows, split in two bf16 numbers.
inline constexpr int kRowsOfWarp = 16, kMixTiles = kMixColumns / 8;
inline constexpr int kSplitBytes = kMixColumns * kStreams * kPartColumns * 4;
// Few rows: threads for each row of a tile, and sums of a lane that its CTA's warps add.
inline constexpr int kThreadsOfTile = 16, kSumsOfTile = 4 * kMixTiles + 2;
TESSERA_HD constexpr bool shares_tiles(const Config& c) {
  return ends_in_product(c.chain) && c.threads_of_row == kThreadsOfTile;
}
// CTAs that share the rows of a part: of those that hold Hopper's multiprocessors alone three times as many in all, or
// a few less, of others as many as it holds at a time. Of few rows each multiprocessor has one, which reads its weights
// once for two tiles (64 rows of 7,168 columns on an H200: 7.7 us, 8.7 with a CTA for each tile).
TESSERA_HD constexpr int most_turns(const Config& c) {
  const int turns = (shares_tiles(c) ? 1 : c.rows_of_cta <= 64 ? 2 : 3) * 132 / parts_of_product(c.columns);
  return turns < 1 ? 1 : turns < 16 ? turns : 16;
}
// What a row takes of its mix, then blocks of 32 columns that are on their way to a warp: 16 rows of x and of each
// stream. There are as many as fit beside another CTA, or of more than 64 rows alone in Hopper's shared memory.
inline constexpr int kRemixOfRow = kMixColumns - kMixPost, kBlockBytes = kRowsOfWarp * 32 * 2 * (kStreams + 1);
inline constexpr int kMostStages = 4;
TESSERA_HD constexpr int ring_of_product(const Config& c) { return kSplitBytes + c.rows_of_cta * kRemixOfRow * 4; }
TESSERA_HD constexpr int smem_of_product(const Config& c) {
  return c.conversion == Conversion::software && c.rows_of_cta > 64 ? kMaxSmemBytes : kMaxSmemBytesOfSm120;
}
TESSERA_HD constexpr int stages_of_product(const Config& c) {
  const int fit = (smem_of_product(c) - ring_of_product(c)) / (c.rows_of_cta / kRowsOfWarp * kBlockBytes);
  return fit < kMostStages ? fit : kMostStages;
}
// mhc_pre of a product: the sums that pre is made of, of each warp that takes parts, lie behind the sums over rows.
// Mixes are written by CTAs of their own, in front of those of rows, where a row has 16 lanes, of few rows 32, so that
// a lane's loads of all parts are on their way at once.
inline constexpr int kTotalsFloats = 8, kMostSlices = 4;
TESSERA_HD constexpr int lanes_of_mix(const Config& c) { return c.ctas_of_row > 1 ? 32 : 16; }
TESSERA_HD constexpr int slices_of_totals(const Config& c) {
  const int warps = c.threads_of_row / c.ctas_of_row / kWarp;
  return warps <= 1 ? 0 : warps < kMostSlices ? warps : kMostSlices;
}
TESSERA_HD constexpr int rows_of_mix(const Config& c) { return threads_of_cta(c) / lanes_of_mix(c); }
TESSERA_HD constexpr int mix_ctas(const Config& c, int rows) {
  return static_cast<int>(ceil_div(rows, rows_of_mix(c) * c.ctas_of_row)) * c.ctas_of_row;
}
// mhc_post: what a row's mix of the streams takes lies behind the sums.
inline constexpr int kRemixOfStream = 8, kRemixFloats = kStreams * kRemixOfStream;
TESSERA_HD constexpr int remix_at(const Config& c) { return static_cast<int>(round_up(barriers_end(c), 16)); }
TESSERA_HD constexpr int smem_bytes(const Config& c) {
  if (shares_tiles(c)) return kThreadsOfTile * kRowsOfWarp * kSumsOfTile * 4;
  if (ends_in_product(c.chain))
    return ring_of_product(c) + stages_of_product(c) * (c.rows_of_cta / kRowsOfWarp) * kBlockBytes;
  if (begins_with_product(c.chain)) return remix_at(c) + c.rows_of_cta * slices_of_totals(c) * kTotalsFloats * 4;
  return has_part(c.chain, RowPart::mhc_post) ? remix_at(c) + c.rows_of_cta * kRemixFloats * 4 : barriers_end(c);
}

// Whether a wide row's norm comes first: its threads keep what they read as it is, in half of the registers, until the
// sum is known, and CTAs have one row.
TESSERA_HD constexpr bool keeps_as_read(const Config& c) {
  if (dtype_bytes(c.dtype) != 2 || c.ctas_of_row > 1 || c.turns_of_row > 1 || c.threads_of_row < 128 ||
      vectors_of_thread(c) < 4)
    return false;
  for (const RowStep& step : c.chain.steps) {
    if (step.kind == RowPart::gather || step.kind == RowPart::join) continue;
    return step.kind == RowPart::rmsnorm;
  }
  return false;
}

// Tensors of weights that a step takes.
TESSERA_HD constexpr int weights_of_step(const RowStep& step) {
  if (step.kind != RowPart::rmsnorm && step.kind != RowPart::layernorm) return 0;
  return (step.has_weight ? 1 : 0) + (step.kind == RowPart::layernorm ? 1 : 0);
}
TESSERA_HD constexpr int weights_before(const RowChain& chain, int step) {
  int weights = 0;
  for (int i = 0; i < step; ++i) weights += weights_of_step(chain.steps[i]);
  return weights;
}
// Whether all norms' weights are loaded before x, and if not, whether they are before a norm's sum is known: they take
// 4 registers a vector, 8 of fp32.
TESSERA_HD constexpr bool loads_weights_first(const Config& c) {
  const int weights = weights_before(c.chain, kMaxRowSteps);
  return c.turns_of_row == 1 && weights > 0 && weights * vectors_of_thread(c) * dtype_bytes(c.dtype) <= 4;
}
TESSERA_HD constexpr bool loads_weights_early(const Config& c) {
  return !keeps_as_read(c) && vectors_of_thread(c) * dtype_bytes(c.dtype) <= 8;
}

// CTAs of an SM, for __launch_bounds__: 64 registers a thread for rows that take few, 128 for others. Streams take 40
// for each vector and those of their mix, tokens that are compressed 64 to 96.
TESSERA_HD constexpr int min_ctas(const Config& c) {
  if (c.ctas_of_row > 1) return 1;
  if (shares_tiles(c)) return 1;
  if (ends_in_product(c.chain)) return threads_of_cta(c) >= 256 ? 1 : 256 / threads_of_cta(c);
  const int vectors = vectors_of_thread(c);
  const bool has_streams = has_part(c.chain, RowPart::mhc_post);
  int threads = vectors <= 2 ? 1024 : vectors <= 6 ? 512 : 256;
  if (has_streams) threads = vectors <= 1 ? 512 : 256;
  if (source_of(c.chain) == RowPart::compress) threads = dtype_bytes(c.dtype) == 4 ? 256 : 512;
  return threads_of_cta(c) >= threads ? 1 : threads / threads_of_cta(c);
}

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_floating,        // bytes of an element of x; 4
  columns_not_vectors,       // columns; 8
  threads_not_power_of_two,  // threads of a row; 8
  threads_out_of_range,      // threads of a CTA; 1,024
  threads_not_warps,         // threads of a CTA; 32
  ctas_out_of_range,         // CTAs of a row; 8
  shared_rows_together,      // rows of a CTA; 1
  too_many_vectors,          // vectors of a thread; 12
  too_many_columns,          // columns; 2^28
  turns_out_of_range,        // turns; 32,768
  turns_beside_others,       // number of the step; 0
  turns_need_threads,        // threads of a row; those that it needs
  range_outside_row,         // the last column of a step; columns
  range_not_vectors,         // the first column of a step, or its number of columns; 8
  source_after_others,       // number of the step; 0
  block_not_in_range,        // columns of a step; the block that must divide them
  block_wider_than_threads,  // columns of a block; columns that neighbouring threads of a row have
  block_off_boundary,        // the first column of a step; the block that must divide it
  rope_pairs_apart,          // columns from one half to the other; 8
  rope_across_warps,         // the last column of a step; columns of a warp's neighbours
  hadamard_size,             // block; 256
  softcap_not_positive,      // limit; 1
  cache_columns,             // columns of a step; those of the cache's layout
  mix_columns,               // columns of a step, or its first; 24, or 0
  mix_out_of_range,          // hidden, or iterations; 1
  join_outside_row,          // the first column of x2; columns
  combine_out_of_range,      // rows that are added; 16
  compress_out_of_range,     // tokens of an entry; 256
  gather_beside_rows,        // number of the step; 0
  paged_beside_others,       // number of the step; 0
  heads_beside_others,       // number of the step; 0
  paged_scales,              // columns of a scale, or 0; -1
  store_not_floating,        // bytes of an element of y; 4
  global_without_nvfp4,      // the format's block; 16
  no_sink,                   // steps; 0
  product_not_bf16,          // bytes of an element of x; 2
  product_beside_others,     // steps; 1
  product_rows,              // rows of a CTA; 16
  product_smem,              // rows of a CTA; bytes of shared memory that they have
  scale_not_power_of_two,    // columns of a scale; 8
};

TESSERA_HD constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}
// Columns that belong together in a step, one after the other: those of a scale, of a transform, of both halves.
TESSERA_HD constexpr int block_of_step(const RowStep& step, int columns) {
  switch (step.kind) {
    case RowPart::quantize:
      return block_elements(step.format);
    case RowPart::scaled_8:
      return step.block > 0 ? step.block : 1;
    case RowPart::hadamard:
      return step.block;
    case RowPart::cache:
      return cache_layout(step.cache).block;
    case RowPart::rope:
      return step.is_halves ? width(step, columns) : 2;
    default:
      return 1;
  }
}

// Whether a step finds its columns as they were read, in bf16.
TESSERA_HD constexpr bool is_as_read(const Config& c, int number) {
  const RowPart source = source_of(c.chain);
  if (c.dtype != DType::bf16 || (source != RowPart::end && source != RowPart::join)) return false;
  const RowStep& sink = c.chain.steps[number];
  for (int i = 0; i < number; ++i) {
    const RowStep& step = c.chain.steps[i];
    if (is_row_sink(step.kind) || step.kind == RowPart::gather || step.kind == source) continue;
    if (step.first <= last_column(sink, c.columns) && last_column(step, c.columns) >= sink.first) return false;
  }
  return true;
}

// With pages a row is a head of a token: slots and strides are those of tokens.
TESSERA_HD constexpr bool goes_with_pages(const RowStep& step) {
  if (step.kind == RowPart::gather || step.kind == RowPart::cache || step.is_placed) return false;
  return !is_row_source(step.kind) || step.kind == RowPart::join;
}

// What has strides of heads and tokens, or does not care.
TESSERA_HD constexpr bool goes_with_heads(const RowStep& step) {
  if (step.kind == RowPart::gather || step.is_placed) return false;
  return !is_row_source(step.kind) || step.kind == RowPart::join || step.kind == RowPart::gate;
}

// What works on a part of a row alone, or gives a sum.
TESSERA_HD constexpr bool goes_in_turns(const RowStep& step) {
  switch (step.kind) {
    case RowPart::join:
    case RowPart::mhc_pre:
    case RowPart::mhc_post:
    case RowPart::mhc_mix:
    case RowPart::cache:
      return false;
    default:
      return !step.is_paged;
  }
}
// Threads that a row in turns needs: fp32 sums of one are no longer than those of other rows, or than a 1,024th of it.
TESSERA_HD constexpr int threads_in_turns(int columns) {
  const int needed = static_cast<int>(ceil_div(columns, kMaxAdds));
  return needed < kMaxThreads ? needed : kMaxThreads;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_step(const Config& c, int number) {
  const RowStep& step = c.chain.steps[number];
  const int last = last_column(step, c.columns), columns = width(step, c.columns);
  const bool is_list = step.kind == RowPart::gather || step.kind == RowPart::heads;
  const bool is_source = is_list || is_row_source(step.kind);
  if (c.turns_of_row > 1 && !goes_in_turns(step)) return {Rule::turns_beside_others, number, 0};
  if (step.kind == RowPart::join && step.first >= c.columns) return {Rule::join_outside_row, step.first, c.columns};
  if (last >= c.columns || step.first > last) return {Rule::range_outside_row, last, c.columns};
  if (step.first % kVector != 0) return {Rule::range_not_vectors, step.first, kVector};
  if (columns % kVector != 0) return {Rule::range_not_vectors, columns, kVector};
  const RowPart before = c.chain.steps[0].kind;
  if (is_source && number > 0 && (is_list || number > 1 || (before != RowPart::gather && before != RowPart::heads)))
    return {Rule::source_after_others, number, 0};
  if (step.kind == RowPart::hadamard && step.block != 64 && step.block != 128 && step.block != 256)
    return {Rule::hadamard_size, step.block, 256};
  if (step.kind == RowPart::softcap && step.limit < 1) return {Rule::softcap_not_positive, step.limit, 1};
  if (step.kind == RowPart::cache && columns != tessera::cache_columns(step.cache))
    return {Rule::cache_columns, columns, tessera::cache_columns(step.cache)};
  if (step.kind == RowPart::mhc_mix && (step.first != 0 || columns != kMixColumns))
    return {Rule::mix_columns, step.first != 0 ? step.first : columns, step.first != 0 ? 0 : kMixColumns};
  if (step.kind == RowPart::mhc_pre && step.iterations < 1) return {Rule::mix_out_of_range, step.iterations, 1};
  if (step.kind == RowPart::mhc_mix && (step.hidden < 1 || step.iterations < 1))
    return {Rule::mix_out_of_range, step.hidden < 1 ? step.hidden : step.iterations, 1};
  if (step.kind == RowPart::combine && (step.block < 1 || step.block > kMaxCombined))
    return {Rule::combine_out_of_range, step.block, kMaxCombined};
  if (step.kind == RowPart::compress &&
      (step.block < 1 || step.block > kMaxCompressed || (step.block & (step.block - 1)) != 0))
    return {Rule::compress_out_of_range, step.block, kMaxCompressed};
  if (step.kind == RowPart::gather && (has_part(c.chain, RowPart::combine) || has_part(c.chain, RowPart::compress)))
    return {Rule::gather_beside_rows, number, 0};
  if (has_paged_sink(c.chain) && !goes_with_pages(step)) return {Rule::paged_beside_others, number, 0};
  if (has_part(c.chain, RowPart::heads) && !goes_with_heads(step)) return {Rule::heads_beside_others, number, 0};
  if (step.is_paged && step.kind == RowPart::scaled_8 && step.block >= 0) return {Rule::paged_scales, step.block, -1};
  if (step.kind == RowPart::scaled_8 && step.block > 0 &&
      (step.block < kVector || (step.block & (step.block - 1)) != 0))
    return {Rule::scale_not_power_of_two, step.block, kVector};
  if (step.kind == RowPart::store && !is_floating(stored_type(step, c.dtype)))
    return {Rule::store_not_floating, dtype_bytes(step.dtype), 4};
  if (step.has_global && (step.is_e4m3 || step.format != BlockFormat::nvfp4))
    return {Rule::global_without_nvfp4, step.is_e4m3 ? step.block : block_elements(step.format), 16};
  if (step.kind == RowPart::dequant) {
    const int of_scale = step.is_e4m3 ? step.block : block_elements(step.format);
    if (step.is_e4m3 && of_scale <= 0) return {};  // of a row, or of all
    if (of_scale < kVector || of_scale % kVector != 0) return {Rule::range_not_vectors, of_scale, kVector};
    return columns % of_scale != 0 ? Verdict<Rule>{Rule::block_not_in_range, columns, of_scale} : Verdict<Rule>{};
  }
  if (step.kind == RowPart::rope && step.is_halves && columns < 2 * kVector)
    return {Rule::rope_pairs_apart, columns / 2, kVector};
  const int block = block_of_step(step, c.columns);
  if (block <= kVector || (step.kind == RowPart::rope && has_own_halves(c, step))) return {};
  const int together = columns_together(c);
  if (columns % block != 0 && step.kind != RowPart::cache) return {Rule::block_not_in_range, columns, block};
  if (block > together) return {Rule::block_wider_than_threads, block, together};
  // Any columns, but with threads of one warp.
  if (step.kind == RowPart::rope)
    return step.first / together == last / together ? Verdict<Rule>{}
                                                    : Verdict<Rule>{Rule::rope_across_warps, last, together};
  if (step.first % block != 0) return {Rule::block_off_boundary, step.first, block};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_product(const Config& c) {
  if (c.dtype != DType::bf16) return {Rule::product_not_bf16, dtype_bytes(c.dtype), 2};
  if (step_count(c.chain) != 1) return {Rule::product_beside_others, step_count(c.chain), 1};
  if (c.threads_of_row != 2 && c.threads_of_row != kThreadsOfTile)
    return {Rule::threads_not_power_of_two, c.threads_of_row, 2};
  if (shares_tiles(c) && c.rows_of_cta != kRowsOfWarp) return {Rule::product_rows, c.rows_of_cta, kRowsOfWarp};
  if (c.rows_of_cta < kRowsOfWarp || c.rows_of_cta % kRowsOfWarp != 0 || c.rows_of_cta > 256)
    return {Rule::product_rows, c.rows_of_cta, kRowsOfWarp};
  if (stages_of_product(c) < 2) return {Rule::product_smem, c.rows_of_cta, smem_of_product(c)};
  return c.ctas_of_row == 1 ? Verdict<Rule>{} : Verdict<Rule>{Rule::ctas_out_of_range, c.ctas_of_row, 1};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (!is_floating(c.dtype)) return {Rule::dtype_not_floating, dtype_bytes(c.dtype), 4};
  if (c.columns < kVector || c.columns % kVector != 0) return {Rule::columns_not_vectors, c.columns, kVector};
  if (ends_in_product(c.chain)) return why_invalid_product(c);
  const int threads = c.threads_of_row;
  if (threads < 8 || (threads & (threads - 1)) != 0) return {Rule::threads_not_power_of_two, threads, 8};
  const int ctas = c.ctas_of_row;
  if (ctas < 1 || ctas > kMaxCtas || (ctas & (ctas - 1)) != 0) return {Rule::ctas_out_of_range, ctas, kMaxCtas};
  if (ctas > 1 && c.rows_of_cta != 1) return {Rule::shared_rows_together, c.rows_of_cta, 1};
  const long long of_cta = static_cast<long long>(threads / ctas) * c.rows_of_cta;
  if (c.rows_of_cta < 1 || of_cta > kMaxThreads) return {Rule::threads_out_of_range, of_cta, kMaxThreads};
  if (threads_of_cta(c) % kWarp != 0) return {Rule::threads_not_warps, threads_of_cta(c), kWarp};
  if (c.columns > kMaxColumns) return {Rule::too_many_columns, c.columns, kMaxColumns};
  if (c.turns_of_row < 1 || c.turns_of_row > kMaxTurns) return {Rule::turns_out_of_range, c.turns_of_row, kMaxTurns};
  if (c.turns_of_row > 1 && threads < threads_in_turns(c.columns))
    return {Rule::turns_need_threads, threads, threads_in_turns(c.columns)};
  if (vectors_of_thread(c) > kMaxVectors) return {Rule::too_many_vectors, vectors_of_thread(c), kMaxVectors};
  bool has_sink = false;
  for (int i = 0; i < step_count(c.chain); ++i) {
    const Verdict<Rule> verdict = why_invalid_step(c, i);
    if (!verdict.ok()) return verdict;
    has_sink = has_sink || is_row_sink(c.chain.steps[i].kind) || c.chain.steps[i].is_stored;
  }
  if (!has_sink) return {Rule::no_sink, step_count(c.chain), 0};
  return {};
}

}  // namespace tessera::rows
