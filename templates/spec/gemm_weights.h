// Products with 4-bit weights on Hopper: what a Config is, which ones are legal, and everything that follows from one.
// One file, though long: both kernels, of rings and of teams, have the same barriers and shared memory, and the rules
// of what is legal ask all of it.
//
//   d[i, m, n] = activation(alpha * scale_b * sum_k a[i, m, k] * w[i, n, k] + beta * c[i, m, n] + bias[n])
//
// A is [l, m, k], K-major, bf16, f16, e4m3 or e5m2; W the weights, packed (spec/packed_weights.h): e2m1 with a scale
// for 16 or 32 of k, which times its scale is a number of A's type, exactly; or int4 less its zero point, times a scale
// of A's type, rounded to that once. D, C and bias are bf16, f16 or f32. Sums are fp32.
//
// With factors of A's blocks (a_scale_block 1 x 128, an A of 8 bits, mma.f16 alone) the sum of each 128 of k is
// multiplied by sfa[i, m, k / 128] before it is added, in fp32: consumers read these factors, fp32 numbers with any
// strides, from memory during the step.
//
// An A of 8 bits is widened to bf16, which holds each of its numbers; what is said of A's type is then bf16's. alpha is
// multiplied by scale_a too, and scale_b goes with every type of weights.
//
// With a gate the rows of weights are eight of the gate and as many of up in turn, and D, of n / 2 columns, is
// activation(gate) * up of both with their bias (gemm/activation.cuh): a thread has the sums of both.
//
// D is made transposed: the weights are the rows of wgmma, 64 for each block of a consumer warpgroup, and come from
// registers; activations are its columns. One thread loads both into a ring of `stages` slots, of 128 of k each:
// activations by TMA, blocks of weights as they lie, in bulk. Consumers widen a block's weights, 64 of k at a time,
// while the products of those before are made.
//
// Up to 32 rows are limited by the memory, and by what widening asks of the instructions' issue: there are three or
// four warpgroups then (teams), each with one to three blocks and a ring of its own for their weights, filled by
// threads that do nothing else; the ring of `stages` slots has activations alone, and a step is 256 of k
// (step_depth()). Of a tile with fewer blocks k_groups() teams share each, and take its steps in turn. Rows that warps
// copy or widen have the kernel of many rows, with warpgroups that share k likewise.
//
// A cluster is split_k CTAs that share the k of a tile. Parts of the sums, of CTAs and of warpgroups, are left in
// shared memory; those of block i are added up, in their order, and stored by the first warpgroup that has it in the
// CTA of rank i % split_k.
//
// With teams each of a block's four 16 columns has an owner among the warps that share it, as with mma.f16.
//
// Groups of rows (facts.grouping) have weights each, and rows of A by a list (facts.gather), as spec/gemm.h has them;
// rows are copied by warps then, two of wgmma's, or with mma.f16 the one that loads. Rows of 8 bits always are, and the
// same warps widen them in the ring; and so are eight rows that stay in a long ring (mma.f16).
//
// That is wgmma.f16. With mma.f16, for few rows, each of eight to twelve warps has a block of 64 columns and a ring of
// its own for that block's weights, and multiplies by mma.sync, which takes the weights as wgmma does. Warps beyond the
// tile's blocks share k. The warps that have parts of a block's sums share adding them up.
//
// With few rows all activations of a part of k are loaded once, for all tiles, where they fit into the ring.
//
// Tensor maps: rank 3, zero fill: a (where no warp copies its rows) dims {k, m, l}, box a_box, 128-byte swizzle; a d of
// 16 bits dims {n, m, l}, as spec/gemm.h has it with swap_ab.
//
// Entry parameters, in this order: const __grid_constant__ TensorMap a (where there is one), d (16 bits only); b;
// d_pointer; int* groups (grouping); c (facts.c only); bias (facts.bias only); float* scale_a (8-bit A; may be null:
// 1); float* scale_b (nvfp4 or 8-bit A; likewise); int m, n, k, l; long long ldd, d_stride_l; long long ldc, c_stride_l
// (facts.c only); float alpha; float beta (c); a, int* indices, long long lda, int a_rows (gather), or a, long long
// lda, a_stride_l (others without a map); with factors of A float* sfa, long long sfa_stride_m, sfa_stride_k,
// sfa_stride_l before m. Launch: clusters of split_k CTAs along x, as many as the device holds at once or one for each
// tile; block num_threads(); dynamic shared memory smem_layout().total_bytes; programmatic stream serialization.
#pragma once

#include "spec/gemm.h"
#include "spec/kernel_parts.h"
#include "spec/limits.h"
#include "spec/packed_weights.h"
#include "spec/product_facts.h"
#include "spec/wgmma_shape.h"
#include "tessera/spec/types.h"

namespace tessera::gemm_weights {

using common::BarrierRow;
using common::Role;
using common::SmemRegion;
using TmaBox = common::TmaBox<3>;

struct Config {
  ProductFacts facts{.b_type = OperandType::mxfp4};
  int b_group = 128;  // int4: k that share a scale
  ZeroPoints zero_points = ZeroPoints::none;
  ScaleForm scale_form = ScaleForm::tile;  // plain: a step before this one packs rows of weights into the workspace
  MmaKind mma_kind = MmaKind::wgmma_f16;
  int tile_m = 16;   // rows of d: columns of the instruction
  int tile_n = 128;  // columns of d
  int stages = 8;    // slots of the ring, with few rows of activations alone
  int split_k = 1;   // CTAs that share the k of a tile
  int raster = 8;    // tiles along m that are walked before the next one along n

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kMaxStages = 16;
inline constexpr int kMaxDirectStages = 64;  // of activations alone
inline constexpr int kMaxDirectSplit = 8;
inline constexpr int kDirectRows = 16;                          // of weights: M of mma.sync
inline constexpr int kDirectParts = kWeightRows / kDirectRows;  // of a block
inline constexpr int kHalfRows = kWeightRows / 2;               // of half a block
inline constexpr int kHalfTile = 160;                           // columns
inline constexpr int kMaxSplit = 4;
inline constexpr int kFirstGatherWarp = 2;                      // wgmma.f16
inline constexpr int kGateRows = 8;                             // of weights, behind which as many of up stand
inline constexpr int kMaxParts = 8;                             // of a sum, which a thread adds up at a time
inline constexpr int kPanelBytes = 128;                         // of a row of activations: a swizzle span
inline constexpr int kPanels = kWeightDepth * 2 / kPanelBytes;  // of a slot
inline constexpr int kStepsOfHalf = kWeightHalf / 16;           // wgmma instructions

enum class Rule {
  ok,
  facts_of_others,                // 1; 0
  activation_type,                // bits of A's type; 16
  factors_of_a,                   // 1; 0
  factors_of_wgmma,               // 1; 0
  instruction,                    // 1; 0
  exponents_of_f16,               // 16; 16
  output_type,                    // bytes of D's type; 4
  gather_without_groups,          // 1; 0
  dual_gate,                      // 1; 0
  gate_and_addend,                // 1; 0
  interleave,                     // columns of the gate that stand together; 8
  group_of_int4,                  // k that share a scale; 128
  int4_alone,                     // 1; 0
  tile_m_not_supported,           // tile_m; 256
  tile_n_not_supported,           // tile_n; 256, of teams 576
  rows_not_supported,             // mma.f16: tile_m; 32
  stages_out_of_range,            // stages; 16
  stages_of_groups,               // stages; the multiple that they must be, twice it at least
  split_k_out_of_range,           // split_k; 4
  split_k_of_wide_tiles,          // blocks of a warpgroup; 1
  raster_out_of_range,            // raster; 1,024
  accumulators_exceed_registers,  // registers for accumulators per thread; those that the budget leaves
  shared_memory_exceeded,         // bytes; 232,448
};

TESSERA_HD constexpr PackedWeights weights(const Config& c) {
  return {c.facts.b_type, is_e2m1(c.facts.b_type) ? block_elements(block_format(c.facts.b_type)) : c.b_group,
          c.zero_points == ZeroPoints::given};
}
TESSERA_HD constexpr bool is_widened(const Config& c) {
  return c.facts.a_type == OperandType::e4m3 || c.facts.a_type == OperandType::e5m2;
}
// As it is multiplied.
TESSERA_HD constexpr DType a_dtype(const Config& c) {
  return is_widened(c) ? DType::bf16 : element_type(c.facts.a_type);
}
TESSERA_HD constexpr bool counts_codes(const Config& c) { return counts_codes(weights(c), a_dtype(c)); }
TESSERA_HD constexpr bool fuses_middle(const Config& c) { return fuses_middle(weights(c), a_dtype(c)); }
TESSERA_HD constexpr bool has_factors(const Config& c) { return c.facts.a_scale_block != ScaleBlock::none; }
TESSERA_HD constexpr bool is_grouped(const Config& c) { return c.facts.grouping != Grouping::none; }
TESSERA_HD constexpr bool is_gathered(const Config& c) { return c.facts.gather != Gather::none; }
// Those of a tile; of one of 160 columns the last one is half a block (has_half_block()).
TESSERA_HD constexpr int blocks_of_tile(const Config& c) { return (c.tile_n + kHalfRows) / kWeightRows; }
// Weights from memory to registers, and mma.sync.
TESSERA_HD constexpr bool is_direct(const Config& c) { return c.mma_kind == MmaKind::mma_f16; }
// Few rows by wgmma: each warpgroup has a ring of its own for its weights, as each warp has with mma.f16.
TESSERA_HD constexpr bool is_team(const Config& c) {
  return c.mma_kind == MmaKind::wgmma_f16 && c.tile_m <= kMostFewRows && !is_gathered(c) && !is_widened(c);
}
// Whether the ring of `stages` slots has activations alone.
TESSERA_HD constexpr bool has_own_rings(const Config& c) { return is_direct(c) || is_team(c); }
// A tile of two blocks and half of one, whose other half is of the tile beside it. The instruction has 64 rows of
// weights all the same: the 32 rows of k 0 to 63 of a block, then those of k 64 to 127, by twice the columns, the
// activations of both, which lie one behind the other. So half of the sums are of use, and none of the widening is for
// nothing.
TESSERA_HD constexpr bool has_half_block(const Config& c) { return is_team(c) && c.tile_n == kHalfTile; }
TESSERA_HD constexpr bool may_have_half_block(const Config& c) {
  return is_team(c) && c.facts.b_type == OperandType::mxfp4 && !is_grouped(c) && c.facts.gate == Gate::none;
}
TESSERA_HD constexpr bool is_upper_half(int column) { return column / kHalfRows % 2 != 0; }
// Of a tile that begins at a column: the first of its whole blocks, and the one that it has half of.
TESSERA_HD constexpr int first_block_of(int column) { return (column + kHalfRows) / kWeightRows; }
TESSERA_HD constexpr int half_block_of(int column) {
  return column / kWeightRows + (is_upper_half(column) ? 0 : kHalfTile / kWeightRows);
}
// Blocks of weights along the k of a step: teams spend fewer instructions on rings and barriers the longer a step is.
TESSERA_HD constexpr int step_blocks(const Config& c) { return is_team(c) ? 2 : 1; }
TESSERA_HD constexpr int step_depth(const Config& c) { return step_blocks(c) * kWeightDepth; }
TESSERA_HD constexpr bool is_gated(const Config& c) { return c.facts.gate != Gate::none; }
// Warps that copy rows of A, where TMA does not.
TESSERA_HD constexpr int gather_warps(const Config& c) { return is_direct(c) ? 1 : 2; }
// mma.f16: twelve warps, where 128 registers are enough for each, which is as many as thirteen can have; else eight, or
// nine where a tile has three blocks.
TESSERA_HD constexpr int direct_warps(const Config& c) {
  const int most_rows = has_factors(c) ? 0 : is_grouped(c) ? 8 : 16;
  const bool has_few_scales = is_e2m1(c.facts.b_type) || pair_bytes(weights(c)) <= 8;
  if (c.tile_m <= most_rows && c.tile_n >= 128 && has_few_scales) return 12;
  return blocks_of_tile(c) == 3 ? 9 : 8;
}
// Many rows want their sums' registers: two blocks a warpgroup, so that there are no more than two.
TESSERA_HD constexpr bool has_few_rows(const Config& c) { return c.tile_m <= kMostFewRows; }
TESSERA_HD constexpr int consumer_warpgroups(const Config& c) {
  if (is_direct(c)) return direct_warps(c) / 4;
  if (is_team(c)) return blocks_of_tile(c) % 3 == 0 ? 3 : 4;
  if (has_few_rows(c)) return 4;
  return blocks_of_tile(c) == 4 && c.tile_m > 64 ? 2 : blocks_of_tile(c);
}
// Warpgroups that share the k of a block within the CTA: slot s is of group s % k_groups(c).
TESSERA_HD constexpr int k_groups(const Config& c) {
  if (!has_own_rings(c)) return weight_k_groups(c.tile_m, c.tile_n);
  const int blocks = blocks_of_tile(c) < 1 ? 1 : blocks_of_tile(c);
  const int units = is_team(c) ? consumer_warpgroups(c) : direct_warps(c);
  return units < blocks ? 1 : units / blocks;
}
// Blocks of a warpgroup, and parts of a sum.
TESSERA_HD constexpr int blocks(const Config& c) {
  return (blocks_of_tile(c) * k_groups(c) + (is_team(c) ? consumer_warpgroups(c) - 1 : 0)) / consumer_warpgroups(c);
}
TESSERA_HD constexpr int parts(const Config& c) { return c.split_k * k_groups(c); }
// Teams that take the same steps; of a tile of seven blocks the last one has one, the others have two.
TESSERA_HD constexpr int teams_of_group(const Config& c) { return consumer_warpgroups(c) / k_groups(c); }
TESSERA_HD constexpr bool has_short_team(const Config& c) { return teams_of_group(c) * blocks(c) > blocks_of_tile(c); }
TESSERA_HD constexpr int blocks_of_team(const Config& c, int of_group) {
  return has_short_team(c) && of_group == teams_of_group(c) - 1 ? blocks(c) - 1 : blocks(c);
}
// Warps that load the weights of one team or two. With them, the one that loads activations and one that does nothing
// where there are four teams the loading warps are a warpgroup, which leaves registers to the others.
TESSERA_HD constexpr int team_loaders(const Config& c) {
  return consumer_warpgroups(c) == 4 ? 2 : consumer_warpgroups(c);
}
TESSERA_HD constexpr int num_threads(const Config& c) {
  if (is_team(c)) return (consumer_warpgroups(c) + 1) * kWarpgroupThreads;
  return is_direct(c) ? 32 * (direct_warps(c) + 1) : (consumer_warpgroups(c) + 1) * kWarpgroupThreads;
}
// The part of K whose warp adds up the 16 columns i of a block, the last of as many parts as there are columns: it has
// a step less than the first where k does not divide by the groups. How many of a block's a CTA has at most; and where
// those of i stand among them.
TESSERA_HD constexpr int direct_owner(const Config& c, int i) {
  return ((i + 1) * parts(c) + kDirectParts - 1) / kDirectParts - 1;
}
TESSERA_HD constexpr int direct_owned(const Config& c) { return (kDirectParts + c.split_k - 1) / c.split_k; }
TESSERA_HD constexpr int direct_place(const Config& c, int i) {
  int before = 0;
  for (int j = 0; j < i; ++j) before += direct_owner(c, j) / k_groups(c) == direct_owner(c, i) / k_groups(c) ? 1 : 0;
  return before;
}
// Arrivals of the others at the barrier of a group's warp, of what it owns; in a cluster the bytes count, and the owner
// arrives itself. One that owns nothing waits for nothing.
TESSERA_HD constexpr int direct_senders(const Config& c, int group) {
  int owned = 0;
  for (int i = 0; i < kDirectParts; ++i) owned += direct_owner(c, i) == group ? 1 : 0;
  return c.split_k > 1 || owned == 0 ? 1 : (parts(c) - 1) * owned;
}
// Warps that own some of a block's columns.
TESSERA_HD constexpr int direct_owners(const Config& c) { return parts(c) < kDirectParts ? parts(c) : kDirectParts; }

// Rows of A that one copy loads; copies of rows behind the last are left out, but for mma.f16.
TESSERA_HD constexpr int a_box_rows(const Config& c) {
  if (has_own_rings(c)) return c.tile_m;  // one thread loads a step while twelve warps multiply one: few copies
  if (c.tile_m > 128 && c.tile_m % 64 != 0) return c.tile_m / 2;
  return c.tile_m <= 32 ? 8 : c.tile_m <= 128 ? 32 : 64;
}
TESSERA_HD constexpr TmaBox a_box(const Config& c) { return {{kPanelBytes / 2, a_box_rows(c), 1}}; }

TESSERA_HD constexpr int panel_bytes(const Config& c) { return c.tile_m * kPanelBytes; }
TESSERA_HD constexpr int a_slot_bytes(const Config& c) { return step_blocks(c) * kPanels * panel_bytes(c); }
TESSERA_HD constexpr int b_slot_bytes(const Config& c) {
  return has_own_rings(c) ? 0 : blocks_of_tile(c) * weight_block_bytes(weights(c));
}

// Few rows: bytes of the sums that other parts send; and blocks of a ring of weights, as many as fit beside the
// activations, two at least.
TESSERA_HD constexpr int direct_parts_bytes(const Config& c) {
  const int columns = blocks_of_tile(c) * kWeightRows;
  return parts(c) > 1 ? direct_owned(c) * (parts(c) - 1) * c.tile_m * columns * 4 / kDirectParts : 0;
}
// Of half a block: the sums of k 64 to 127, which the warps of k 0 to 63 add to theirs.
TESSERA_HD constexpr int half_sums_bytes(const Config& c) { return has_half_block(c) ? kHalfRows * c.tile_m * 4 : 0; }
// Teams of groups of rows: the tile that a slot of activations is of.
inline constexpr int kTileBytes = 16;
TESSERA_HD constexpr int tiles_bytes(const Config& c) {
  return is_team(c) && is_grouped(c) ? c.stages * kTileBytes : 0;
}
inline constexpr int kLeastDepth = 2;
inline constexpr int kMostTeamDepth = 3;
TESSERA_HD constexpr int rings(const Config& c) { return is_team(c) ? consumer_warpgroups(c) : direct_warps(c); }
TESSERA_HD constexpr int most_depth(const Config& c) {
  if (is_team(c)) return kMostTeamDepth;
  return (c.tile_m > 8 ? 3 : 4) - (direct_warps(c) == 12 ? 1 : 0);
}
// A slot of a ring of weights.
TESSERA_HD constexpr int ring_slot_bytes(const Config& c) { return step_blocks(c) * weight_block_bytes(weights(c)); }
TESSERA_HD constexpr int direct_depth(const Config& c) {
  const int warps = rings(c), barriers = 2 * c.stages + warps + blocks_of_tile(c) * (is_team(c) ? 8 : 1);
  const int beside = c.stages * a_slot_bytes(c) + direct_parts_bytes(c) + half_sums_bytes(c) + tiles_bytes(c) +
                     8 * barriers + 1024;  // rounded up once
  int depth = most_depth(c);
  while (depth > kLeastDepth && beside + depth * warps * (ring_slot_bytes(c) + 16) > kMaxSmemBytes) --depth;
  return depth;
}

// Teams of one block, but for groups, whose slots say which tile they are of: the steps of a lap of the ring of weights
// are written one behind the other, so that slots are constants. And whether the ring of activations, which then holds
// none that stay, has laps as long.
TESSERA_HD constexpr bool has_laps(const Config& c) { return is_team(c) && !is_grouped(c) && blocks(c) == 1; }
TESSERA_HD constexpr bool has_common_lap(const Config& c) {
  return has_laps(c) && c.stages == direct_depth(c) * k_groups(c);
}

// Whether laps within a tile have code of their own, twice as much in all, which is fetched anew for each launch: of
// few laps (8,192 of k by two groups in clusters of two) that takes longer than the instructions that it saves.
TESSERA_HD constexpr bool repeats_laps(const Config& c) {
  return has_laps(c) && (has_common_lap(c) || k_groups(c) == 1);
}

// Whether a launch asks for its further blocks and activations once the first are there: else what each multiprocessor
// asks for when the launch begins queues up before the memory, and the first block of some comes late. Where more rows
// make the instructions the limit that was no faster.
TESSERA_HD constexpr bool begins_slowly(const Config& c) {
  return has_laps(c) && (c.tile_m <= 16 || (k_groups(c) == 1 && consumer_warpgroups(c) == 3));
}

// Steps of a team's weights that a launch asks of the L2 before the launch before has ended, of teams of one block:
// with 16 rows that took 1 % longer, with 24 it was not timed. Of one group of teams more than a step.
TESSERA_HD constexpr int prefetched_steps(const Config& c) {
  if (!has_laps(c) || (c.tile_m != 8 && c.tile_m != 32)) return 0;
  return k_groups(c) == 1 ? direct_depth(c) : 1;
}

// mma.f16: whether the ring is so long that the weights' are not their deepest: one for activations that stay.
TESSERA_HD constexpr bool keeps_activations(const Config& c) {
  return is_direct(c) && c.tile_m == 8 && !is_grouped(c) && direct_depth(c) < most_depth(c);
}
// Whether warps copy rows of A, not TMA, whose copies queue behind those of weights.
TESSERA_HD constexpr bool copies_rows(const Config& c) {
  return is_gathered(c) || is_widened(c) || keeps_activations(c);
}

// Few rows: whether 16-bit rows of D leave as pairs of columns, by way of other lanes. Alone, of a part of the sums or
// of eight rows, that takes longer than the stores that it saves.
TESSERA_HD constexpr bool stores_pairs(const Config& c) {
  return has_own_rings(c) && c.facts.d_dtype != DType::f32 && (is_grouped(c) || (parts(c) == 1 && c.tile_m > 8));
}

// The Config of a product whose epilogue stores D: transposed, with so many blocks a warpgroup.
TESSERA_HD constexpr gemm::Config epilogue_config(const Config& c) {
  gemm::Config e;
  e.facts = c.facts;
  e.facts.a_type = is_widened(c) ? OperandType::bf16 : c.facts.a_type;
  e.facts.b_type = e.facts.a_type;
  e.facts.gate = Gate::none;  // gated sums leave from registers
  e.tile_m = blocks(c) == 2 ? 256 : 128;
  e.tile_n = c.tile_m;
  e.stages = 2;
  e.cluster_m = 1;
  e.swap_ab = SwapAb::on;
  e.has_whole_panels = true;
  return e;
}

// fp32 sums leave from registers: eight columns of a row are 32 bytes, a sector; and so do gated ones.
TESSERA_HD constexpr bool has_d_map(const Config& c) {
  return c.facts.d_dtype != DType::f32 && !has_own_rings(c) && !is_gated(c);
}

struct SmemLayout {
  SmemRegion a;         // [stages][2][tile_m][128 B]
  SmemRegion b;         // [stages][tile_n / 64][block of packed weights]; few rows: [rings()][direct_depth()][block]
  SmemRegion d;         // [consumer warpgroup][2][panel of D, transposed]
  SmemRegion parts;     // [k group][tile_n / 64][tile_m / 8][128 threads][16 B], where sums have parts; few rows:
                        // [tile_n / 64][direct_owned()][part but one][tile_m / 8][32 lanes][16 B]
  SmemRegion half;      // [2][tile_m / 8][32 lanes][16 B], of half a block
  SmemRegion tiles;     // [stages], teams of groups of rows
  SmemRegion barriers;  // in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

struct Barriers {
  BarrierRow full;     // [stages]
  BarrierRow empty;    // [stages]
  BarrierRow ready;    // [tile_n / 64], where sums have parts: all of a block's lie in shared memory; mma.f16: [warps],
                       // teams: [tile_n / 16]
  BarrierRow fetched;  // [tile_n / 64], likewise: this CTA's parts of it were read; teams: [tile_n / 16]
  BarrierRow loaded;   // [rings()][direct_depth()], few rows
  BarrierRow emptied;  // likewise, of teams
  BarrierRow early;    // [rings()], where teams have laps: the first half of the first slot, once
  int count = 0;       // of all
};
TESSERA_HD constexpr Barriers barriers_from(const Config& c, int offset, unsigned smem) {
  common::BarrierCursor cursor{{smem, offset, 0}};
  Barriers b;
  b.full = cursor.take(c.stages);
  b.empty = cursor.take(c.stages);
  const int units = blocks_of_tile(c) * (is_team(c) ? kDirectParts : 1);
  b.ready = cursor.take(parts(c) == 1 ? 0 : is_direct(c) ? direct_warps(c) : units);
  b.fetched = cursor.take(parts(c) > 1 ? units : 0);
  b.loaded = cursor.take(has_own_rings(c) ? rings(c) * direct_depth(c) : 0);
  b.emptied = cursor.take(is_team(c) ? rings(c) * direct_depth(c) : 0);
  b.early = cursor.take(has_laps(c) ? rings(c) : 0);
  b.count = cursor.next.index;
  return b;
}

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  layout.a = {"a", 0, c.stages * a_slot_bytes(c)};
  layout.b = {"b", end_of(layout.a),
              has_own_rings(c) ? rings(c) * direct_depth(c) * ring_slot_bytes(c) : c.stages * b_slot_bytes(c)};
  const int staging =
      has_d_map(c) ? consumer_warpgroups(c) * gemm::kStagingSlots * gemm::staging_slot_bytes(epilogue_config(c)) : 0;
  layout.d = {"d", static_cast<int>(round_up(end_of(layout.b), 1024)), staging};
  const int sums = has_own_rings(c) ? direct_parts_bytes(c) : parts(c) > 1 ? k_groups(c) * c.tile_m * c.tile_n * 4 : 0;
  layout.parts = {"parts", end_of(layout.d), sums};
  layout.half = {"half", end_of(layout.parts), half_sums_bytes(c)};
  layout.tiles = {"tiles", end_of(layout.half), tiles_bytes(c)};
  layout.barriers = {"barriers", end_of(layout.tiles), 8 * barriers_from(c, 0, 0).count};
  layout.total_bytes = end_of(layout.barriers);
  return layout;
}
TESSERA_HD constexpr Barriers barriers(const Config& c, unsigned smem = 0) {
  return barriers_from(c, smem_layout(c).barriers.offset, smem);
}

struct RegisterBudget {
  int entry = 0;
  int producer = 0;
  int consumer = 0;
};
TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  if (is_direct(c)) return direct_warps(c) == 12 ? RegisterBudget{128, 128, 128} : RegisterBudget{168, 168, 168};
  if (is_team(c)) return consumer_warpgroups(c) == 3 ? RegisterBudget{128, 128, 128} : RegisterBudget{96, 64, 104};
  switch (consumer_warpgroups(c)) {
    case 1:
      return {240, 240, 240};
    case 2:
      return {168, 56, 224};
    default:
      return {96, 64, 104};
  }
}
TESSERA_HD constexpr int accumulator_registers(const Config& c) { return blocks(c) * c.tile_m / 2; }
// Widened weights of two products in turn, codes, scales, addresses.
inline constexpr int kRegistersBesideAccumulators = 72;

TESSERA_HD constexpr Verdict<Rule> why_invalid_types(const Config& c) {
  const ProductFacts& f = c.facts;
  if (f.a_type != OperandType::bf16 && f.a_type != OperandType::f16 && !is_widened(c))
    return {Rule::activation_type, operand_bits(f.a_type), 16};
  if (f.b_scale_block != ScaleBlock::none || f.a_scale_block == ScaleBlock::square ||
      (has_factors(c) && !is_widened(c)))
    return {Rule::factors_of_a, 1, 0};
  if (f.d_format != OutputFormat::plain || f.d_scale_block != ScaleBlock::none || f.a_layout != Layout::k_major ||
      f.b_layout != Layout::k_major || f.accumulation != Accumulation::fast)
    return {Rule::facts_of_others, 1, 0};
  if (is_gathered(c) && !is_grouped(c)) return {Rule::gather_without_groups, 1, 0};
  if (f.gate == Gate::dual) return {Rule::dual_gate, 1, 0};
  if (is_gated(c) && (f.c != Addend::none || f.activation != Activation::none)) return {Rule::gate_and_addend, 1, 0};
  if (is_gated(c) && f.interleave != kGateRows) return {Rule::interleave, f.interleave, kGateRows};
  if (f.a_type == OperandType::f16 && f.b_type == OperandType::mxfp4) return {Rule::exponents_of_f16, 16, 16};
  if (is_e2m1(f.b_type) && (c.b_group != kWeightDepth || c.zero_points != ZeroPoints::none))
    return {Rule::int4_alone, 1, 0};
  if (c.b_group != 32 && c.b_group != 64 && c.b_group != kWeightDepth)
    return {Rule::group_of_int4, c.b_group, kWeightDepth};
  if (f.d_dtype != DType::bf16 && f.d_dtype != DType::f16 && f.d_dtype != DType::f32)
    return {Rule::output_type, dtype_bytes(f.d_dtype), 4};
  return {};
}

// Where units have rings of their own: slots, parts of k, memory.
TESSERA_HD constexpr Verdict<Rule> why_invalid_rings(const Config& c) {
  if (c.stages < 2 || c.stages > kMaxDirectStages) return {Rule::stages_out_of_range, c.stages, kMaxDirectStages};
  if (c.stages % k_groups(c) != 0 || c.stages < 2 * k_groups(c)) return {Rule::stages_of_groups, c.stages, k_groups(c)};
  if (c.split_k < 1 || c.split_k > kMaxDirectSplit) return {Rule::split_k_out_of_range, c.split_k, kMaxDirectSplit};
  if (c.raster < 1 || c.raster > 1024) return {Rule::raster_out_of_range, c.raster, 1024};
  const int bytes = smem_layout(c).total_bytes;
  if (bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, bytes, kMaxSmemBytes};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_direct(const Config& c) {
  // Sums of a step apart leave no registers for more rows.
  const int most_rows = has_factors(c) ? kMostFewRows / 2 : kMostFewRows;
  if ((c.tile_m != 8 && c.tile_m != 16 && c.tile_m != kMostFewRows) || c.tile_m > most_rows)
    return {Rule::rows_not_supported, c.tile_m, most_rows};
  if (c.tile_n != 64 && c.tile_n != 128 && c.tile_n != 192 && c.tile_n != 256 && !(c.tile_n == 384 && c.tile_m == 8))
    return {Rule::tile_n_not_supported, c.tile_n, c.tile_m == 8 ? 384 : 256};
  return why_invalid_rings(c);
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_team(const Config& c) {
  if (c.tile_m < 8 || c.tile_m % 8 != 0) return {Rule::tile_m_not_supported, c.tile_m, 256};
  if ((c.tile_n != kHalfTile || !may_have_half_block(c)) &&
      (c.tile_n < 64 || c.tile_n > 576 || c.tile_n % 64 != 0 || c.tile_n == 320))
    return {Rule::tile_n_not_supported, c.tile_n, 576};
  if (c.split_k > 1 && has_short_team(c)) return {Rule::split_k_of_wide_tiles, blocks(c), 1};
  return why_invalid_rings(c);
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (const Verdict<Rule> types = why_invalid_types(c); !types.ok()) return types;
  if (c.mma_kind != MmaKind::wgmma_f16 && c.mma_kind != MmaKind::mma_f16) return {Rule::instruction, 1, 0};
  if (is_direct(c)) return why_invalid_direct(c);
  if (has_factors(c)) return {Rule::factors_of_wgmma, 1, 0};
  if (is_team(c)) return why_invalid_team(c);
  if (c.tile_m < 16 || c.tile_m > 256 || c.tile_m % 16 != 0 || (c.tile_m > 32 && c.tile_m % a_box_rows(c) != 0))
    return {Rule::tile_m_not_supported, c.tile_m, 256};
  if (c.tile_n != 64 && c.tile_n != 128 && c.tile_n != 256) return {Rule::tile_n_not_supported, c.tile_n, 256};
  if (c.stages < 2 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  // A group asks for its next slot before it gives this one back.
  if (c.stages % k_groups(c) != 0 || c.stages < 2 * k_groups(c)) return {Rule::stages_of_groups, c.stages, k_groups(c)};
  const int most_parts = kMaxParts / k_groups(c), most_split = most_parts < kMaxSplit ? most_parts : kMaxSplit;
  if (c.split_k < 1 || c.split_k > most_split) return {Rule::split_k_out_of_range, c.split_k, most_split};
  if (c.split_k > 1 && blocks(c) > 1) return {Rule::split_k_of_wide_tiles, blocks(c), 1};
  if (c.raster < 1 || c.raster > 1024) return {Rule::raster_out_of_range, c.raster, 1024};
  const int registers = register_budget(c).consumer - kRegistersBesideAccumulators;
  if (accumulator_registers(c) > registers)
    return {Rule::accumulators_exceed_registers, accumulator_registers(c), registers};
  const int bytes = smem_layout(c).total_bytes;
  if (bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, bytes, kMaxSmemBytes};
  return {};
}

// The most stages that fit, as many as a ring may have.
TESSERA_HD constexpr int most_stages(Config c) {
  const int unit = k_groups(c);
  c.stages = (has_own_rings(c) ? kMaxDirectStages : kMaxStages) / unit * unit;
  while (c.stages > 2 * unit && smem_layout(c).total_bytes > kMaxSmemBytes) c.stages -= unit;
  return c.stages;
}

TESSERA_HD constexpr int roles(const Config& c) { return has_own_rings(c) ? 2 : copies_rows(c) ? 4 : 3; }
TESSERA_HD constexpr Role role(const Config& c, int index) {
  const RegisterBudget budget = register_budget(c);
  if (is_team(c)) {
    const int warps = 4 * consumer_warpgroups(c);
    return index == 0 ? Role{"consumer", 0, warps, budget.consumer} : Role{"load", warps, 4, budget.producer};
  }
  if (index == 0) return {"load", 0, 1, budget.producer};
  if (is_direct(c)) return {"consumer", 1, direct_warps(c), budget.consumer};
  if (index == 1) return {"idle", 1, copies_rows(c) ? 1 : 3, budget.producer};
  if (copies_rows(c) && index == 2) return {"gather", kFirstGatherWarp, gather_warps(c), budget.producer};
  return {"consumer", 4, 4 * consumer_warpgroups(c), budget.consumer};
}

// The products of 64 of k.
TESSERA_HD constexpr WgmmaShape wgmma_shape(const Config& c) {
  return {.n = c.tile_m, .dtype = a_dtype(c), .a_in_registers = true, .steps = kStepsOfHalf, .b_dtype = a_dtype(c)};
}
// Of half a block.
TESSERA_HD constexpr WgmmaShape wgmma_shape_of_half(const Config& c) {
  WgmmaShape shape = wgmma_shape(c);
  shape.n = 2 * c.tile_m;
  return shape;
}

}  // namespace tessera::gemm_weights
