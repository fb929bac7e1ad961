// Matrix product on data-centre Blackwell (tcgen05): what a Config is, which ones are legal, and everything that
// follows from one: shared memory, Tensor Memory, warp roles, TMA boxes. Planner and device code evaluate the same
// functions.
//
//   d[i, m, n] = activation(alpha * scale_a * scale_b * sum_k a[i, m, k] * b[i, n, k] + beta * c[i, m, n] + bias[n])
//
// or with a gate, factor = alpha * scale_a * scale_b (of up, with dual: alpha * scale_a * scale_b2), fp32 throughout:
//
//   d = f(factor * gate + bias) * (factor * up + bias), f and limits: facts.gate_activation, facts.gate_limit
//   dual         gate = A B^T, up = A B2^T
//   interleaved  columns of A B^T in turn: `interleave` of the gate, as many of up; D has n / 2 columns
//
// for i < l. A is [l, m, k], B [l, n, k]; with a layout mn_major [l, k, m] and [l, k, n], which packed and padded 4-bit
// types do not have. C and D are [l, m, n]. Rows lie lda, ldb, ldc, ldd elements
// apart, matrices a_stride_l, ... A block-scaled operand's element is its value times the scale of its block; its
// scales come in tiles of 128 rows by 4 blocks (tessera/spec/block_scale.h), and none that belongs to no element
// reaches a result. Sums are fp32; C and bias have the type of D. Of 8-bit integers the sums are s32, which wrap around
// at their ends and become fp32 before anything else, or are D as they are. D may be block-scaled itself, along its
// columns, as quantize makes it (MX scales rounded up; NVFP4's factor is scale_d, 1 if null): values, and scales in
// tiles, of which bytes that belong to no block become 0. It is then ready to be the A of another product.
//
// Groups of rows have a B each: l is their number, B is [l, n, k]. Contiguous ones stand one behind the other in A and
// D [m, ...], group g from row groups[g] to groups[g + 1]; the scales of each begin with a tile of their own, so sfa
// has as many as all groups' rows, divided by 128 and rounded up one by one, add up to. Masked ones have A and D [l, m,
// ...], and group g's first groups[g] rows count. `groups` is read by the device: the host need not know it. Scales of
// a block-scaled D lie like those of A: row r of a group in its tile r / 128. Rows of no group are left as they were.
//
// The instruction multiplies 128 rows, TMEM's lanes, by 16 to 256 rows of the other operand, TMEM's columns. With
// tile_m = 128 the lanes are rows of A; with fewer rows the operands change places: the lanes are 128 rows of B, and a
// tile of D is stored transposed. A pair of CTAs (cluster_m = 2; cluster_n = 2 with changed places) has 128 lanes each,
// and each holds one half of the other operand: one CTA of the pair issues for both. Two pairs may be a cluster: along
// m (cluster_m = 4) they share the columns' operand, along n (cluster_m = 2, cluster_n = 2) the lanes'. Of what is
// shared each CTA loads a half, into its own memory and that of the CTA of the other pair that has the same rows.
//
// A CTA takes tiles in turn and walks along K in steps of 128 bytes of shared memory a row. Warp 0 (load) loads A, B
// and scales into a ring of `stages` slots; warp 1 (multiply) copies scales to TMEM and issues the products; warp 2
// (allocate) allocates TMEM; four more store. TMEM holds `accumulators` tiles, so that with two one is stored while the
// next is summed. CTAs along split_k share the K of one tile; each sums its part, and then each adds up, in a fixed
// order, the columns that it stores.
//
// Tensor maps: interleave none, element strides 1, zero fill:
//   a, b, b2   dims {k, rows, l}, rows being m or n, each at least 1; {rows, k, l} where MN-major; boxes operand_box;
//              128-byte swizzle, of 32-byte units for MN-major fp32. FP4 values
//              are packed in memory; in shared memory too, unless the other operand is mxfp8: k
//              is then rounded up to 128 here, and what lies behind k in a row may be anything
//   sfa, sfb,  block-scaled types only: dims {256, ceil(k / block / 4), l * ceil(rows / 128)} of u16, scale_box
//   sfb2
//   d          dims {columns of d, m, l}; d_box, d_swizzle. A row that does not end on a multiple of 16 bytes, or a
//              pitch that is none, is stored without the map; so is a block-scaled D, which has no map
//
// Entry parameters, in this order:
//   const __grid_constant__ TensorMap a, b, b2 (dual), sfa, sfb (block-scaled types), sfb2 (both), d (if it has a map)
//   d_pointer; int* groups (grouping); sfd (D block-scaled); float* scale_d (nvfp4, may be null); c (facts.c); bias
//   (facts.bias); float* scale_a, scale_b, scale_b2 (has_tensor_scales; the last one with dual; may be null: 1) int m,
//   n (rows of B), k, l; long long ldd, d_stride_l; long long ldc, c_stride_l (facts.c only); float alpha (unless D
//   is s32); float beta (c)
// Launch: clusters of cluster_size() CTAs along x; grid.x a multiple of that; block num_threads(); dynamic shared
// memory smem_layout().total_bytes.
//
// Made after the PTX manual, checked by ptxas and by the emulator of this project; no Blackwell device has run it.
#pragma once

#include "spec/gemm_tcgen05_facts.h"
#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/product_facts.h"
#include "spec/product_walk.h"
#include "spec/smem_descriptor.h"
#include "tessera/spec/instruction_descriptor.h"
#include "tessera/spec/types.h"

namespace tessera::gemm_tcgen05 {

using common::BarrierRow;
using common::Role;
using common::SmemRegion;
using TmaBox = common::TmaBox<3>;

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  ProductFacts facts;
  int tile_m = 128;      // rows of A that a CTA works on at a time
  int tile_n = 128;      // rows of B
  int stages = 5;        // slots of the ring
  int accumulators = 2;  // tiles in Tensor Memory
  int cluster_m = 1;     // 2: a pair of CTAs; 4: two pairs that share rows of B
  int cluster_n = 1;  // 2: a pair of CTAs, with operands that have changed places; else two pairs that share rows of A
  int split_k = 1;    // CTAs that share the K of a tile
  int raster = 8;     // tiles of clusters along M that are walked before the next one along N

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// The limits of sm_100a that the rules use.
inline constexpr int kMaxStages = 16;
inline constexpr int kMaxClusterSize = 8;
inline constexpr int kStagingSlots = 2;    // for each storing warp
inline constexpr int kStoreRows = 32;      // lanes of a warp
inline constexpr int kFirstStoreWarp = 4;  // warps 0 to 3: load, multiply, allocate, idle
inline constexpr int kStoreWarps = 4;

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  operand_pair,               // A's type; B's type
  output_type,                // bytes of D's type; 4
  finished_sums,              // 1; 0
  layout_of_narrow,           // bits of a value; 8
  layout_of_groups,           // 1; 0
  gate_and_addend,            // 1; 0
  interleave_not_dividing,    // interleave; columns of D that are stored at a time
  few_rows_of_gate,           // tile_m; 128
  split_k_of_gate,            // split_k; 1
  split_k_of_groups,          // split_k; 1
  part_of_block,              // columns of D that a CTA stores; the block that they must be a multiple of
  tile_m_out_of_range,        // tile_m; 128
  tile_n_of_few_rows,         // tile_n; 128, which it must be with tile_m < 128
  columns_not_multiple,       // the smaller operand's rows of a tile; the multiple that they must be
  columns_out_of_range,       // the same; 256 (N of the instruction)
  part_of_panel,              // rows of an operand that a CTA loads; the rows of a panel, MN-major
  stages_out_of_range,        // stages; 16
  accumulators_out_of_range,  // accumulators; 2
  cluster_m_out_of_range,     // cluster_m; the most that is allowed, of 1, 2 and 4
  cluster_n_out_of_range,     // cluster_n; the most that is allowed
  split_k_out_of_range,       // split_k; 8
  split_k_of_pair,            // split_k; 1
  part_of_d_too_small,        // columns of TMEM that a CTA stores; 16
  partial_sums_exceed_ring,   // bytes of a tile in fp32; bytes of the ring
  raster_out_of_range,        // raster; 1,024
  tensor_memory_exceeded,     // columns; 512
  shared_memory_exceeded,     // bytes; 232,448
};

// As spec/gemm_tcgen05_facts.h has them.
TESSERA_HD constexpr ProductTiles tiles(const Config& c) {
  return {c.tile_m, c.tile_n, c.cluster_m, c.cluster_n, c.split_k};
}
TESSERA_HD constexpr Tcgen05Kind kind(const Config& c) { return kind(c.facts); }
TESSERA_HD constexpr bool stores_sums(const Config& c) { return stores_sums(c.facts); }
TESSERA_HD constexpr bool is_quantized(const Config& c) { return is_quantized(c.facts); }
TESSERA_HD constexpr int columns_of_d(const Config& c, int n) { return columns_of_d(c.facts, n); }
TESSERA_HD constexpr int smem_bits(const Config& c) { return smem_bits(c.facts); }
TESSERA_HD constexpr int tile_k(const Config& c) { return tile_k(c.facts); }
TESSERA_HD constexpr int chunk_k(const Config& c) { return chunk_k(c.facts); }
TESSERA_HD constexpr bool is_swapped(const Config& c) { return is_swapped(tiles(c)); }
TESSERA_HD constexpr int pair_size(const Config& c) { return pair_size(tiles(c)); }
TESSERA_HD constexpr int columns(const Config& c) { return columns(tiles(c)); }
TESSERA_HD constexpr int column_rows(const Config& c) { return column_rows(tiles(c)); }

TESSERA_HD constexpr bool is_scaled(const Config& c) { return layout::is_block_scaled(kind(c)); }
TESSERA_HD constexpr bool is_integer(const Config& c) { return kind(c) == Tcgen05Kind::i8; }
// An fp32 factor for each operand: of 8-bit tensors, and NVFP4's.
TESSERA_HD constexpr bool has_tensor_scales(const Config& c) {
  return kind(c) == Tcgen05Kind::f8f6f4 || kind(c) == Tcgen05Kind::mxf4nvf4 || (is_integer(c) && !stores_sums(c));
}
TESSERA_HD constexpr int products(const Config& c) { return c.facts.gate == Gate::dual ? 2 : 1; }
TESSERA_HD constexpr int cluster_size(const Config& c) { return c.cluster_m * c.cluster_n * c.split_k; }
// Pairs in a cluster, and those that have the same rows of an operand.
TESSERA_HD constexpr int pairs(const Config& c) { return c.cluster_m * c.cluster_n / pair_size(c); }
TESSERA_HD constexpr int sharing_pairs(const Config& c, bool is_of_lanes) {
  return is_swapped(c) ? 1 : is_of_lanes ? c.cluster_n : c.cluster_m / pair_size(c);
}
TESSERA_HD constexpr int num_threads(const Config&) { return 32 * (kFirstStoreWarp + kStoreWarps); }

TESSERA_HD constexpr OperandType lane_type(const Config& c) { return is_swapped(c) ? c.facts.b_type : c.facts.a_type; }
TESSERA_HD constexpr OperandType column_type(const Config& c) {
  return is_swapped(c) ? c.facts.a_type : c.facts.b_type;
}
TESSERA_HD constexpr Layout operand_layout(const Config& c, bool is_of_lanes) {
  return is_of_lanes == is_swapped(c) ? c.facts.b_layout : c.facts.a_layout;
}
TESSERA_HD constexpr bool is_mn_major(const Config& c, bool is_of_lanes) {
  return operand_layout(c, is_of_lanes) == Layout::mn_major;
}
// Columns of D that one CTA stores.
TESSERA_HD constexpr int stored_columns(const Config& c) { return columns_of_d(c, columns(c)) / c.split_k; }
// Columns of TMEM of all products of a tile.
TESSERA_HD constexpr int sum_columns(const Config& c) { return products(c) * columns(c); }

// An MN-major operand comes in panels of 128 bytes of its rows' dimension, a step of K tall: as many elements wide as
// tall. The swizzle of fp32 values, of which an instruction takes them in units of 32 bytes, repeats after 4 rows.
TESSERA_HD constexpr int panel_rows(const Config& c) { return tile_k(c); }
TESSERA_HD constexpr int panel_bytes(const Config& c) { return tile_k(c) * kStepBytes; }
TESSERA_HD constexpr bool has_wide_atoms(const Config& c, bool is_of_lanes) {
  return is_mn_major(c, is_of_lanes) && kind(c) == Tcgen05Kind::tf32;
}
TESSERA_HD constexpr layout::SmemDescriptor operand_descriptor(const Config& c, bool is_of_lanes) {
  const bool is_wide = has_wide_atoms(c, is_of_lanes);
  layout::SmemDescriptor d;
  d.leading_bytes = is_mn_major(c, is_of_lanes) ? panel_bytes(c) : 16;
  d.stride_bytes = (is_wide ? 4 : 8) * kStepBytes;
  d.layout = is_wide ? layout::SmemLayout::b128_atom_32b : layout::SmemLayout::b128;
  return d;
}
// From one instruction's part of K to the next.
TESSERA_HD constexpr int chunk_stride_bytes(const Config& c, bool is_of_lanes) {
  return is_mn_major(c, is_of_lanes) ? chunk_k(c) * kStepBytes : kChunkBytes;
}
// Of an operand whose values are unpacked on their way to shared memory.
TESSERA_HD constexpr bool is_padded(const Config& c, OperandType type) { return operand_bits(type) < smem_bits(c); }
// Rows of an operand that a CTA loads, for itself and the CTA of the other pair where they share them.
TESSERA_HD constexpr int loaded_rows(const Config& c, bool is_of_lanes) {
  return (is_of_lanes ? kLanes : column_rows(c)) / sharing_pairs(c, is_of_lanes);
}
// Bytes that a copy of `rows` rows of one step counts at its barrier: those that it reads.
TESSERA_HD constexpr int operand_bytes(const Config& c, OperandType type, int rows) {
  return rows * kStepBytes / smem_bits(c) * operand_bits(type);
}

// Scales: elements of a block, tiles of 4 blocks in a step, tiles of 128 rows that a tile's columns may touch.
TESSERA_HD constexpr int scale_block(const Config& c) { return kind(c) == Tcgen05Kind::mxf4nvf4 ? 16 : 32; }
TESSERA_HD constexpr int scale_tiles(const Config& c) { return tile_k(c) / scale_block(c) / kTileBlocks; }
TESSERA_HD constexpr int column_blocks(const Config& c) { return (columns(c) + kTileRows - 1) / kTileRows; }
// The rows of scales of one operand in one step: 512 bytes for each tile.
TESSERA_HD constexpr int scale_slot_bytes(const Config& c, int row_blocks) {
  return is_scaled(c) ? row_blocks * scale_tiles(c) * kTileBytes : 0;
}
// CTAs that want the same scales and load a part of them each, if there are as many parts: in a cluster of two pairs.
// Those of the columns are wanted whole by both CTAs of a pair.
TESSERA_HD constexpr int scale_sharers(const Config& c, bool is_of_lanes) {
  return pairs(c) == 1 ? 1 : sharing_pairs(c, is_of_lanes) * (is_of_lanes ? 1 : pair_size(c));
}
// Parts of one step's scales: first by row blocks, then by tiles along K.
TESSERA_HD constexpr int scale_parts_of_rows(const Config& c, bool is_of_lanes) {
  const int row_blocks = is_of_lanes ? 1 : column_blocks(c), sharers = scale_sharers(c, is_of_lanes);
  return sharers < row_blocks ? sharers : row_blocks;
}
TESSERA_HD constexpr int scale_parts_of_k(const Config& c, bool is_of_lanes) {
  const int sharers = scale_sharers(c, is_of_lanes) / scale_parts_of_rows(c, is_of_lanes);
  return sharers < scale_tiles(c) ? sharers : scale_tiles(c);
}
// Columns of TMEM that the scales of one step take: four for each tile.
TESSERA_HD constexpr int scale_columns(const Config& c) {
  return is_scaled(c) ? 4 * scale_tiles(c) * (1 + products(c) * column_blocks(c)) : 0;
}
// Steps whose scales are in TMEM at a time: as many as the ring has, where there is room.
TESSERA_HD constexpr int scale_slots(const Config& c) {
  if (!is_scaled(c)) return 0;
  const int room = (kTmemColumns - c.accumulators * sum_columns(c)) / scale_columns(c);
  return room < c.stages ? room : c.stages;
}
// Where a scale's tile holds blocks past K, in the step that K ends in, an instruction would read them.
TESSERA_HD constexpr bool reads_past_k(const Config& c) { return layout::is_four_bit(kind(c)); }

struct TmemLayout {
  int accumulators = 0;  // first column of each: i * sum_columns(): [product][columns]
  int scales = 0;        // first column: [slot][lanes' tiles, then [product][tile][row block] of the other side][4]
  int used = 0;
  int allocated = 0;  // the power of two that tcgen05.alloc takes
};

TESSERA_HD constexpr TmemLayout tmem_layout(const Config& c) {
  TmemLayout map;
  map.scales = c.accumulators * sum_columns(c);
  map.used = map.scales + scale_slots(c) * scale_columns(c);
  map.allocated = 32;
  while (map.allocated < map.used) map.allocated *= 2;
  return map;
}

// The first scale's byte in its cell: 4-bit kinds read 4 (NVFP4) or 2 of it, mxf8f6f4 one.
TESSERA_HD constexpr int scale_id(const Config& c, int chunk) {
  return kind(c) == Tcgen05Kind::mxf4nvf4 ? 0 : kind(c) == Tcgen05Kind::mxf4 ? chunk % 2 * 2 : chunk;
}
TESSERA_HD constexpr int scale_tile(const Config& c, int chunk) { return chunk * scale_tiles(c) / kChunks; }

TESSERA_HD constexpr layout::InstructionDescriptor instruction(const Config& c, int chunk) {
  layout::InstructionDescriptor d;
  d.a = tcgen05_type(lane_type(c));
  d.b = tcgen05_type(column_type(c));
  d.d = is_integer(c) ? layout::Tcgen05Result::s32 : layout::Tcgen05Result::f32;
  d.m = kLanes * pair_size(c);
  d.n = columns(c);
  d.is_a_mn_major = is_mn_major(c, true);
  d.is_b_mn_major = is_mn_major(c, false);
  d.scales_are_ue8m0 = kind(c) != Tcgen05Kind::mxf4nvf4;
  if (is_scaled(c)) d.scale_id_a = d.scale_id_b = scale_id(c, chunk);
  return d;
}

// D leaves from staging memory of each warp. As it is: panels of 32 rows and one swizzle span of columns. Transposed:
// 32 columns of D and as many rows as registers hold.
TESSERA_HD constexpr int panel_columns(const Config& c) {
  const bool is_narrow = is_swapped(c) || c.facts.gate != Gate::none || is_quantized(c);
  const int widest = dtype_bytes(c.facts.d_dtype) == 4 || is_narrow ? 32 : 64;
  int count = widest;
  while (stored_columns(c) % count != 0) count /= 2;
  return count;
}
TESSERA_HD constexpr int d_span_bytes(const Config& c) {
  return (is_swapped(c) ? kStoreRows : panel_columns(c)) * dtype_bytes(c.facts.d_dtype);
}
TESSERA_HD constexpr int staging_slot_bytes(const Config& c) {
  return is_quantized(c) ? 0 : kStoreRows * panel_columns(c) * dtype_bytes(c.facts.d_dtype);
}
// Rows that are written one after the other need none; rows that 32 threads write side by side do.
TESSERA_HD constexpr Swizzle d_swizzle(const Config& c) {
  const int span = d_span_bytes(c);
  if (is_swapped(c)) return Swizzle::none;
  return span == 128 ? Swizzle::b128 : span == 64 ? Swizzle::b64 : span == 32 ? Swizzle::b32 : Swizzle::none;
}

struct SmemLayout {
  SmemRegion lanes;          // [stages][128][128 B]: A, or B with changed places. Partial sums start here
  SmemRegion columns;        // [stages][product][column_rows][128 B]
  SmemRegion lane_scales;    // [stages][scale_tiles][512 B]
  SmemRegion column_scales;  // [stages][product][column_blocks][scale_tiles][512 B]
  SmemRegion d;              // [storing warp][2][staging_slot_bytes]
  SmemRegion barriers;       // in the order of Barriers
  SmemRegion tmem_address;
  int total_bytes = 0;
  int alignment = 1024;
};

TESSERA_HD constexpr bool has_scale_barriers(const Config& c) { return is_scaled(c) && pair_size(c) == 2; }

struct Barriers {
  BarrierRow full;         // [stages]
  BarrierRow empty;        // [stages]
  BarrierRow scales;       // [stages], block-scaled pairs only
  BarrierRow peer_scales;  // [stages], likewise
  BarrierRow sums_full;    // [accumulators]
  BarrierRow sums_empty;   // [accumulators]
  int count = 0;           // of all
};
// The first one at `offset` of the shared memory at `smem`.
TESSERA_HD constexpr Barriers barriers_from(const Config& c, int offset, unsigned smem) {
  const int scale_barriers = has_scale_barriers(c) ? c.stages : 0;
  common::BarrierCursor cursor{{smem, offset, 0}};
  Barriers b;
  b.full = cursor.take(c.stages);
  b.empty = cursor.take(c.stages);
  b.scales = cursor.take(scale_barriers);
  b.peer_scales = cursor.take(scale_barriers);
  b.sums_full = cursor.take(c.accumulators);
  b.sums_empty = cursor.take(c.accumulators);
  b.count = cursor.next.index;
  return b;
}

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout map;
  map.lanes = {is_swapped(c) ? "b" : "a", 0, c.stages * kLanes * kStepBytes};
  map.columns = {is_swapped(c) ? "a" : "b", end_of(map.lanes), c.stages * products(c) * column_rows(c) * kStepBytes};
  map.lane_scales = {is_swapped(c) ? "sfb" : "sfa", end_of(map.columns), c.stages * scale_slot_bytes(c, 1)};
  map.column_scales = {is_swapped(c) ? "sfa" : "sfb", end_of(map.lane_scales),
                       c.stages * products(c) * scale_slot_bytes(c, column_blocks(c))};
  map.d = {"d", static_cast<int>(round_up(end_of(map.column_scales), 1024)),
           kStoreWarps * kStagingSlots * staging_slot_bytes(c)};
  map.barriers = {"barriers", end_of(map.d), 8 * barriers_from(c, 0, 0).count};
  map.tmem_address = {"tmem address", end_of(map.barriers), 8};
  map.total_bytes = end_of(map.tmem_address);
  return map;
}

// Addresses, where `smem` is that of the CTA's shared memory.
TESSERA_HD constexpr Barriers barriers(const Config& c, unsigned smem = 0) {
  return barriers_from(c, smem_layout(c).barriers.offset, smem);
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_types(const Config& c) {
  if (!has_kind(c.facts))
    return {Rule::operand_pair, static_cast<int>(c.facts.a_type), static_cast<int>(c.facts.b_type)};
  const bool is_float =
      c.facts.d_dtype == DType::f32 || c.facts.d_dtype == DType::f16 || c.facts.d_dtype == DType::bf16;
  if (!is_float && !(is_integer(c) && stores_sums(c))) return {Rule::output_type, dtype_bytes(c.facts.d_dtype), 4};
  const auto is_legal = [](OperandType type, Layout layout) {
    return layout == Layout::k_major || operand_bits(type) >= 8;
  };
  if (!is_legal(c.facts.a_type, c.facts.a_layout)) return {Rule::layout_of_narrow, operand_bits(c.facts.a_type), 8};
  if (!is_legal(c.facts.b_type, c.facts.b_layout)) return {Rule::layout_of_narrow, operand_bits(c.facts.b_type), 8};
  // Where a group begins a copy may not: coordinates along the contiguous dimension are multiples of 16 bytes.
  if (c.facts.grouping == Grouping::contiguous && c.facts.a_layout == Layout::mn_major)
    return {Rule::layout_of_groups, 1, 0};
  const bool has_addend =
      c.facts.c != Addend::none || c.facts.bias != Bias::none || c.facts.activation != Activation::none;
  if (stores_sums(c) && (has_addend || c.facts.gate != Gate::none)) return {Rule::finished_sums, 1, 0};
  if (c.facts.gate != Gate::none && has_addend && !(has_bias_alone(c.facts) && c.facts.gate == Gate::interleaved))
    return {Rule::gate_and_addend, 1, 0};
  return {};
}

// What a gate and a block-scaled D ask for: a thread has whole pairs and whole blocks of a row of D.
TESSERA_HD constexpr Verdict<Rule> why_invalid_gate(const Config& c) {
  if (c.facts.gate == Gate::none && !is_quantized(c)) return {};
  if (is_swapped(c)) return {Rule::few_rows_of_gate, c.tile_m, kLanes};
  if (c.split_k > 1) return {Rule::split_k_of_gate, c.split_k, 1};
  const int panel = panel_columns(c);
  if (c.facts.gate == Gate::interleaved && (c.facts.interleave < 1 || panel % c.facts.interleave != 0))
    return {Rule::interleave_not_dividing, c.facts.interleave, panel};
  const int block = is_quantized(c) ? block_elements(block_format(c.facts.d_format)) : 1;
  if (stored_columns(c) % block != 0) return {Rule::part_of_block, stored_columns(c), block};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_tile(const Config& c) {
  if (c.tile_m < 16 || c.tile_m > kLanes) return {Rule::tile_m_out_of_range, c.tile_m, kLanes};
  if (is_swapped(c) && c.tile_n != kLanes) return {Rule::tile_n_of_few_rows, c.tile_n, kLanes};
  // Scales are read from the first of 32 rows on; public libraries start at multiples of 64.
  const int unit = is_scaled(c) ? 64 : 16 * pair_size(c);
  if (columns(c) < unit || columns(c) % unit != 0) return {Rule::columns_not_multiple, columns(c), unit};
  if (columns(c) > 256) return {Rule::columns_out_of_range, columns(c), 256};
  for (const bool is_of_lanes : {true, false}) {
    if (is_mn_major(c, is_of_lanes) && loaded_rows(c, is_of_lanes) % panel_rows(c) != 0)
      return {Rule::part_of_panel, loaded_rows(c, is_of_lanes), panel_rows(c)};
  }
  if (c.stages < 2 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (c.accumulators < 1 || c.accumulators > 2) return {Rule::accumulators_out_of_range, c.accumulators, 2};
  if (c.raster < 1 || c.raster > 1024) return {Rule::raster_out_of_range, c.raster, 1024};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_cluster(const Config& c) {
  const int most_m = is_swapped(c) ? 1 : 4, most_n = is_swapped(c) || c.cluster_m == 2 ? 2 : 1;
  if (c.cluster_m < 1 || c.cluster_m > most_m || c.cluster_m == 3)
    return {Rule::cluster_m_out_of_range, c.cluster_m, most_m};
  if (c.cluster_n < 1 || c.cluster_n > most_n) return {Rule::cluster_n_out_of_range, c.cluster_n, most_n};
  if (c.split_k != 1 && c.split_k != 2 && c.split_k != 4 && c.split_k != 8)
    return {Rule::split_k_out_of_range, c.split_k, kMaxClusterSize};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (const Verdict<Rule> types = why_invalid_types(c); !types.ok()) return types;
  if (const Verdict<Rule> cluster = why_invalid_cluster(c); !cluster.ok()) return cluster;
  if (const Verdict<Rule> tile = why_invalid_tile(c); !tile.ok()) return tile;
  if (const Verdict<Rule> gate = why_invalid_gate(c); !gate.ok()) return gate;
  if (c.split_k > 1 && c.facts.grouping != Grouping::none) return {Rule::split_k_of_groups, c.split_k, 1};
  if (c.split_k > 1 && pair_size(c) > 1) return {Rule::split_k_of_pair, c.split_k, 1};
  if (columns_of_d(c, columns(c)) % (16 * c.split_k) != 0) return {Rule::part_of_d_too_small, stored_columns(c), 16};
  const int sums = c.accumulators * sum_columns(c);
  const int least_scales = is_scaled(c) ? 2 * scale_columns(c) : 0;
  if (sums + least_scales > kTmemColumns) return {Rule::tensor_memory_exceeded, sums + least_scales, kTmemColumns};
  const SmemLayout map = smem_layout(c);
  const int ring_bytes = map.lanes.bytes + map.columns.bytes;
  if (c.split_k > 1 && kLanes * columns(c) * 4 > ring_bytes)
    return {Rule::partial_sums_exceed_ring, kLanes * columns(c) * 4, ring_bytes};
  if (map.total_bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, map.total_bytes, kMaxSmemBytes};
  return {};
}

// The most stages that fit, as many as a ring may have.
TESSERA_HD constexpr int most_stages(Config c) {
  c.stages = kMaxStages;
  while (c.stages > 2 && smem_layout(c).total_bytes > kMaxSmemBytes) --c.stages;
  return c.stages;
}
// With one accumulator the next tile's products wait until this one's sums are in registers. A thread then takes all of
// its row of D first, rounded to 16 bits, and stages it afterwards; whatever else its epilogue reads would be waited
// for in between.
TESSERA_HD constexpr bool takes_whole_rows(const Config& c) {
  return c.accumulators == 1 && !is_swapped(c) && c.split_k == 1 && c.facts.gate == Gate::none && !is_quantized(c) &&
         c.facts.c == Addend::none && dtype_bytes(c.facts.d_dtype) == 2;
}
// Two tiles in TMEM where there is room for both, beside scales.
TESSERA_HD constexpr int most_accumulators(const Config& c) {
  return 2 * sum_columns(c) + 2 * scale_columns(c) <= kTmemColumns ? 2 : 1;
}

TESSERA_HD constexpr gemm::ProductWalk walk(const Config& c) {
  return {.grouping = c.facts.grouping,
          .tile_m = c.tile_m,
          .tile_n = c.tile_n,
          .tile_k = tile_k(c),
          .cluster_m = c.cluster_m,
          .cluster_n = c.cluster_n,
          .split_k = c.split_k,
          .raster = c.raster,
          .is_pair_along_n = is_swapped(c)};
}

inline constexpr Role kRoles[] = {
    {"load", 0, 1}, {"multiply", 1, 1}, {"allocate", 2, 1}, {"idle", 3, 1}, {"store", kFirstStoreWarp, kStoreWarps}};

TESSERA_HD constexpr TmaBox operand_box(const Config& c, bool is_of_lanes) {
  if (is_mn_major(c, is_of_lanes)) return {{panel_rows(c), tile_k(c), 1}};
  return {{tile_k(c), loaded_rows(c, is_of_lanes), 1}};
}
TESSERA_HD constexpr TmaBox a_box(const Config& c) { return operand_box(c, !is_swapped(c)); }
TESSERA_HD constexpr TmaBox b_box(const Config& c) { return operand_box(c, is_swapped(c)); }
// Scales by 16 bits: a tile is 256 of them.
TESSERA_HD constexpr TmaBox scale_box(const Config& c, bool is_of_lanes) {
  return {{kTileBytes / 2, scale_tiles(c) / scale_parts_of_k(c, is_of_lanes),
           (is_of_lanes ? 1 : column_blocks(c)) / scale_parts_of_rows(c, is_of_lanes)}};
}
TESSERA_HD constexpr TmaBox d_box(const Config& c) {
  return is_swapped(c) ? TmaBox{{kStoreRows, panel_columns(c), 1}} : TmaBox{{panel_columns(c), kStoreRows, 1}};
}

}  // namespace tessera::gemm_tcgen05
