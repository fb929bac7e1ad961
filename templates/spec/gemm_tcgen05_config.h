// A Config of the product on tcgen05, why one may be illegal, and what facts and tiles alone say of operands, scales
// and columns of Tensor Memory. spec/gemm_tcgen05.h says what the kernel computes, and has layouts and rules.
#pragma once

#include "spec/gemm_tcgen05_facts.h"
#include "spec/limits.h"
#include "spec/product_facts.h"
#include "spec/smem_descriptor.h"
#include "tessera/spec/instruction_descriptor.h"
#include "tessera/spec/types.h"

namespace tessera::gemm_tcgen05 {

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
// Columns of TMEM that one tile along K of all rows' scales takes: four for each tile of 512 bytes.
TESSERA_HD constexpr int scale_columns(const Config& c) {
  return is_scaled(c) ? 4 * (1 + products(c) * column_blocks(c)) : 0;
}
// Scales of a step and of a tile of the next one: with less, the products would wait for copies.
TESSERA_HD constexpr int least_scale_columns(const Config& c) {
  return is_scaled(c) ? (scale_tiles(c) + 1) * scale_columns(c) : 0;
}
// Two tiles' sums for which TMEM has no room beside scales overlap: the second tile's begin before the first one's end,
// and what they share leaves first, so that the next products wait for that alone.
inline constexpr int kOverlapColumns = 64;
TESSERA_HD constexpr bool do_sums_overlap(const Config& c) {
  return is_scaled(c) && c.accumulators == 2 && products(c) == 1 && c.split_k == 1 &&
         sum_columns(c) > kOverlapColumns && 2 * sum_columns(c) + least_scale_columns(c) > kTmemColumns;
}
// From one tile's first column to the next one's, and columns of all.
TESSERA_HD constexpr int sum_stride(const Config& c) {
  return sum_columns(c) - (do_sums_overlap(c) ? kOverlapColumns : 0);
}
TESSERA_HD constexpr int all_sum_columns(const Config& c) {
  return (c.accumulators - 1) * sum_stride(c) + sum_columns(c);
}
// Tiles of scales along K that are in TMEM at a time: as many as the ring has, where there is room. Where there is none
// the multiplying warp waits for the products that have read a slot.
TESSERA_HD constexpr int scale_slots(const Config& c) {
  if (!is_scaled(c)) return 0;
  const int room = (kTmemColumns - all_sum_columns(c)) / scale_columns(c), all = c.stages * scale_tiles(c);
  return room < all ? room : all;
}
TESSERA_HD constexpr bool waits_for_scale_slots(const Config& c) {
  return is_scaled(c) && scale_slots(c) < c.stages * scale_tiles(c);
}
// Where a scale's tile holds blocks past K, in the step that K ends in, an instruction would read them.
TESSERA_HD constexpr bool reads_past_k(const Config& c) { return layout::is_four_bit(kind(c)); }

}  // namespace tessera::gemm_tcgen05
