// Fused attention forward on Hopper: what a Config is, which ones are legal, and everything that follows from one:
// shared memory, warp roles, registers, TMA boxes, grid. Planner and device code evaluate the same functions.
//
//   q [batch, seqlen_q, heads_q, head_dim], k and v [batch, seqlen_k, heads_kv, head_dim], o as q.
//   s = softmax_scale * q k^T, masked; o = softmax(s) v.
//
// A CTA takes tiles of tile_m queries of one head and walks over the keys in steps of tile_n. tile_m / 64 consumer
// warpgroups own 64 query rows each: S and O live in their registers, Q, K and V in shared memory. One more warpgroup
// produces: its warp 0 loads K and V into two rings of `stages` slots, its warp 1 loads Q, its warp 2 stores O.
//
// Shared tiles are panels of one swizzle span: [head_dim / span][rows][span], which one rank-5 TMA box fills.
//
// Tensor maps, all with interleave none, element strides 1, zero fill, and the swizzle of the Config (its flag
// spelling: none, 32B, 64B, 128B). `e` is the number of elements in a span (span_elements; for the fp32 O:
// o_span_elements):
//   dims    {e, max(seqlen, 1), head_dim / e, max(heads, 1), max(batch, 1)}
//   strides {seqlen stride, span bytes, head stride, batch stride}, in bytes
//   boxes   q_box, kv_box (k and v), o_box; type: that of the Config, fp32 for the un-normalised O
//
// Entry parameters, in this order:
//   const __grid_constant__ TensorMap q, k, v, o
//   float* lse          [batch, heads_q, seqlen_q] dense, may be null
//   float* row_max      as lse; un-normalised output only (required), else the parameter does not exist
//   float* row_sum      as row_max
//   int batch, heads_q, heads_kv, seqlen_q, seqlen_k
//   float softmax_scale
// Launch: grid {min(ctas_per_sm * num_sms, ceil_div(seqlen_q, tile_m) * heads_q * batch), 1, 1}, block {threads, 1, 1},
// dynamic shared memory smem_layout().total_bytes, no cluster, no workspace. A grid of 0 has nothing to do.
// Domain: heads_q a multiple of heads_kv; the product ceil_div(seqlen_q, tile_m) * heads_q * batch, every seqlen and
// seqlen_q + seqlen_k below 2^31 - 2^16.
#pragma once

#include "spec/types.h"

namespace tessera::fmha {

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  int head_dim = 128;
  int tile_m = 128;  // queries of a CTA: 64 for each consumer warpgroup
  int tile_n = 128;  // keys of a step
  int stages = 2;    // slots of the K ring and of the V ring
  int q_stages = 1;  // slots for Q: with 2 the next tile's Q is loaded while this one is worked on
  Swizzle swizzle = Swizzle::b128;
  MmaKind mma_kind = MmaKind::wgmma_f16;
  DType dtype = DType::bf16;
  Mask mask = Mask::none;
  Output output = Output::normalized;
  bool ping_pong = true;  // consumer warpgroups take turns at the tensor cores

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// The limits of sm_90a that the rules use.
inline constexpr int kMaxSmemBytes = 232448;       // per CTA, opted in
inline constexpr int kMaxSmemBytesOfTwo = 115712;  // per CTA if two shall be resident: 228 KB less 1 KB for each
inline constexpr int kMaxStages = 8;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kRowsPerWarpgroup = 64;  // wgmma M

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_16_bit,                // bytes of the type; 2
  head_dim_not_multiple_of_16,     // head_dim; 16 (wgmma K)
  head_dim_out_of_range,           // head_dim; 256 (wgmma N)
  head_dim_not_multiple_of_span,   // bytes of a row of Q; bytes of the swizzle span
  tile_m_not_multiple_of_64,       // tile_m; 64 (wgmma M)
  tile_m_out_of_range,             // tile_m; 256
  tile_n_not_multiple_of_16,       // tile_n; 16 (wgmma K of P V)
  tile_n_out_of_range,             // tile_n; 256 (wgmma N of Q K^T, TMA box)
  stages_out_of_range,             // stages; 8
  q_stages_out_of_range,           // q_stages; 2
  ping_pong_needs_two_warpgroups,  // consumer warpgroups; 2
  accumulators_exceed_registers,   // registers for S, P and O per thread; those that the budget leaves
  instruction_exceeds_registers,   // accumulators of one wgmma per thread; those that the launch bounds leave
  shared_memory_exceeded,          // bytes; 232,448
};

TESSERA_HD constexpr int consumer_warpgroups(const Config& c) { return c.tile_m / kRowsPerWarpgroup; }
TESSERA_HD constexpr int num_threads(const Config& c) { return (consumer_warpgroups(c) + 1) * kWarpgroupThreads; }
TESSERA_HD constexpr int span_elements(const Config& c) { return swizzle_span_bytes(c.swizzle) / dtype_bytes(c.dtype); }
TESSERA_HD constexpr int o_element_bytes(const Config& c) {
  return c.output == Output::unnormalized ? 4 : dtype_bytes(c.dtype);
}
TESSERA_HD constexpr int o_span_elements(const Config& c) { return swizzle_span_bytes(c.swizzle) / o_element_bytes(c); }

// What a consumer thread holds of S (fp32), P (16 bit, the next A operand) and O (fp32).
TESSERA_HD constexpr int accumulator_registers(const Config& c) { return c.tile_n / 2 + c.tile_n / 4 + c.head_dim / 2; }

// One named piece of dynamic shared memory.
struct SmemRegion {
  const char* name = nullptr;
  int offset = 0;
  int bytes = 0;
};

struct SmemLayout {
  SmemRegion q;         // [q_stages][consumer warpgroup][head_dim / span][64][span]; O leaves through the same bytes
  SmemRegion k;         // [stages][head_dim / span][tile_n][span]
  SmemRegion v;         // as k
  SmemRegion barriers;  // 8 bytes each, in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

// Byte offsets of the mbarriers: arrays of full and empty barriers for each ring.
struct Barriers {
  int q_full = 0;   // [q_stages][consumer warpgroup]
  int q_empty = 0;  // as q_full
  int k_full = 0;   // [stages]
  int k_empty = 0;
  int v_full = 0;
  int v_empty = 0;
  int o_full = 0;  // as q_full
  int o_read = 0;  // [consumer warpgroup]
  int end = 0;
};

TESSERA_HD constexpr int q_slot_bytes(const Config& c) { return kRowsPerWarpgroup * c.head_dim * dtype_bytes(c.dtype); }
TESSERA_HD constexpr int kv_slot_bytes(const Config& c) { return c.tile_n * c.head_dim * dtype_bytes(c.dtype); }

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  const int num_q = c.q_stages * consumer_warpgroups(c);
  layout.q = {"q", 0, num_q * q_slot_bytes(c)};
  layout.k = {"k", layout.q.bytes, c.stages * kv_slot_bytes(c)};
  layout.v = {"v", layout.k.offset + layout.k.bytes, layout.k.bytes};
  layout.barriers = {"barriers", layout.v.offset + layout.v.bytes,
                     8 * (3 * num_q + 4 * c.stages + consumer_warpgroups(c))};
  layout.total_bytes = layout.barriers.offset + layout.barriers.bytes;
  return layout;
}

TESSERA_HD constexpr Barriers barriers(const Config& c) {
  const int num_q = c.q_stages * consumer_warpgroups(c);
  Barriers b;
  b.q_full = smem_layout(c).barriers.offset;
  b.q_empty = b.q_full + 8 * num_q;
  b.k_full = b.q_empty + 8 * num_q;
  b.k_empty = b.k_full + 8 * c.stages;
  b.v_full = b.k_empty + 8 * c.stages;
  b.v_empty = b.v_full + 8 * c.stages;
  b.o_full = b.v_empty + 8 * c.stages;
  b.o_read = b.o_full + 8 * num_q;
  b.end = b.o_read + 8 * consumer_warpgroups(c);
  return b;
}

// CTAs that an SM holds at once: a persistent grid is this times the number of SMs. One warpgroup of consumers leaves
// room for a second CTA, if shared memory and registers do.
TESSERA_HD constexpr int ctas_per_sm(const Config& c) {
  const bool is_small = consumer_warpgroups(c) == 1 && c.head_dim <= 128 && c.tile_n <= 192;
  return is_small && smem_layout(c).total_bytes <= kMaxSmemBytesOfTwo ? 2 : 1;
}

// Registers per thread: at entry, as __launch_bounds__(num_threads, ctas_per_sm) deals them, and after setmaxnreg. The
// sums over warpgroups stay within the entry's. With 24 registers a producer spills in its walk over causal tiles.
struct RegisterBudget {
  int entry = 0;
  int producer = 0;
  int consumer = 0;
};

TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  switch (consumer_warpgroups(c)) {
    case 1:
      return ctas_per_sm(c) == 2 ? RegisterBudget{128, 40, 216} : RegisterBudget{248, 40, 240};
    case 2:
      return {168, 40, 232};
    case 3:
      return {128, 32, 160};
    default:
      return {96, 32, 112};
  }
}

// Addresses, statistics and loop state beside the accumulators; with fewer ptxas spills.
inline constexpr int kRegistersBesideAccumulators = 32;
// What ptxas asks for beside one instruction's accumulators; it counts from the registers at entry.
inline constexpr int kRegistersBesideInstruction = 30;

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  const int span = swizzle_span_bytes(c.swizzle);
  const int row_bytes = c.head_dim * dtype_bytes(c.dtype);
  if (c.dtype != DType::f16 && c.dtype != DType::bf16) return {Rule::dtype_not_16_bit, dtype_bytes(c.dtype), 2};
  if (c.head_dim < 16 || c.head_dim % 16 != 0) return {Rule::head_dim_not_multiple_of_16, c.head_dim, 16};
  if (c.head_dim > 256) return {Rule::head_dim_out_of_range, c.head_dim, 256};
  if (row_bytes % span != 0) return {Rule::head_dim_not_multiple_of_span, row_bytes, span};
  if (c.tile_m < 64 || c.tile_m % 64 != 0) return {Rule::tile_m_not_multiple_of_64, c.tile_m, 64};
  if (c.tile_m > 256) return {Rule::tile_m_out_of_range, c.tile_m, 256};
  if (c.tile_n < 16 || c.tile_n % 16 != 0) return {Rule::tile_n_not_multiple_of_16, c.tile_n, 16};
  if (c.tile_n > 256) return {Rule::tile_n_out_of_range, c.tile_n, 256};
  if (c.stages < 1 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (c.q_stages < 1 || c.q_stages > 2) return {Rule::q_stages_out_of_range, c.q_stages, 2};
  if (c.ping_pong && consumer_warpgroups(c) < 2) {
    return {Rule::ping_pong_needs_two_warpgroups, consumer_warpgroups(c), 2};
  }
  const int registers = register_budget(c).consumer - kRegistersBesideAccumulators;
  if (accumulator_registers(c) > registers) {
    return {Rule::accumulators_exceed_registers, accumulator_registers(c), registers};
  }
  const int entry_registers = register_budget(c).entry - kRegistersBesideInstruction;
  const int instruction_n = c.tile_n > c.head_dim ? c.tile_n : c.head_dim;
  if (instruction_n / 2 > entry_registers)
    return {Rule::instruction_exceeds_registers, instruction_n / 2, entry_registers};
  const int bytes = smem_layout(c).total_bytes;
  if (bytes > kMaxSmemBytes) return {Rule::shared_memory_exceeded, bytes, kMaxSmemBytes};
  return {};
}

// Warps with one job.
struct Role {
  const char* name = nullptr;
  int first_warp = 0;
  int warps = 0;
  int registers = 0;
};

inline constexpr int kNumRoles = 5;
inline constexpr int kWarpOfKv = 0;  // of the producer warpgroup
inline constexpr int kWarpOfQ = 1;
inline constexpr int kWarpOfO = 2;

TESSERA_HD constexpr Role role(const Config& c, int index) {
  const RegisterBudget budget = register_budget(c);
  switch (index) {
    case 0:
      return {"load_kv", kWarpOfKv, 1, budget.producer};
    case 1:
      return {"load_q", kWarpOfQ, 1, budget.producer};
    case 2:
      return {"store_o", kWarpOfO, 1, budget.producer};
    case 3:
      return {"idle", 3, 1, budget.producer};
    default:
      return {"consumer", 4, 4 * consumer_warpgroups(c), budget.consumer};
  }
}

// A rank-5 TMA box, innermost first: {span, rows, panels, 1 head, 1 batch}.
struct TmaBox {
  int extents[5] = {1, 1, 1, 1, 1};
};

TESSERA_HD constexpr TmaBox q_box(const Config& c) {
  return {{span_elements(c), kRowsPerWarpgroup, c.head_dim / span_elements(c), 1, 1}};
}
TESSERA_HD constexpr TmaBox kv_box(const Config& c) {
  return {{span_elements(c), c.tile_n, c.head_dim / span_elements(c), 1, 1}};
}
// A warpgroup's O leaves in o_passes() boxes, each as large as its Q slot: fp32 needs two, by columns.
TESSERA_HD constexpr int o_passes(const Config& c) { return o_element_bytes(c) / dtype_bytes(c.dtype); }
TESSERA_HD constexpr TmaBox o_box(const Config& c) {
  return {{o_span_elements(c), kRowsPerWarpgroup, c.head_dim / o_passes(c) / o_span_elements(c), 1, 1}};
}

// What one statement of wgmma instructions does: `steps` times m64nNk16, fp32 accumulators. The generator writes one
// small header with these.
struct WgmmaShape {
  int n = 0;
  DType dtype = DType::bf16;
  bool a_in_registers = false;
  bool b_is_mn_major = false;
  int steps = 1;

  TESSERA_HD friend constexpr bool operator==(const WgmmaShape&, const WgmmaShape&) = default;
};

// How many of a product's steps go into one statement: all of them, or a part of equal size. The descriptors of more
// than 8 do not find room in the uniform registers.
TESSERA_HD constexpr int steps_of_statement(int steps) {
  int of_statement = steps < 8 ? steps : 8;
  while (steps % of_statement != 0) --of_statement;
  return of_statement;
}

// S = Q K^T and O += P V.
TESSERA_HD constexpr WgmmaShape score_wgmma(const Config& c) {
  return {c.tile_n, c.dtype, false, false, steps_of_statement(c.head_dim / 16)};
}
TESSERA_HD constexpr WgmmaShape output_wgmma(const Config& c) {
  return {c.head_dim, c.dtype, true, true, steps_of_statement(c.tile_n / 16)};
}

// Completes a Config whose head_dim, tile, stages, swizzle, types, mask and output are set: the choices that nobody
// pins.
TESSERA_HD constexpr Config complete(Config c) {
  c.ping_pong = consumer_warpgroups(c) >= 2;
  c.q_stages = 2;
  if (smem_layout(c).total_bytes > kMaxSmemBytes) c.q_stages = 1;
  return c;
}

// Tiles worth considering for a head_dim.
struct Tile {
  int head_dim = 0;
  int tile_m = 0;
  int tile_n = 0;
  int stages = 0;
};

inline constexpr Tile kTiles[] = {
    {64, 192, 128, 2},  {64, 256, 64, 2},  {64, 128, 128, 2},  {64, 192, 96, 2},  {64, 128, 128, 3},  {64, 64, 128, 2},
    {128, 128, 128, 2}, {128, 192, 80, 2}, {128, 128, 160, 2}, {128, 192, 80, 3}, {128, 128, 176, 2}, {128, 128, 96, 3},
    {128, 64, 64, 1},   {256, 128, 80, 2}, {256, 128, 64, 2},  {256, 128, 48, 3}, {256, 64, 64, 2},
};

// The tile that a Problem gets which pins none. Why: an H200, 16,384 tokens of 2,048 features, bf16, TFLOP/s at S =
// 1,024 / 4,096 / 16,384, all candidates in one run:
//   head_dim 64   no mask 192x128 462 546 586, 256x64 506 543 559; causal 256x64 352 511 543, 192x128 278 480 531
//   head_dim 128  no mask 192x80 624 735 755, 128x128 644 686 689; causal 128x128 455 631 667, 192x80 396 628 750
//   head_dim 256  no mask 128x64 671 774 806, 128x80 671 765 808; causal 128x64 507 720 766, 128x80 490 717 767 (and it
//                 spills)
TESSERA_HD constexpr Tile default_tile(int head_dim, Mask mask) {
  if (head_dim <= 64) return mask == Mask::none ? Tile{head_dim, 192, 128, 2} : Tile{head_dim, 256, 64, 2};
  if (head_dim <= 128) return mask == Mask::none ? Tile{head_dim, 192, 80, 2} : Tile{head_dim, 128, 128, 2};
  return {head_dim, 128, 64, 2};
}

// default_tile() with 128-byte swizzle, or the widest that divides a row, completed.
TESSERA_HD constexpr Config default_config(int head_dim, Mask mask, DType dtype, Output output) {
  const Tile tile = default_tile(head_dim, mask);
  Config c;
  c.head_dim = head_dim;
  c.tile_m = tile.tile_m;
  c.tile_n = tile.tile_n;
  c.stages = tile.stages;
  c.mask = mask;
  c.dtype = dtype;
  c.output = output;
  const int row_bytes = head_dim * dtype_bytes(dtype);
  c.swizzle = row_bytes % 128 == 0 ? Swizzle::b128 : row_bytes % 64 == 0 ? Swizzle::b64 : Swizzle::b32;
  return complete(c);
}

}  // namespace tessera::fmha
