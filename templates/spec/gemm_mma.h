// Matrix product by mma.sync, for GeForce-class Blackwell (sm_120, sm_121), whose tensor cores take operands from
// registers alone; on Hopper by pin. What a Config is, which ones are legal, and everything that follows from one.
// Planner and device code evaluate the same functions.
//
//   d[i, m, n] = activation(alpha * scale_a * scale_b * sum_k a[i, m, k] * b[i, n, k] + beta * c[i, m, n] + bias[n])
//
// for i < l, with the layouts and strides of spec/gemm.h; or with a gate, or for groups of rows with a B each, or to a
// block-scaled D, as spec/gemm_tcgen05.h has all three. Sums of 16-bit types and of e4m3 and e5m2 are fp32, those of
// s8 and u8 are s32: they become fp32 (one rounding), or D has them as they are. D has 16 or 32 bits, or is
// block-scaled. Hopper has no such instruction for e4m3 and e5m2: there the assembler widens them. nvfp4, mxfp4, mxfp6
// and mxfp8 are for sm_120 and sm_121 alone: an element is its value times the scale of its block, scales come in tiles
// of 128 rows by 4 blocks, and a thread reads them from shared memory as the instruction wants them (scales.cuh).
// mxfp6, and mxfp4 beside it or beside mxfp8, are unpacked on their way: TMA gives 16 values, of 12 or 8 bytes, 16
// bytes, ldmatrix each value a byte. An operand of 8 bits whose rows' dimension is contiguous is transposed on its way
// to registers (ldmatrix of 16 x 16 bytes), which Hopper does not have either.
//
// A CTA takes tiles of tile_m x tile_n and walks along K in steps of 128 bytes. Warp 0 (load) fills a ring of `stages`
// slots by TMA. The warps of the other warpgroups (consumer) have warp_m x warp_n of a tile each: 64 x 64 where tiles
// are large, so that a byte that ldmatrix reads is multiplied as often as registers allow. They fetch the fragments of
// 16 along K while they multiply those before (consumer.cuh), and store D (epilogue.cuh): a tile of D has no place of
// its own in shared memory, which the ring needs, so it leaves by way of the slot that was read last (staged.cuh), or
// from registers.
//
// For few rows of D there are two more choices. With swap_ab the kernel multiplies B by A transposed, so that a tile
// has 64 rows or more of B and as few as 8 of A; what belongs to A and m here then belongs to B and n, and the other
// way round, but in the formula, the facts and the names of the entry's parameters, as spec/gemm.h has it. With split_k
// that many CTAs, a cluster, share the K of a tile: each sums its part, leaves the sums where its ring was, and after a
// barrier of the cluster each adds up and stores its share of the tile, part after part, so that the result does not
// depend on who was first (split.cuh). A cluster needs no memory of the caller's, nothing that is zero beforehand, and
// no second launch.
//
// With a dual gate a slot has tile_n rows of B2 behind those of B, and a warp half of its columns from each; with an
// interleaved one columns of both stand in turn. Either way a warp has gate and up of the same columns of D.
//
// Groups of rows may have rows of A by a list (facts.gather): A is [a_rows, k] and its scales those of a_rows rows,
// both one matrix, and row i of D takes row indices[i] of A, or zeros where that is none (copies.cuh).
//
// Scales may also be plain, [l, rows, blocks] bytes: then two warps copy those of each step to where a tile would have
// them. A step has as many cells of four blocks for each row as it has tiles along K.
//
// Of shared memory a CTA has 101,376 bytes there. Configs keep to that on Hopper too, so that what runs on the one is
// what was compiled for the other.
//
// Tensor maps: rank 3, interleave none, element strides 1, zero fill, 128-byte swizzle (operand_swizzle()):
//   a, b      dims {k, rows, l} (K-major) or {rows, k, l}, rows being m or n, each at least 1; boxes a_box, b_box
//             nvfp4, mxfp4 by mxfp4: as u8, so that k is k / 2, two values a byte
//             mxfp6, and mxfp4 beside it or mxfp8: k is rounded up to 128 here, and what lies behind k in a row may be
//             anything
//             a gathered A and its scales have no map, and plain scales have none
//   d         dims {n, m, l}; box d_box, swizzle d_swizzle; where has_d_map() alone
//   sfa, sfb  block-scaled types only: u16, dims {256, tiles along k, l * tiles along rows}, no swizzle, box scale_box
//
// Entry parameters, in this order (with swap_ab b before a, sfb before sfa, n before m):
//   const __grid_constant__ TensorMap a, b, b2 (dual only); sfa, sfb (block-scaled types only), sfb2 (both); d
//   (has_d_map())
//   d_pointer; int* groups (grouping); sfd (D block-scaled); float* scale_d (nvfp4, may be null); c (facts.c only);
//   bias (facts.bias only); float* scale_a, scale_b, scale_b2 (8-bit types whose D is not s32, and nvfp4; the last one
//   with dual; may be null: 1); int m, n (rows of B), k, l; long long ldd, d_stride_l; long long ldc, c_stride_l
//   (facts.c only); float alpha (D not s32); float beta (c); sfa, sfb (plain scales), sfb2 (dual too); a, sfa
//   (scales in tiles), int* indices, long long lda, int a_rows (gather)
// Launch: grid.x CTAs, one for each SM or for each tile, with a split K a cluster of split_k for each tile; block
// num_threads(); dynamic shared memory smem_layout().total_bytes.
#pragma once

#include "spec/gemm.h"
#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/product_facts.h"
#include "spec/product_walk.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera::gemm_mma {

using common::BarrierRow;
using common::Role;
using common::SmemRegion;
using TmaBox = common::TmaBox<3>;

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  ProductFacts facts{};
  int tile_m = 128;
  int tile_n = 256;
  int stages = 2;     // slots of the ring
  int cluster_m = 1;  // what other families share a cluster for: 1
  int cluster_n = 1;
  int split_k = 1;  // CTAs that share the K of a tile
  int raster = 16;  // tiles along M that are walked before the next one along N
  SwapAb swap_ab = SwapAb::off;
  ScaleForm scale_form = ScaleForm::tile;  // of block-scaled operands

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kMaxStages = 16;
inline constexpr int kMaxSplitK = 8;  // CTAs of a cluster that every device grants
inline constexpr int kMaxConsumerWarps = 8;
inline constexpr int kMaxTile = 256;     // rows that one TMA box has
inline constexpr int kStepBytes = 128;   // of K: a swizzle span
inline constexpr int kLeastSpan = 32;    // of a swizzle
inline constexpr int kBlock = 16;        // rows and columns that one ldmatrix fetches, and M of mma.sync
inline constexpr int kLeastColumns = 8;  // N of mma.sync
inline constexpr int kFirstCopyWarp = 2, kCopyWarps = 2;  // of rows by a list, and of plain scales

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  operand_type,              // bits of A's and B's types together; 32
  output_type,               // bytes of D's type; 4
  finished_sums,             // 1; 0
  layout_of_narrow,          // bits of the type; 8
  promoted_sums,             // 1; 0
  gate_and_addend,           // 1; 0
  layout_of_groups,          // 1; 0
  gather_without_groups,     // 1; 0
  layout_of_gather,          // 1; 0
  interleave_not_dividing,   // interleave; columns of D that a warp has
  swap_of_gate,              // 1; 0
  swap_of_blocks,            // 1; 0
  part_of_block,             // columns of D that a warp has; the block that they must be a multiple of
  swap_of_groups,            // 1; 0
  split_k_of_groups,         // split_k; 1
  tile_m_not_power_of_two,   // tile_m; 16
  tile_m_out_of_range,       // tile_m; 256
  tile_n_not_power_of_two,   // tile_n; 32, with swap_ab 8
  tile_n_out_of_range,       // tile_n; 256
  tile_m_of_panels,          // tile_m; rows of the narrowest panel
  tile_n_of_panels,          // tile_n; rows of the narrowest panel
  too_many_warps,            // consumer warps; 8
  stages_out_of_range,       // stages; 16
  cluster_too_large,         // CTAs; 1
  split_k_out_of_range,      // split_k; 8
  partial_sums_exceed_ring,  // bytes of a tile's sums; bytes of the ring
  raster_out_of_range,       // raster; 1,024
  shared_memory_exceeded,    // bytes; 101,376
};

TESSERA_HD constexpr bool is_swapped(const Config& c) { return c.swap_ab == SwapAb::on; }
TESSERA_HD constexpr bool is_gathered(const Config& c) { return c.facts.gather != Gather::none; }
// Of what the kernel calls A and B.
TESSERA_HD constexpr OperandType a_type(const Config& c) { return is_swapped(c) ? c.facts.b_type : c.facts.a_type; }
TESSERA_HD constexpr OperandType b_type(const Config& c) { return is_swapped(c) ? c.facts.a_type : c.facts.b_type; }
TESSERA_HD constexpr Layout a_layout(const Config& c) { return is_swapped(c) ? c.facts.b_layout : c.facts.a_layout; }
TESSERA_HD constexpr Layout b_layout(const Config& c) { return is_swapped(c) ? c.facts.a_layout : c.facts.b_layout; }
TESSERA_HD constexpr DType a_dtype(const Config& c) { return element_type(a_type(c)); }
TESSERA_HD constexpr DType b_dtype(const Config& c) { return element_type(b_type(c)); }
TESSERA_HD constexpr bool is_scaled(const Config& c) { return is_block_scaled(c.facts.a_type); }
// Of a value in shared memory: an mxfp6 one has a byte, and an mxfp4 one beside it or beside mxfp8.
TESSERA_HD constexpr int element_bits(const Config& c) {
  const int a = operand_bits(c.facts.a_type), b = operand_bits(c.facts.b_type), most = a < b ? b : a;
  return most == 6 ? 8 : most;
}
TESSERA_HD constexpr bool is_padded(const Config& c, OperandType type) { return operand_bits(type) < element_bits(c); }
TESSERA_HD constexpr bool is_plain_scaled(const Config& c) { return is_scaled(c) && c.scale_form == ScaleForm::plain; }
// Whether threads copy some of what a slot has, and which scales.
TESSERA_HD constexpr bool has_copies(const Config& c) { return is_gathered(c) || is_plain_scaled(c); }
TESSERA_HD constexpr bool copies_sfa(const Config& c) { return is_scaled(c) && has_copies(c); }
TESSERA_HD constexpr bool copies_sfb(const Config& c) { return is_plain_scaled(c); }
TESSERA_HD constexpr bool is_quantized(const Config& c) { return c.facts.d_format != OutputFormat::plain; }
TESSERA_HD constexpr bool is_integer(DType dtype) { return dtype == DType::s8 || dtype == DType::u8; }
TESSERA_HD constexpr bool is_integer(const Config& c) { return tessera::is_integer(c.facts.a_type); }
// Whether D has the sums of integers as they are.
TESSERA_HD constexpr bool stores_sums(const Config& c) { return c.facts.d_dtype == DType::s32; }
TESSERA_HD constexpr bool has_tensor_scales(const Config& c) {
  if (is_scaled(c)) return c.facts.a_type == OperandType::nvfp4;
  return element_bits(c) == 8 && !stores_sums(c);
}
// Products of a tile, and the columns of sums of all.
TESSERA_HD constexpr int products(const Config& c) { return c.facts.gate == Gate::dual ? 2 : 1; }
TESSERA_HD constexpr int sum_columns(const Config& c) { return products(c) * c.tile_n; }
// Columns of D for so many of the sums of one product.
TESSERA_HD constexpr int columns_of_d(const Config& c, int n) { return c.facts.gate == Gate::interleaved ? n / 2 : n; }
TESSERA_HD constexpr int tile_k(const Config& c) { return kStepBytes * 8 / element_bits(c); }
// Coordinates of a step along K in the maps: of packed values of 4 bits a map has bytes.
TESSERA_HD constexpr int step_coordinates(const Config& c) { return element_bits(c) == 4 ? kStepBytes : tile_k(c); }
// Products along K of one instruction: 32 bytes of each operand's rows.
inline constexpr int kChunks = kStepBytes / 32;

// A warp's part of a tile. 64 x 64 has 128 sums a thread, 64 x 32 reads half as much again for each product. With
// swap_ab warps lie along M, so that each row of B is read once. A gate whose D has blocks of 32 columns, or whose
// interleave is that, wants 64 columns of sums also of smaller tiles: then 32 x 64.
TESSERA_HD constexpr bool has_large_tile(const Config& c) { return c.tile_m * sum_columns(c) >= 128 * 256; }
TESSERA_HD constexpr bool has_wide_warps(const Config& c) {
  if (c.facts.gate == Gate::none || sum_columns(c) < 64) return false;
  return c.facts.interleave > 16 || (is_quantized(c) && block_elements(block_format(c.facts.d_format)) == 32);
}
TESSERA_HD constexpr int warp_m(const Config& c) {
  if (is_swapped(c)) return c.tile_m <= 64 ? 16 : 32;
  const int most = (c.tile_m == 64 && c.tile_n == 64) || (has_wide_warps(c) && !has_large_tile(c)) ? 32 : 64;
  return c.tile_m < most ? c.tile_m : most;
}
TESSERA_HD constexpr int warp_n(const Config& c) {
  if (is_swapped(c)) return c.tile_n < 64 ? c.tile_n : 64;
  return has_large_tile(c) || has_wide_warps(c) ? 64 : 32;
}
TESSERA_HD constexpr int warps_along_m(const Config& c) { return c.tile_m / warp_m(c); }
TESSERA_HD constexpr int warps_along_n(const Config& c) { return sum_columns(c) / warp_n(c); }
// Columns of D that a warp has, and its rows of each product's B.
TESSERA_HD constexpr int warp_columns(const Config& c) {
  return c.facts.gate == Gate::none ? warp_n(c) : warp_n(c) / 2;
}
TESSERA_HD constexpr int warp_rows_of_b(const Config& c) { return warp_n(c) / products(c); }
TESSERA_HD constexpr int consumer_warps(const Config& c) { return warps_along_m(c) * warps_along_n(c); }
TESSERA_HD constexpr int num_threads(const Config& c) { return kWarpgroupThreads + 32 * consumer_warps(c); }

// Registers per thread: at entry, as __launch_bounds__(num_threads, 1) deals them, and after setmaxnreg. A quarter of
// the multiprocessor has 512 for each lane: a ninth warp would leave three of them 168 each, so the producer has a
// warpgroup, which can give its registers away.
struct RegisterBudget {
  int entry = 0;
  int producer = 0;
  int consumer = 0;
};
TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  if (consumer_warps(c) != kMaxConsumerWarps) return {255, 255, 255};
  // Warps that copy plain scales, of both operands and of a gate's two, would spill with 64.
  if (is_plain_scaled(c)) return {168, 72, 216};
  return is_gathered(c) ? RegisterBudget{168, 56, 224} : RegisterBudget{168, 40, 232};
}

// An MN-major operand comes in panels of 128 bytes of its rows' dimension, a step of K tall: 64 elements of 16 bits, or
// 128 of 8. A tile of fewer rows has one panel of them, of 64 or 32 bytes, and that swizzle.
TESSERA_HD constexpr int panel_rows(const Config& c, int rows) { return rows < tile_k(c) ? rows : tile_k(c); }
TESSERA_HD constexpr int panel_span(const Config& c, int rows) { return panel_rows(c, rows) * element_bits(c) / 8; }
TESSERA_HD constexpr int panel_bytes(const Config& c, int rows) { return tile_k(c) * panel_span(c, rows); }
TESSERA_HD constexpr int least_panel_rows(const Config& c) { return kLeastSpan * 8 / element_bits(c); }
TESSERA_HD constexpr Swizzle operand_swizzle(const Config& c, Layout layout, int rows) {
  const int span = layout == Layout::mn_major ? panel_span(c, rows) : kStepBytes;
  return span == 32 ? Swizzle::b32 : span == 64 ? Swizzle::b64 : Swizzle::b128;
}

TESSERA_HD constexpr int a_slot_bytes(const Config& c) { return c.tile_m * kStepBytes; }
TESSERA_HD constexpr int b_bytes(const Config& c) { return c.tile_n * kStepBytes; }  // of one product
TESSERA_HD constexpr int b_slot_bytes(const Config& c) { return products(c) * b_bytes(c); }

// Bytes that a slot's copies count at its barrier: those that they read.
TESSERA_HD constexpr int a_copied_bytes(const Config& c) {
  return a_slot_bytes(c) / element_bits(c) * operand_bits(a_type(c));
}
TESSERA_HD constexpr int b_copied_bytes(const Config& c) {
  return b_slot_bytes(c) / element_bits(c) * operand_bits(b_type(c));
}

// Scales: elements of a block, tiles of 4 blocks in a step, tiles of 128 rows that a tile's rows may touch.
TESSERA_HD constexpr int scale_block(const Config& c) {
  return is_scaled(c) ? block_elements(block_format(c.facts.a_type)) : 0;
}
TESSERA_HD constexpr int scale_tiles(const Config& c) {
  return is_scaled(c) ? tile_k(c) / scale_block(c) / kTileBlocks : 0;
}
TESSERA_HD constexpr int row_tiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }
TESSERA_HD constexpr int scale_slot_bytes(const Config& c, int rows) {
  return row_tiles(rows) * scale_tiles(c) * kTileBytes;
}
TESSERA_HD constexpr int sfa_slot_bytes(const Config& c) { return scale_slot_bytes(c, c.tile_m); }
TESSERA_HD constexpr int sfb_slot_bytes(const Config& c) { return products(c) * scale_slot_bytes(c, c.tile_n); }
// Blocks of one instruction, and of one chunk: the tile along K that has them, and the first one's byte in its cell.
TESSERA_HD constexpr int chunk_blocks(const Config& c) { return scale_tiles(c) * kTileBlocks / kChunks; }
TESSERA_HD constexpr int scale_tile(const Config& c, int chunk) { return chunk * chunk_blocks(c) / kTileBlocks; }
TESSERA_HD constexpr int scale_byte(const Config& c, int chunk) { return chunk * chunk_blocks(c) % kTileBlocks; }

struct SmemLayout {
  SmemRegion a;         // [stages][tile_m][128 B]; MN-major [stages][panels][tile_k][128 B]. Partial sums start here
  SmemRegion b;         // [stages][product][tile_n][128 B]; MN-major [stages][product][panels][tile_k][128 B]
  SmemRegion sfa;       // [stages][row_tiles][scale_tiles][512 B]
  SmemRegion sfb;       // [stages][product][row_tiles][scale_tiles][512 B]
  SmemRegion barriers;  // in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

struct Barriers {
  BarrierRow full;   // [stages]
  BarrierRow empty;  // [stages]
  int count = 0;     // of all
};
// The first one at `offset` of the shared memory at `smem`.
TESSERA_HD constexpr Barriers barriers_from(const Config& c, int offset, unsigned smem) {
  common::BarrierCursor cursor{{smem, offset, 0}};
  Barriers b;
  b.full = cursor.take(c.stages);
  b.empty = cursor.take(c.stages);
  b.count = cursor.next.index;
  return b;
}

// Every slot begins where the swizzle's pattern does: 16 rows are two of its repeats.
TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.a = {"a", 0, c.stages * a_slot_bytes(c)};
  layout.b = {"b", end_of(layout.a), c.stages * b_slot_bytes(c)};
  layout.sfa = {"sfa", end_of(layout.b), c.stages * sfa_slot_bytes(c)};
  layout.sfb = {"sfb", end_of(layout.sfa), c.stages * sfb_slot_bytes(c)};
  layout.barriers = {"barriers", end_of(layout.sfb), 8 * barriers_from(c, 0, 0).count};
  layout.total_bytes = end_of(layout.barriers);
  return layout;
}

// Addresses, where `smem` is that of the CTA's shared memory.
TESSERA_HD constexpr Barriers barriers(const Config& c, unsigned smem = 0) {
  return barriers_from(c, smem_layout(c).barriers.offset, smem);
}

TESSERA_HD constexpr bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

TESSERA_HD constexpr Verdict<Rule> why_invalid_types(const Config& c) {
  const OperandType a = c.facts.a_type, b = c.facts.b_type;
  const bool is_plain = !is_block_scaled(a) && !is_block_scaled(b);
  const bool is_16_bit = (a == OperandType::f16 || a == OperandType::bf16) && b == a;
  const bool is_fp8 = is_plain && gemm::is_8_bit(a_dtype(c)) && gemm::is_8_bit(b_dtype(c));
  const bool is_int8 = is_plain && is_integer(a_dtype(c)) && is_integer(b_dtype(c));
  const bool is_of_blocks = (a == OperandType::nvfp4 && b == a) || (is_mx(a) && is_mx(b));
  if (!is_16_bit && !is_fp8 && !is_int8 && !is_of_blocks)
    return {Rule::operand_type, operand_bits(a) + operand_bits(b), 32};
  const bool is_float =
      c.facts.d_dtype == DType::f32 || c.facts.d_dtype == DType::f16 || c.facts.d_dtype == DType::bf16;
  if (!is_float && !(is_int8 && stores_sums(c))) return {Rule::output_type, dtype_bytes(c.facts.d_dtype), 4};
  const bool has_addend =
      c.facts.c != Addend::none || c.facts.bias != Bias::none || c.facts.activation != Activation::none;
  if (stores_sums(c) && (has_addend || c.facts.gate != Gate::none)) return {Rule::finished_sums, 1, 0};
  if (c.facts.gate != Gate::none && has_addend && !(has_bias_alone(c.facts) && c.facts.gate == Gate::interleaved))
    return {Rule::gate_and_addend, 1, 0};
  if (c.facts.a_layout == Layout::mn_major && operand_bits(a) < 8) return {Rule::layout_of_narrow, operand_bits(a), 8};
  if (c.facts.b_layout == Layout::mn_major && operand_bits(b) < 8) return {Rule::layout_of_narrow, operand_bits(b), 8};
  // Where a group begins a copy may not: coordinates along the contiguous dimension are multiples of 16 bytes.
  if (c.facts.grouping == Grouping::contiguous && c.facts.a_layout == Layout::mn_major)
    return {Rule::layout_of_groups, 1, 0};
  if (is_gathered(c) && c.facts.grouping == Grouping::none) return {Rule::gather_without_groups, 1, 0};
  if (is_gathered(c) && c.facts.a_layout == Layout::mn_major) return {Rule::layout_of_gather, 1, 0};
  if (c.facts.accumulation == Accumulation::promoted) return {Rule::promoted_sums, 1, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_tile(const Config& c) {
  if (c.tile_m > kMaxTile) return {Rule::tile_m_out_of_range, c.tile_m, kMaxTile};
  if (c.tile_m < kBlock || !is_power_of_two(c.tile_m)) return {Rule::tile_m_not_power_of_two, c.tile_m, kBlock};
  if (c.tile_n > kMaxTile) return {Rule::tile_n_out_of_range, c.tile_n, kMaxTile};
  const int least_n = is_swapped(c) ? kLeastColumns : 2 * kBlock;
  if (c.tile_n < least_n || !is_power_of_two(c.tile_n)) return {Rule::tile_n_not_power_of_two, c.tile_n, least_n};
  if (a_layout(c) == Layout::mn_major && c.tile_m < least_panel_rows(c))
    return {Rule::tile_m_of_panels, c.tile_m, least_panel_rows(c)};
  if (b_layout(c) == Layout::mn_major && c.tile_n < least_panel_rows(c))
    return {Rule::tile_n_of_panels, c.tile_n, least_panel_rows(c)};
  if (consumer_warps(c) > kMaxConsumerWarps) return {Rule::too_many_warps, consumer_warps(c), kMaxConsumerWarps};
  if (c.stages < 2 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (c.raster < 1 || c.raster > 1024) return {Rule::raster_out_of_range, c.raster, 1024};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (const Verdict<Rule> types = why_invalid_types(c); !types.ok()) return types;
  if (c.cluster_m != 1) return {Rule::cluster_too_large, c.cluster_m, 1};
  if (c.cluster_n != 1) return {Rule::cluster_too_large, c.cluster_n, 1};
  if (c.split_k < 1 || c.split_k > kMaxSplitK) return {Rule::split_k_out_of_range, c.split_k, kMaxSplitK};
  if (is_swapped(c) && c.facts.gate != Gate::none) return {Rule::swap_of_gate, 1, 0};
  if (is_swapped(c) && c.facts.grouping != Grouping::none) return {Rule::swap_of_groups, 1, 0};
  if (c.split_k > 1 && c.facts.grouping != Grouping::none) return {Rule::split_k_of_groups, c.split_k, 1};
  if (const Verdict<Rule> tile = why_invalid_tile(c); !tile.ok()) return tile;
  if (is_quantized(c)) {
    if (is_swapped(c)) return {Rule::swap_of_blocks, 1, 0};
    const int block = block_elements(block_format(c.facts.d_format));
    if (warp_columns(c) % block != 0) return {Rule::part_of_block, warp_columns(c), block};
  }
  const bool is_dividing = c.facts.interleave > 0 && warp_columns(c) % c.facts.interleave == 0;
  if (c.facts.gate == Gate::interleaved && !is_dividing)
    return {Rule::interleave_not_dividing, c.facts.interleave, warp_columns(c)};
  const SmemLayout layout = smem_layout(c);
  const int sums = c.tile_m * sum_columns(c) * 4, ring = layout.a.bytes + layout.b.bytes;
  if (c.split_k > 1 && sums > ring) return {Rule::partial_sums_exceed_ring, sums, ring};
  const int bytes = layout.total_bytes;
  if (bytes > kMaxSmemBytesOfSm120) return {Rule::shared_memory_exceeded, bytes, kMaxSmemBytesOfSm120};
  return {};
}

// The most stages that fit, as many as a ring may have.
TESSERA_HD constexpr int most_stages(Config c) {
  c.stages = kMaxStages;
  while (c.stages > 2 && smem_layout(c).total_bytes > kMaxSmemBytesOfSm120) --c.stages;
  return c.stages;
}

// D through shared memory and its tensor map: rows of 16 of a warp's columns, in panels of at most 128 bytes. Each warp
// has some such blocks of the larger part of the ring's slot that its CTA read last, until TMA has read them. Not where
// registers were faster, or might be: docs/performance.md.
TESSERA_HD constexpr bool has_d_map(const Config& c) {
  const bool is_plain = c.facts.c == Addend::none && c.facts.gate == Gate::none && c.facts.grouping == Grouping::none;
  return is_plain && !is_quantized(c) && !is_swapped(c) && c.split_k == 1 && c.tile_m * c.tile_n >= 128 * 128;
}
TESSERA_HD constexpr int d_row_bytes(const Config& c) { return warp_columns(c) * dtype_bytes(c.facts.d_dtype); }
TESSERA_HD constexpr int d_span(const Config& c) { return d_row_bytes(c) < 128 ? d_row_bytes(c) : 128; }
TESSERA_HD constexpr Swizzle d_swizzle(const Config& c) {
  return d_span(c) == 32 ? Swizzle::b32 : d_span(c) == 64 ? Swizzle::b64 : Swizzle::b128;
}
TESSERA_HD constexpr int staged_bytes(const Config& c) { return kBlock * d_row_bytes(c); }
TESSERA_HD constexpr bool is_staged_in_a(const Config& c) { return a_slot_bytes(c) > b_slot_bytes(c); }
TESSERA_HD constexpr int staging_bytes(const Config& c) {  // of a warp
  return (is_staged_in_a(c) ? a_slot_bytes(c) : b_slot_bytes(c)) / consumer_warps(c);
}
TESSERA_HD constexpr int staged_blocks(const Config& c) {
  const int room = staging_bytes(c) / staged_bytes(c), blocks = warp_m(c) / kBlock;
  return room < blocks ? room : blocks;
}
TESSERA_HD constexpr TmaBox d_box(const Config& c) { return {{d_span(c) / dtype_bytes(c.facts.d_dtype), kBlock, 1}}; }

// Sums in units of 16 rows and some groups of eight columns: those that become whole vectors of D, or with a gate or a
// block-scaled D all that a warp has. CTAs that share a K store some units each; one of another warp's, or CTA's, is
// found by its number.
TESSERA_HD constexpr int unit_groups(const Config& c) {
  if (c.facts.gate != Gate::none || is_quantized(c)) return warp_n(c) / 8;
  if (is_swapped(c) || dtype_bytes(c.facts.d_dtype) != 2) return 1;
  return 4;
}
TESSERA_HD constexpr int units_of_warp(const Config& c) {
  return warp_m(c) / kBlock * (warp_n(c) / 8 / unit_groups(c));
}
TESSERA_HD constexpr int units(const Config& c) { return consumer_warps(c) * units_of_warp(c); }
TESSERA_HD constexpr int unit_bytes(const Config& c) { return unit_groups(c) * 8 * kBlock * 4; }

TESSERA_HD constexpr int num_roles(const Config& c) { return has_copies(c) ? 4 : 3; }
TESSERA_HD constexpr Role role(const Config& c, int index) {
  const RegisterBudget budget = register_budget(c);
  if (has_copies(c) && index == 2)
    return {is_gathered(c) ? "gather" : "scales", kFirstCopyWarp, kCopyWarps, budget.producer};
  switch (index) {
    case 0:
      return {"load", 0, 1, budget.producer};
    case 1:
      return {"idle", 1, has_copies(c) ? kFirstCopyWarp - 1 : 3, budget.producer};
    default:
      return {"consumer", 4, consumer_warps(c), budget.consumer};
  }
}

// K-major: all rows of a step. MN-major: a panel.
TESSERA_HD constexpr TmaBox operand_box(const Config& c, Layout layout, int rows) {
  return layout == Layout::mn_major ? TmaBox{{panel_rows(c, rows), tile_k(c), 1}}
                                    : TmaBox{{step_coordinates(c), rows, 1}};
}
TESSERA_HD constexpr TmaBox a_box(const Config& c) { return operand_box(c, a_layout(c), c.tile_m); }
TESSERA_HD constexpr TmaBox b_box(const Config& c) { return operand_box(c, b_layout(c), c.tile_n); }

// By 16 bits: a tile is 256 of them.
TESSERA_HD constexpr TmaBox scale_box(const Config& c, int rows) {
  return {{kTileBytes / 2, scale_tiles(c), row_tiles(rows)}};
}

// The walk over tiles: down the rows of D first, which with swap_ab are n.
TESSERA_HD constexpr gemm::ProductWalk walk(const Config& c) {
  return {.grouping = c.facts.grouping,
          .tile_m = c.tile_m,
          .tile_n = c.tile_n,
          .tile_k = tile_k(c),
          .split_k = c.split_k,
          .raster = c.raster,
          .is_along_n = is_swapped(c)};
}

}  // namespace tessera::gemm_mma
