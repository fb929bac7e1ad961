// Matrix product on Hopper: which Configs (spec/gemm_config.h) are legal, and everything that follows from one:
// shared memory, warp roles, registers, TMA boxes; factors of blocks are in spec/gemm_factors.h. Planner and device
// code evaluate the same functions.
//
//   d[i, m, n] = activation(alpha * scale_a * scale_b * sum_k a[i, m, k] * b[i, n, k] + beta * c[i, m, n] + bias[n])
//
// for i < l. A is [l, m, k] (K-major) or [l, k, m] (MN-major), B is [l, n, k] or [l, k, n]; C and D are [l, m, n]. Rows
// lie lda, ldb, ldc, ldd elements apart, matrices a_stride_l, ... Sums are fp32; C and bias have the type of D, bf16
// where D is an 8-bit one. Groups of rows have a B each, as spec/gemm_tcgen05.h has them. With a gather A is [a_rows,
// k], and row i of D, of masked groups row i of its matrix, has the row indices[i] of A (and of its factors): zeros
// where there is none of that number.
//
// With scale blocks (8-bit operands, both) the sum of each 128 of k is multiplied by a factor of A and one of B before
// it is added: sfa[i, m, k / 128] (of_row) or sfa[i, m / 128, k / 128] (square), and sfb of n likewise, fp32 numbers
// with any strides.
//
// With an interleaved gate columns of A B^T are `interleave` of the gate and as many of up in turn, and D has n / 2
// columns, f(factor * gate) * (factor * up) with factor = alpha * scale_a * scale_b, each with its bias first, fp32
// throughout, f and limits by facts.gate_activation and facts.gate_limit: both are in the same thread (gate.cuh). With
// a dual gate up is A B2^T, times alpha * scale_a * scale_b2: the first half of a tile's columns of sums is the gate's,
// the other up's, and what is called n below is twice the columns of D.
//
// With factors of D (d_scale_block, of an e4m3 D) 128 columns of a row share one, and D and sfd are what
// quantize_blocks (spec/quantize_blocks.h) makes of the fp32 numbers that are rounded otherwise: sfd[i, m, n / 128],
// fp32 numbers with any strides. A thread has two columns in eight of a row, so four threads find the largest magnitude
// in registers.
//
// A CTA takes tiles of tile_m x tile_n and walks along K in steps of 128 bytes. Consumer warpgroups own 64 or 128 rows
// each and keep their accumulators in registers; with the ping-pong schedule each of two owns whole tiles, so that one
// multiplies while the other stores. Of one more warpgroup warp 0 (load) produces: it loads A and B into a ring of
// `stages` slots; with scale blocks warp 1 (scales) loads their factors into the same slots, and of large tiles warp 2
// too: they take tiles in turn.
//
// With swap_ab the kernel multiplies B by A transposed, so that a tile has 64 rows or more of B and as many of A as
// suit a product of few rows. Everything here but the formula above, the facts and the entry then means by A, m, tile_m
// and cluster_m what belongs to B, and the other way round; only the last step tells them apart: what is stored is D
// transposed.
//
// A cluster is cluster_m x cluster_n x split_k CTAs with neighbouring tiles. Those along N share A, those along M share
// B: each loads its part of a shared operand and multicasts it. CTAs along split_k share the K of one tile; each sums
// its part, and then each adds up, in a fixed order, the columns that it stores: from the others' shared memory, or
// where the others have sent them.
//
// Tensor maps: rank 3, interleave none, element strides 1, zero fill, 128-byte swizzle (d: that of d_span_bytes):
//   a, b    dims {k, rows, l} (K-major) or {rows, k, l}, rows being m or n, each at least 1; boxes a_box, b_box
//   b2      as b, dual only
//   d       dims {n, m, l}; box d_box. A row that does not end on a multiple of 16 bytes, or a pitch that is none, is
//           stored without the map (epilogue.cuh), and so are columns of a tile that are no whole panel
//
// Entry parameters, in this order (with swap_ab b before a, n before m):
//   const __grid_constant__ TensorMap a, b, b2 (dual), d
//   d_pointer; int* groups (grouping); c (facts.c only); bias (facts.bias only); float* scale_a, scale_b (8-bit
//   operands only; may be null: 1; scale_b2 behind them, dual); float* sfa, sfb, long long sfa_stride_m, sfa_stride_k,
//   sfa_stride_l, sfb_stride_n,
//   .. (scale blocks only; with swap_ab those of b first); int m, n, k, l; long long ldd, d_stride_l; long long ldc,
//   c_stride_l (facts.c only); float alpha; float beta (c); a_pointer, int* indices, long long lda, int a_rows (gather,
//   which has no tensor map of A); float* sfd, long long sfd_stride_m, sfd_stride_n, sfd_stride_l (factors of D only)
// Launch: clusters of cluster_size() CTAs along x; grid.x a multiple of that, one cluster for each SM group that is
// there (split_k = 1) or for each tile of a cluster; block num_threads(); dynamic shared memory
// smem_layout().total_bytes.
#pragma once

#include "spec/gemm_config.h"
#include "spec/gemm_factors.h"
#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/product_facts.h"
#include "spec/wgmma_shape.h"
#include "tessera/spec/types.h"

namespace tessera::gemm {

using common::BarrierRow;
using common::Role;
using common::SmemRegion;
using TmaBox = common::TmaBox<3>;

TESSERA_HD constexpr int most_streamed_rows(const Config& c) {
  return multicast_size(c) > 1 ? kRowsOfSharedStreamedB : kRowsOfStreamedB;
}
// Whether the lines of a B of so many columns leave the L2 first, which so many rows of clusters read.
TESSERA_HD constexpr bool is_streamed(const Config& c, int rows_of_clusters, int columns, int k, int l) {
  const long long of_matrix = 1ll * columns * k, most = kMostStreamedBytes / element_bytes(c);
  return rows_of_clusters <= most_streamed_rows(c) && of_matrix <= most && of_matrix * l <= most;
}

// Columns of one matrix instruction: the tile's, or half of them where a thread with promoted sums of 256 has no
// registers for those of a step: 128 columns of a D that has factors are so many with a gate. (Without a gate ptxas
// spills, and 128 columns are enough.)
TESSERA_HD constexpr int instruction_columns(const Config& c) {
  const bool is_promoted = c.facts.accumulation == Accumulation::promoted;
  return is_promoted && is_gated(c) && has_d_factors(c) && c.tile_n == 256 ? c.tile_n / 2 : c.tile_n;
}
TESSERA_HD constexpr int instructions_of_block(const Config& c) { return c.tile_n / instruction_columns(c); }

// Accumulators of a thread; with promotion more for the sums of an instruction's step.
TESSERA_HD constexpr int accumulator_registers(const Config& c) {
  const int of_step = c.facts.accumulation == Accumulation::promoted ? instruction_columns(c) : 0;
  return (blocks(c) * c.tile_n + of_step) / 2;
}

// Columns of a tile that one CTA stores, of sums and of D.
TESSERA_HD constexpr int stored_columns(const Config& c) { return c.tile_n / c.split_k; }
TESSERA_HD constexpr int stored_columns_of_d(const Config& c) { return stored_columns(c) / (is_gated(c) ? 2 : 1); }
TESSERA_HD constexpr int columns_of_d(const Config& c, int n) { return is_gated(c) ? n / 2 : n; }
// Columns of sums of a tile with a gate: whole turns, and 16 columns of D at least; dual, whole panels of either B.
TESSERA_HD constexpr int unit_of_gate(const Config& c) {
  if (is_dual(c)) return b_layout(c) == Layout::mn_major ? 2 * kStepBytes / element_bytes(c) : 32;
  return 2 * (c.facts.interleave > 16 ? c.facts.interleave : 16);
}

// Whether all panels of a tile share one copy of the code that makes D of sums. It may be a hundred instructions (the
// error function, beside c and a bias), for each of 128 sums of a thread: three times the compile time of the rest.
TESSERA_HD constexpr bool shares_code(const Config& c) {
  return c.facts.activation == Activation::gelu ||
         (c.facts.c == Addend::matrix && c.facts.activation != Activation::none);
}

// Whether columns of a tile that are no whole panel may be left over: the threads store those themselves. So a width
// need not be a multiple of a panel's, and few barriers stand between panels: 128x176 has three, not eleven of 16.
TESSERA_HD constexpr bool may_have_rest(const Config& c) {
  return !c.has_whole_panels && c.split_k == 1 && !is_gated(c) && !has_d_factors(c) && !shares_code(c);
}

// Columns of a tile are a multiple of these, and 16 at least: a row's part in D is whole units of 16 bytes.
TESSERA_HD constexpr int unit_of_columns(const Config& c) {
  return may_have_rest(c) && !has_scale_blocks(c) && !is_8_bit(c.facts.d_dtype) ? 8 : 16;
}

struct SmemLayout {
  SmemRegion a;         // [stages][tile_m][128 B]; MN-major [stages][tile_m / 64][64 k][128 B]. Partial sums start here
  SmemRegion b;         // [stages][tile_n][128 B]; MN-major [stages][ceil(tile_n / 64)][64 k][128 B]
  SmemRegion d;         // [consumer warpgroup][staging_slots][64][d_span_bytes]; swap_ab: [panel_columns][d_span_bytes]
  SmemRegion scales;    // [stages][factors of A, then of B], or products of them and a ring; scale blocks only
  SmemRegion barriers;  // in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

struct Barriers {
  BarrierRow full;     // [stages]
  BarrierRow empty;    // [stages]
  BarrierRow fetched;  // one, split_k > 1 only: partial sums were read, or (sends_sums) have come
  int count = 0;       // of all
};
// The first one at `offset` of the shared memory at `smem`.
TESSERA_HD constexpr Barriers barriers_from(const Config& c, int offset, unsigned smem) {
  common::BarrierCursor cursor{{smem, offset, 0}};
  Barriers b;
  b.full = cursor.take(c.stages);
  b.empty = cursor.take(c.stages);
  b.fetched = cursor.take(c.split_k > 1 ? 1 : 0);
  b.count = cursor.next.index;
  return b;
}

TESSERA_HD constexpr int span_elements(const Config& c) { return kStepBytes / element_bytes(c); }

// Rows of B that are loaded for a tile: MN-major ones come in whole panels, of which the matrix instruction reads the
// first tile_n.
TESSERA_HD constexpr int b_slot_rows(const Config& c) {
  if (b_layout(c) != Layout::mn_major) return c.tile_n;
  return (c.tile_n + span_elements(c) - 1) / span_elements(c) * span_elements(c);
}

TESSERA_HD constexpr int a_slot_bytes(const Config& c) { return c.tile_m * kStepBytes; }
TESSERA_HD constexpr int b_slot_bytes(const Config& c) { return b_slot_rows(c) * kStepBytes; }
// D leaves in panels of 64 rows and at most 64 columns, of one swizzle span. (128 of an 8-bit type would keep 64
// registers busy beside the accumulators; those that share a factor have to.) With swap_ab a panel's columns are rows
// of D, any multiple of 16, and its 64 rows are a span.
TESSERA_HD constexpr int most_panel_columns(const Config& c) {
  return is_8_bit(c.facts.d_dtype) || is_swapped(c) ? 64 : 128 / dtype_bytes(c.facts.d_dtype);
}
TESSERA_HD constexpr int narrower_panel(const Config& c, int columns) {
  return is_swapped(c) ? columns - 16 : columns / 2;
}
// The most that divide a tile's columns, or 16.
TESSERA_HD constexpr int dividing_panel(const Config& c) {
  int columns = most_panel_columns(c);
  while (columns > 16 && stored_columns_of_d(c) % columns != 0) columns = narrower_panel(c, columns);
  return columns;
}
// Slots of the ring beside staging memory for panels of so many columns.
TESSERA_HD constexpr int stages_beside(const Config& c, int columns) {
  const int staging = consumer_warpgroups(c) * kStagingSlots * kBlockRows * columns * dtype_bytes(c.facts.d_dtype);
  const int stage = a_slot_bytes(c) + b_slot_bytes(c) + scale_slot_bytes(c) + 16;
  return (kMaxSmemBytes - staging - scale_ring_bytes(c)) / stage;
}
// Where columns may be left over, the most that leave the ring as many slots, and no more than as few panels need.
TESSERA_HD constexpr int panel_columns(const Config& c) {
  if (has_d_factors(c)) return kScaleBlock;
  const int dividing = dividing_panel(c), of_tile = stored_columns_of_d(c);
  if (!may_have_rest(c)) return dividing;
  int columns = most_panel_columns(c);
  while (columns > dividing && (columns > of_tile || stages_beside(c, columns) < stages_beside(c, dividing)))
    columns = narrower_panel(c, columns);
  while (is_swapped(c) && columns > 16 && (of_tile - 1) / (columns - 16) == (of_tile - 1) / columns) columns -= 16;
  return columns;
}
TESSERA_HD constexpr int d_span_bytes(const Config& c) {
  return (is_swapped(c) ? kBlockRows : panel_columns(c)) * dtype_bytes(c.facts.d_dtype);
}
TESSERA_HD constexpr Swizzle d_swizzle(const Config& c) {
  const int span = d_span_bytes(c);
  return span == 128 ? Swizzle::b128 : span == 64 ? Swizzle::b64 : span == 32 ? Swizzle::b32 : Swizzle::none;
}
// Columns that no whole panel has.
TESSERA_HD constexpr int rest_columns(const Config& c) { return stored_columns_of_d(c) % panel_columns(c); }
// Of a tile's panels, beside each other.
TESSERA_HD constexpr int panels_across(const Config& c) {
  return stored_columns_of_d(c) / panel_columns(c) + (rest_columns(c) > 0 ? 1 : 0);
}

// Slots in which a warpgroup stages panels of D: two in turn. Products with factors of blocks have one for each panel
// of a tile of 16-bit D, which then takes two barriers in place of two a panel.
TESSERA_HD constexpr bool stages_whole_tile(const Config& c) {
  return has_scale_blocks(c) && !is_swapped(c) && c.split_k == 1 &&
         (consumer_warpgroups(c) == 2 || (consumer_warpgroups(c) == 3 && joins_factors(c))) &&
         dtype_bytes(c.facts.d_dtype) == 2 && panel_columns(c) == 64 && rest_columns(c) == 0;
}
// Whether each warp starts stores of its own.
TESSERA_HD constexpr bool has_warps_that_store(const Config& c) { return stages_whole_tile(c) && joins_factors(c); }
TESSERA_HD constexpr int staging_slots(const Config& c) {
  return stages_whole_tile(c) ? blocks(c) * stored_columns_of_d(c) / panel_columns(c) : kStagingSlots;
}

TESSERA_HD constexpr int staging_slot_bytes(const Config& c) {
  return kBlockRows * panel_columns(c) * dtype_bytes(c.facts.d_dtype);
}

// Sums of other parts of K that come to a warpgroup: those of the columns that its CTA stores.
TESSERA_HD constexpr int incoming_part_bytes(const Config& c) { return kBlockRows * stored_columns(c) * 4; }
TESSERA_HD constexpr int incoming_bytes(const Config& c) { return (c.split_k - 1) * incoming_part_bytes(c); }
// Whether each CTA sends the others their columns as soon as it has multiplied (split.cuh), into memory that nothing
// but D's panels uses later: [consumer warpgroup][other part][columns / 8][thread][4] fp32. Where much would come, it
// would take slots of the ring. On an H200 products with factors of blocks, which get ready behind the launch before,
// took 4 to 10 % less time so, others no less.
TESSERA_HD constexpr bool sends_sums(const Config& c) {
  return c.split_k > 1 && has_scale_blocks(c) && blocks(c) == 1 && !shares_code(c) &&
         consumer_warpgroups(c) * incoming_bytes(c) <= kMostIncomingBytes;
}
// Whether the sums go out before the last steps: of these, which lie in the middle of K, each of two CTAs takes its own
// columns alone, while the other's sums come. A slot has the own columns first. 128 x 4,096 x 7,168 on an H200 took 1 %
// less so, with four such steps 0.5 %, with eight 2 % more.
inline constexpr int kSharedSteps = 2;
TESSERA_HD constexpr bool shares_steps(const Config& c) {
  return sends_sums(c) && c.split_k == 2 && multicast_size(c) == 1 && !is_swapped(c) &&
         b_scale_block(c) == ScaleBlock::square && (c.tile_n == kScaleBlock / 2 || c.tile_n == kScaleBlock);
}
// Of a warpgroup, for its panels.
TESSERA_HD constexpr int staging_bytes(const Config& c) {
  const int panels = staging_slots(c) * staging_slot_bytes(c), incoming = sends_sums(c) ? incoming_bytes(c) : 0;
  return incoming > panels ? incoming : panels;
}

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.a = {"a", 0, c.stages * a_slot_bytes(c)};
  layout.b = {"b", end_of(layout.a), c.stages * b_slot_bytes(c)};
  layout.d = {"d", end_of(layout.b), consumer_warpgroups(c) * staging_bytes(c)};
  layout.scales = {"scales", end_of(layout.d), c.stages * scale_slot_bytes(c) + scale_ring_bytes(c)};
  layout.barriers = {"barriers", end_of(layout.scales), 8 * barriers_from(c, 0, 0).count};
  layout.total_bytes = end_of(layout.barriers);
  return layout;
}

// Addresses, where `smem` is that of the CTA's shared memory.
TESSERA_HD constexpr Barriers barriers(const Config& c, unsigned smem = 0) {
  return barriers_from(c, smem_layout(c).barriers.offset, smem);
}
// The same in device code: their place is known when the kernel is compiled. (What a panel is takes loops that are not
// unrolled.)
template <Config C>
TESSERA_HD constexpr Barriers barriers_at(unsigned smem) {
  constexpr int kOffset = smem_layout(C).barriers.offset;
  return barriers_from(C, kOffset, smem);
}

// Registers per thread: at entry, as __launch_bounds__(num_threads, 1) deals them, and after setmaxnreg.
struct RegisterBudget {
  int entry = 0;
  int producer = 0;
  int consumer = 0;
};

TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  switch (consumer_warpgroups(c)) {
    case 1:  // all have enough: nothing moves
      return {240, 240, 240};
    case 2:  // loading factors, or rows by a list, takes more registers
      return has_scale_blocks(c) || is_gathered(c) ? RegisterBudget{168, 56, 224} : RegisterBudget{168, 40, 232};
    default:  // wide tiles leave the producer no more than it needs
      return c.tile_n <= 160 || is_gathered(c) ? RegisterBudget{128, 56, 152} : RegisterBudget{128, 32, 160};
  }
}

// Addresses and loop state beside the accumulators; with fewer ptxas spills. (With scale blocks they were tried with as
// many as the consumers have. A dual gate of 128 rows a warpgroup by 192 columns spilled with 40. Three warpgroups that
// find products of factors leave few, and need no more where D is of 16 bits.)
TESSERA_HD constexpr int registers_beside_accumulators(const Config& c) {
  if (is_dual(c) && blocks(c) > 1) return 44;
  if (joins_factors(c) && consumer_warpgroups(c) == 3 && stages_whole_tile(c)) return 24;
  return has_scale_blocks(c) ? 32 : 36;
}

// Beside those of one wgmma, in the registers that a kernel is launched with: with fewer ptxas gives up.
inline constexpr int kRegistersBesideInstruction = 26;

TESSERA_HD constexpr Verdict<Rule> why_invalid_gate(const Config& c) {
  if (!is_gated(c)) return {};
  const ProductFacts& f = c.facts;
  if (is_dual(c) && (f.bias != Bias::none || f.a_scale_block != ScaleBlock::none)) return {Rule::dual_gate, 1, 0};
  if (f.c != Addend::none || f.activation != Activation::none) return {Rule::gate_and_addend, 1, 0};
  if (is_dual(c) && f.interleave != 1) return {Rule::interleave_of_gate, f.interleave, 128};
  if (!is_dual(c) && (f.interleave < 8 || f.interleave > 128 || (f.interleave & (f.interleave - 1)) != 0))
    return {Rule::interleave_of_gate, f.interleave, 128};
  if (is_swapped(c)) return {Rule::swap_of_gate, 1, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_d_factors(const Config& c) {
  if (!has_d_factors(c)) return {};
  if (c.facts.d_dtype != DType::e4m3) return {Rule::type_of_d_factors, dtype_bytes(c.facts.d_dtype), 1};
  if (c.facts.d_scale_block == ScaleBlock::square) return {Rule::squares_of_d, 1, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_types(const Config& c) {
  const OperandType a = c.facts.a_type, b = c.facts.b_type;
  if (c.facts.d_format != OutputFormat::plain || (!is_gated(c) && c.facts.interleave != 1))
    return {Rule::facts_of_tcgen05, 1, 0};
  if (const Verdict<Rule> gate = why_invalid_gate(c); !gate.ok()) return gate;
  if (const Verdict<Rule> factors = why_invalid_d_factors(c); !factors.ok()) return factors;
  const bool is_16_bit = (a == OperandType::f16 || a == OperandType::bf16) && b == a;
  const bool is_fp8 =
      !is_block_scaled(a) && !is_block_scaled(b) && is_8_bit(element_type(a)) && is_8_bit(element_type(b));
  if (!is_16_bit && !is_fp8) return {Rule::operand_type, (operand_bits(a) + operand_bits(b)) / 8, 4};
  if (c.facts.d_dtype != DType::f32 && c.facts.d_dtype != DType::f16 && c.facts.d_dtype != DType::bf16 &&
      !is_8_bit(c.facts.d_dtype))
    return {Rule::output_type, dtype_bytes(c.facts.d_dtype), 4};
  if (is_fp8 && (a_layout(c) == Layout::mn_major || b_layout(c) == Layout::mn_major))
    return {Rule::layout_needs_16_bit, 1, 2};
  if (is_swapped(c) && is_grouped(c)) return {Rule::swap_of_groups, 1, 0};
  if (is_swapped(c) && dtype_bytes(c.facts.d_dtype) != 2)
    return {Rule::swap_needs_16_bit_output, dtype_bytes(c.facts.d_dtype), 2};
  if (!is_fp8 && c.facts.accumulation == Accumulation::promoted) return {Rule::promotion_needs_8_bit, 2, 1};
  const int scaled =
      (c.facts.a_scale_block != ScaleBlock::none ? 1 : 0) + (c.facts.b_scale_block != ScaleBlock::none ? 1 : 0);
  if (scaled > 0 && !is_fp8) return {Rule::scale_blocks_need_8_bit, 2, 1};
  if (scaled == 1) return {Rule::scale_blocks_of_one_operand, 1, 2};
  if (scaled > 0 && c.facts.accumulation != Accumulation::promoted) return {Rule::scale_blocks_need_promotion, 0, 1};
  if (c.facts.grouping == Grouping::contiguous && c.facts.a_layout == Layout::mn_major)
    return {Rule::layout_of_groups, 1, 0};
  if (is_gathered(c) && !is_grouped(c)) return {Rule::gather_without_groups, 1, 0};
  if (is_gathered(c) && c.facts.a_layout == Layout::mn_major) return {Rule::layout_of_gather, 1, 0};
  if ((c.facts.grouping == Grouping::contiguous || is_gathered(c)) && c.facts.a_scale_block == ScaleBlock::square)
    return {Rule::squares_of_groups, 1, 0};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_tile(const Config& c) {
  if (c.tile_m < 64 || c.tile_m % 64 != 0) return {Rule::tile_m_not_multiple_of_64, c.tile_m, 64};
  if (c.tile_m > 256) return {Rule::tile_m_out_of_range, c.tile_m, 256};
  if (is_ping_pong(c) && c.tile_m > 128) return {Rule::tile_m_out_of_range, c.tile_m, 128};
  const int unit = c.tile_n < 16 ? 16 : unit_of_columns(c);
  if (c.tile_n < 16 || c.tile_n % unit != 0) return {Rule::tile_n_not_multiple, c.tile_n, unit};
  if (c.tile_n > 256) return {Rule::tile_n_out_of_range, c.tile_n, 256};
  if (is_gated(c) && c.tile_n % unit_of_gate(c) != 0) return {Rule::tile_n_of_gate, c.tile_n, unit_of_gate(c)};
  if (c.stages < 2 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (c.raster < 1 || c.raster > 1024) return {Rule::raster_out_of_range, c.raster, 1024};
  return {};
}

TESSERA_HD constexpr bool is_cluster_extent(int extent) {
  return extent == 1 || extent == 2 || extent == 4 || extent == 8;
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_cluster(const Config& c) {
  if (c.split_k < 1 || c.split_k > kMaxClusterSize) return {Rule::split_k_out_of_range, c.split_k, kMaxClusterSize};
  if (!is_cluster_extent(c.cluster_m)) return {Rule::cluster_too_large, c.cluster_m, kMaxClusterSize};
  if (!is_cluster_extent(c.cluster_n)) return {Rule::cluster_too_large, c.cluster_n, kMaxClusterSize};
  if (cluster_size(c) > kMaxClusterSize) return {Rule::cluster_too_large, cluster_size(c), kMaxClusterSize};
  if (c.split_k > 1 && is_grouped(c)) return {Rule::split_k_of_groups, c.split_k, 1};
  if (c.split_k > 1 && is_gated(c)) return {Rule::split_k_of_gate, c.split_k, 1};
  if (c.split_k > 1 && is_ping_pong(c)) return {Rule::split_k_and_ping_pong, c.split_k, 1};
  if (is_gathered(c) && c.cluster_n > 1) return {Rule::cluster_n_of_gather, c.cluster_n, 1};
  // Parts of an operand are whole swizzle patterns of 8 rows, or whole panels.
  const int unit_a = a_layout(c) == Layout::mn_major ? span_elements(c) : 8;
  const int unit_b = b_layout(c) == Layout::mn_major ? span_elements(c) : 8;
  if (c.tile_m % (c.cluster_n * unit_a) != 0) return {Rule::part_of_a_too_small, c.tile_m / c.cluster_n, unit_a};
  if (b_slot_rows(c) % (c.cluster_m * unit_b) != 0)
    return {Rule::part_of_b_too_small, b_slot_rows(c) / c.cluster_m, unit_b};
  if (c.split_k > 1 && c.tile_n % (c.split_k * 16) != 0) return {Rule::part_of_d_too_small, stored_columns(c), 16};
  if (has_d_factors(c) && stored_columns_of_d(c) % kScaleBlock != 0)
    return {Rule::columns_of_d_factors, stored_columns_of_d(c), kScaleBlock};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (const Verdict<Rule> types = why_invalid_types(c); !types.ok()) return types;
  if (const Verdict<Rule> tile = why_invalid_tile(c); !tile.ok()) return tile;
  if (const Verdict<Rule> cluster = why_invalid_cluster(c); !cluster.ok()) return cluster;
  const int registers = register_budget(c).consumer - registers_beside_accumulators(c);
  if (accumulator_registers(c) > registers)
    return {Rule::accumulators_exceed_registers, accumulator_registers(c), registers};
  const int of_instruction = register_budget(c).entry - kRegistersBesideInstruction, own = instruction_columns(c) / 2;
  if (own > of_instruction) return {Rule::accumulators_exceed_registers, own, of_instruction};
  const SmemLayout layout = smem_layout(c);
  const int ring_bytes = layout.a.bytes + layout.b.bytes;
  if (c.split_k > 1 && !sends_sums(c) && c.tile_m * c.tile_n * 4 > ring_bytes)
    return {Rule::partial_sums_exceed_ring, c.tile_m * c.tile_n * 4, ring_bytes};
  if (layout.total_bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, layout.total_bytes, kMaxSmemBytes};
  return {};
}

// The most stages that fit, as many as a ring may have.
TESSERA_HD constexpr int most_stages(Config c) {
  c.stages = kMaxStages;
  while (c.stages > 2 && smem_layout(c).total_bytes > kMaxSmemBytes) --c.stages;
  return c.stages;
}

TESSERA_HD constexpr int num_roles(const Config& c) { return has_scale_blocks(c) || is_gathered(c) ? 4 : 3; }

TESSERA_HD constexpr Role role(const Config& c, int index) {
  const RegisterBudget budget = register_budget(c);
  const int loading = !has_scale_blocks(c) ? 1 : joins_factors(c) ? 1 + kJoiners : 2;
  if (is_gathered(c) && index == 2) return {"gather", kFirstGatherWarp, kGatherWarps, budget.producer};
  if (index == (has_scale_blocks(c) ? 2 : 1))
    return {"idle", loading, (is_gathered(c) ? 2 : 4) - loading, budget.producer};
  switch (index) {
    case 0:
      return {"load", 0, 1, budget.producer};
    case 1:
      return {"scales", 1, loading - 1, budget.producer};
    default:
      return {"consumer", 4, 4 * consumer_warpgroups(c), budget.consumer};
  }
}

// Rows that one copy loads, of the `rows` that a CTA loads: as many as divide these, at most `most`, at least half as
// many. Copies that lie behind the matrix are left out (producer.cuh): boxes of 64 rows take no longer than whole
// tiles, narrower ones do, but leave fewer rows to fill with zeros.
TESSERA_HD constexpr int box_rows(const Config& c, Layout layout, int rows, int most) {
  if (layout == Layout::mn_major) return span_elements(c);
  for (int box = most; box >= most / 2; box -= 8)
    if (rows % box == 0) return box;
  return rows;
}
// Of the product's b.
TESSERA_HD constexpr int most_box_rows(const Config& c) { return c.box_m > kMostBoxRows ? c.box_m : kMostBoxRows; }
TESSERA_HD constexpr int a_box_rows(const Config& c) {
  return box_rows(c, a_layout(c), c.tile_m / c.cluster_n, is_swapped(c) ? most_box_rows(c) : c.box_m);
}
TESSERA_HD constexpr int b_box_rows(const Config& c) {
  if (shares_steps(c)) return stored_columns(c);
  const int parts = is_dual(c) && c.cluster_m == 1 ? 2 : c.cluster_m;
  return box_rows(c, b_layout(c), b_slot_rows(c) / parts, is_swapped(c) ? c.box_m : most_box_rows(c));
}

// K-major: whole rows of a step. MN-major: a panel.
TESSERA_HD constexpr TmaBox operand_box(const Config& c, Layout layout, int box) {
  if (layout == Layout::mn_major) return {{box, tile_k(c), 1}};
  return {{tile_k(c), box, 1}};
}
TESSERA_HD constexpr TmaBox a_box(const Config& c) { return operand_box(c, a_layout(c), a_box_rows(c)); }
TESSERA_HD constexpr TmaBox b_box(const Config& c) { return operand_box(c, b_layout(c), b_box_rows(c)); }
TESSERA_HD constexpr TmaBox d_box(const Config& c) {
  return is_swapped(c) ? TmaBox{{kBlockRows, panel_columns(c), 1}} : TmaBox{{panel_columns(c), kBlockRows, 1}};
}

inline constexpr int kStepsOfStage = kStepBytes / 32;  // every wgmma takes 32 bytes of K

// Whether each role waits for the end of the launch before by itself, when it knows its first tile (kernel.cuh). With
// groups all threads wait at once: what they walk over is read from memory.
TESSERA_HD constexpr bool roles_wait(const Config& c) { return has_scale_blocks(c) && !is_grouped(c); }
// Bytes of the product's b of a step that a CTA loads, and steps of it that a CTA has brought to the L2 meanwhile: what
// memory gives between two launches. Twice as much took up to 10 % more time on an H200.
TESSERA_HD constexpr int weight_bytes(const Config& c) {
  return is_swapped(c) ? a_slot_bytes(c) / c.cluster_n : b_slot_bytes(c) / c.cluster_m;
}
TESSERA_HD constexpr int prefetched_steps(const Config& c) {
  const int steps = (kPrefetchedBytes + weight_bytes(c) - 1) / weight_bytes(c);
  return steps < c.stages ? steps : c.stages;
}

// The product of one ring slot.
TESSERA_HD constexpr WgmmaShape wgmma_shape(const Config& c) {
  return {instruction_columns(c),          a_dtype(c), false, b_layout(c) == Layout::mn_major, kStepsOfStage,
          a_layout(c) == Layout::mn_major, b_dtype(c)};
}

}  // namespace tessera::gemm
