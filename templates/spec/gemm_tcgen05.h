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

#include "spec/gemm_tcgen05_config.h"
#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/product_walk.h"
#include "tessera/spec/types.h"

namespace tessera::gemm_tcgen05 {

using common::BarrierRow;
using common::Role;
using common::SmemRegion;
using TmaBox = common::TmaBox<3>;

struct TmemLayout {
  int accumulators = 0;  // first column of each: i * sum_stride(): [product][columns]
  int scales = 0;        // first column: [slot][lanes' tile, then [product][row block] of the other side][4]
  int used = 0;
  int allocated = 0;  // the power of two that tcgen05.alloc takes
};

TESSERA_HD constexpr TmemLayout tmem_layout(const Config& c) {
  TmemLayout map;
  map.scales = all_sum_columns(c);
  map.used = map.scales + scale_slots(c) * scale_columns(c);
  map.allocated = 32;
  while (map.allocated < map.used) map.allocated *= 2;
  return map;
}

// The first scale's byte in its cell: 4-bit kinds read 4 (NVFP4) or 2 of it, mxf8f6f4 one.
TESSERA_HD constexpr int scale_id(const Config& c, int chunk) {
  return kind(c) == Tcgen05Kind::mxf4nvf4 ? 0 : kind(c) == Tcgen05Kind::mxf4 ? chunk % 2 * 2 : chunk;
}

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

// A pair that may have to mend scales.
TESSERA_HD constexpr bool has_scale_barriers(const Config& c) {
  return is_scaled(c) && pair_size(c) == 2 && reads_past_k(c);
}

// Tiles whose sums have barriers of their own. Where they overlap a tile's products follow what the last one's sums
// leave first, as with one accumulator.
TESSERA_HD constexpr int sum_phases(const Config& c) { return do_sums_overlap(c) ? 1 : c.accumulators; }

struct Barriers {
  BarrierRow full;         // [stages]
  BarrierRow empty;        // [stages]
  BarrierRow scales;       // [stages], with has_scale_barriers() only
  BarrierRow peer_scales;  // [stages], likewise
  BarrierRow scales_read;  // [scale_slots], where the multiplying warp waits for them
  BarrierRow sums_full;    // [sum_phases]
  BarrierRow sums_empty;   // [sum_phases]
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
  b.scales_read = cursor.take(waits_for_scale_slots(c) ? scale_slots(c) : 0);
  b.sums_full = cursor.take(sum_phases(c));
  b.sums_empty = cursor.take(sum_phases(c));
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
  const int sums = all_sum_columns(c);
  const int least_scales = least_scale_columns(c);
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
// Two tiles in TMEM where there is room for both beside scales, if need be for a part of the second.
TESSERA_HD constexpr int most_accumulators(Config c) {
  c.accumulators = 2;
  return all_sum_columns(c) + least_scale_columns(c) <= kTmemColumns ? 2 : 1;
}
// Panels of D after which a tile's sums are free for the products that wait for them.
TESSERA_HD constexpr int panels_until_free(const Config& c) {
  const int panels = stored_columns(c) / panel_columns(c);
  return do_sums_overlap(c) ? panels * kOverlapColumns / columns(c) : panels;
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
