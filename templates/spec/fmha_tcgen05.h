// Fused attention forward on sm_100 and sm_103: what a Config is, which ones are legal, and everything that follows
// from one: shared memory, Tensor Memory, warp roles, registers, TMA boxes, grid. Planner and device code evaluate the
// same functions. What is computed, tensors, entry parameters and launch are those of spec/fmha.h.
//
// A CTA takes tiles of tile_m queries of one head and walks over the keys in steps of tile_n. The tensor core sums S
// and O in Tensor Memory; each product has 128 query rows, so a tile is one or two of them ("Q tiles"). Warps have one
// job each: loads of K and V, loads of Q, stores of O, products; a warpgroup for each Q tile turns its S into P, one
// thread for a row; a correction warpgroup rescales O when a row's reference moves and takes the finished O out.
//
// Two buffers of S keep the tensor core busy while the other one is exponentiated: two Q tiles have one each, a single
// Q tile uses them in turn. P overwrites the second half of its S (p_path tmem) or goes to shared memory.
//
// A pair of CTAs (cta_pair) works on one tile with the products of .cta_group::2: the even CTA issues, each CTA has
// half of the rows of Q, of the keys of K and of the columns of V in its shared memory, and half of the rows of S and O
// in its Tensor Memory. Up to head_dim_v 256 a product then has 256 rows, 128 for each CTA. Beyond, it has 128: a CTA
// has 64 rows, and they are folded: lane l holds row l % 64, the lower half of the lanes the first half of a product's
// columns, the upper half the second. So 512 columns of O take 256 of Tensor Memory, and S finds room beside them.
//
// Shared tiles are panels of one swizzle span: [columns / span][rows][span]. Tensor maps are those of spec/fmha.h with
// the boxes below; v with v_layout k is [batch, heads_kv, head_dim_v, seqlen_k], its map {seqlen_k, head_dim_v, heads,
// batch} of rank 4.
//
// No Blackwell device has run any of this: ptxas takes it, and the emulator executes it.
#pragma once

#include "spec/types.h"

namespace tessera::fmha_tcgen05 {

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  int head_dim = 128;    // of q and k
  int head_dim_v = 128;  // of v and o
  int tile_m = 256;      // queries of a CTA, or of a pair: one or two products
  int tile_n = 128;      // keys of a step
  int stages = 2;        // slots of the K ring and of the V ring
  Swizzle swizzle = Swizzle::b128;
  MmaKind mma_kind = MmaKind::tcgen05_f16;
  DType dtype = DType::bf16;
  Mask mask = Mask::none;
  Output output = Output::normalized;
  Layout v_layout = Layout::mn_major;
  ProbabilityPath p_path = ProbabilityPath::tmem;
  bool cta_pair = false;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

inline constexpr int kMaxSmemBytes = 232448;  // per CTA, opted in
inline constexpr int kMaxStages = 8;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kTmemColumns = 512;
inline constexpr int kMaxProductN = 256;
inline constexpr int kMaxHeadDim = 512;
inline constexpr int kMaxTileN = 128;
inline constexpr int kNumBuffers = 2;  // of S

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  dtype_not_16_bit,               // bytes of the type; 2
  head_dim_not_multiple_of_16,    // head_dim or head_dim_v; 16, 32 for a pair (tcgen05 K, and N)
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
  tensor_memory_exceeded,         // columns; 512
  shared_memory_exceeded,         // bytes; 232,448
};

TESSERA_HD constexpr int ctas_per_tile(const Config& c) { return c.cta_pair ? 2 : 1; }
// See above: lane l holds row l % 64.
TESSERA_HD constexpr bool is_folded(const Config& c) { return c.cta_pair && c.head_dim_v > kMaxProductN; }
TESSERA_HD constexpr int rows_per_cta(const Config& c) { return is_folded(c) ? 64 : 128; }
TESSERA_HD constexpr int rows_per_product(const Config& c) { return rows_per_cta(c) * ctas_per_tile(c); }
TESSERA_HD constexpr int q_tiles(const Config& c) { return c.tile_m / rows_per_product(c); }
// Control warps, correction, and softmax for each Q tile.
TESSERA_HD constexpr int num_threads(const Config& c) { return (2 + q_tiles(c)) * kWarpgroupThreads; }
TESSERA_HD constexpr int ctas_per_sm(const Config&) { return 1; }

TESSERA_HD constexpr int span_elements(const Config& c) { return swizzle_span_bytes(c.swizzle) / dtype_bytes(c.dtype); }
TESSERA_HD constexpr int o_element_bytes(const Config& c) {
  return c.output == Output::unnormalized ? 4 : dtype_bytes(c.dtype);
}
TESSERA_HD constexpr int o_span_elements(const Config& c) { return swizzle_span_bytes(c.swizzle) / o_element_bytes(c); }

// O += P V in products of at most 256 columns; a CTA's shared memory has v_columns of each.
TESSERA_HD constexpr int pv_products(const Config& c) { return c.head_dim_v > kMaxProductN ? 2 : 1; }
TESSERA_HD constexpr int pv_columns(const Config& c) { return c.head_dim_v / pv_products(c); }
TESSERA_HD constexpr int v_columns(const Config& c) { return pv_columns(c) / ctas_per_tile(c); }
TESSERA_HD constexpr int k_rows(const Config& c) { return c.tile_n / ctas_per_tile(c); }

// Tensor Memory: S buffers, then O of each Q tile. Columns of 32 bits in all lanes.
TESSERA_HD constexpr int folds(const Config& c) { return is_folded(c) ? 2 : 1; }
TESSERA_HD constexpr int s_columns(const Config& c) { return c.tile_n / folds(c); }
TESSERA_HD constexpr int p_offset(const Config& c) { return c.tile_n / 2; }  // of P in its S
TESSERA_HD constexpr int o_columns(const Config& c) { return c.head_dim_v / folds(c); }
TESSERA_HD constexpr int s_column(const Config& c, int buffer) { return buffer * s_columns(c); }
TESSERA_HD constexpr int o_column(const Config& c, int q_tile) {
  return kNumBuffers * s_columns(c) + q_tile * o_columns(c);
}
TESSERA_HD constexpr int used_columns(const Config& c) { return o_column(c, q_tiles(c)); }
TESSERA_HD constexpr int allocated_columns(const Config& c) {
  int columns = 32;
  while (columns < used_columns(c)) columns *= 2;
  return columns;
}

// P is handed over in two parts, so that O += P V begins while the last exponentials are computed: keys of the first
// part; all of them where a thread has only one load's worth of scores, or its scores are half of the keys.
TESSERA_HD constexpr int p_first_keys(const Config& c) {
  return is_folded(c) || c.tile_n < 64 ? c.tile_n : c.tile_n - 32;
}
TESSERA_HD constexpr bool has_p_parts(const Config& c) { return p_first_keys(c) < c.tile_n; }

// P in shared memory has the widest swizzle that its rows allow: no TMA sees it.
TESSERA_HD constexpr Swizzle p_swizzle(const Config& c) { return c.tile_n % 64 == 0 ? Swizzle::b128 : Swizzle::b64; }

TESSERA_HD constexpr int q_slot_bytes(const Config& c) { return rows_per_cta(c) * c.head_dim * dtype_bytes(c.dtype); }
TESSERA_HD constexpr int k_slot_bytes(const Config& c) { return k_rows(c) * c.head_dim * dtype_bytes(c.dtype); }
TESSERA_HD constexpr int v_part_bytes(const Config& c) { return c.tile_n * v_columns(c) * dtype_bytes(c.dtype); }
TESSERA_HD constexpr int v_slot_bytes(const Config& c) { return pv_products(c) * v_part_bytes(c); }
TESSERA_HD constexpr int p_slot_bytes(const Config& c) {
  return c.p_path == ProbabilityPath::smem ? rows_per_cta(c) * c.tile_n * dtype_bytes(c.dtype) : 0;
}

// One named piece of dynamic shared memory.
struct SmemRegion {
  const char* name = nullptr;
  int offset = 0;
  int bytes = 0;
};

struct SmemLayout {
  SmemRegion q;         // [Q tile][head_dim / span][rows][span]; O leaves through the same bytes
  SmemRegion k;         // [stages][head_dim / span][keys][span]
  SmemRegion v;         // [stages][product][columns / span][keys][span]; K-major: [keys / span][columns][span]
  SmemRegion p;         // [Q tile][tile_n / span][rows][span], p_path smem only
  SmemRegion factors;   // [S buffer][lane], fp32: what the rows of O are multiplied with
  SmemRegion last;      // [Q tile][lane], fp32: likewise at the end
  SmemRegion halves;    // [2][Q tile][lane], fp32: maxima and sums that folded lanes exchange
  SmemRegion tmem;      // the address that tcgen05.alloc writes
  SmemRegion barriers;  // 8 bytes each, in the order of Barriers
  int total_bytes = 0;
  int alignment = 1024;
};

// Byte offsets of the mbarriers.
struct Barriers {
  int q_full = 0;     // [Q tile]
  int q_empty = 0;    // likewise
  int o_staged = 0;   // likewise
  int o_done = 0;     // likewise: a step's O += P V is complete
  int last_full = 0;  // likewise: the final factors are there
  int o_read = 0;     // one: a pass of O has left
  int k_full = 0;     // [stages]
  int k_empty = 0;
  int v_full = 0;
  int v_empty = 0;
  int s_full = 0;        // [S buffer]
  int p_full = 0;        // likewise: P, or its first part, is there and O may be added to
  int p_rest = 0;        // likewise: the second part
  int factors_full = 0;  // likewise
  int end = 0;
};

TESSERA_HD constexpr int num_barriers(const Config& c) { return 5 * q_tiles(c) + 1 + 4 * c.stages + 4 * kNumBuffers; }

TESSERA_HD constexpr SmemLayout smem_layout(const Config& c) {
  SmemLayout layout;
  const int lanes = 128 * 4;
  const auto after = [](const SmemRegion& region) { return region.offset + region.bytes; };
  // Every tile starts on a repeat of the widest pattern; small head_dims have slots below it.
  const auto aligned = [](int offset) { return static_cast<int>(round_up(offset, 1024)); };
  layout.q = {"q", 0, q_tiles(c) * q_slot_bytes(c)};
  layout.k = {"k", aligned(after(layout.q)), c.stages * k_slot_bytes(c)};
  layout.v = {"v", aligned(after(layout.k)), c.stages * v_slot_bytes(c)};
  layout.p = {"p", aligned(after(layout.v)), q_tiles(c) * p_slot_bytes(c)};
  layout.factors = {"factors", after(layout.p), kNumBuffers * lanes};
  layout.last = {"last_factors", after(layout.factors), q_tiles(c) * lanes};
  layout.halves = {"halves", after(layout.last), is_folded(c) ? 2 * q_tiles(c) * lanes : 0};
  layout.tmem = {"tmem_address", after(layout.halves), 8};
  layout.barriers = {"barriers", after(layout.tmem), 8 * num_barriers(c)};
  layout.total_bytes = after(layout.barriers);
  return layout;
}

TESSERA_HD constexpr Barriers barriers(const Config& c) {
  const int tiles = 8 * q_tiles(c);
  Barriers b;
  b.q_full = smem_layout(c).barriers.offset;
  b.q_empty = b.q_full + tiles;
  b.o_staged = b.q_empty + tiles;
  b.o_done = b.o_staged + tiles;
  b.last_full = b.o_done + tiles;
  b.o_read = b.last_full + tiles;
  b.k_full = b.o_read + 8;
  b.k_empty = b.k_full + 8 * c.stages;
  b.v_full = b.k_empty + 8 * c.stages;
  b.v_empty = b.v_full + 8 * c.stages;
  b.s_full = b.v_empty + 8 * c.stages;
  b.p_full = b.s_full + 8 * kNumBuffers;
  b.p_rest = b.p_full + 8 * kNumBuffers;
  b.factors_full = b.p_rest + 8 * kNumBuffers;
  b.end = b.factors_full + 8 * kNumBuffers;
  return b;
}

// Registers per thread: at entry, as the launch bounds deal them, and after setmaxnreg. A softmax thread holds a row of
// S, 128 values.
struct RegisterBudget {
  int entry = 0;
  int control = 0;
  int correction = 0;
  int softmax = 0;
};

TESSERA_HD constexpr RegisterBudget register_budget(const Config& c) {
  return q_tiles(c) == 2 ? RegisterBudget{128, 56, 72, 192} : RegisterBudget{168, 128, 136, 240};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid_head_dims(const Config& c) {
  const int multiple = 16 * ctas_per_tile(c);
  const int head_dims[] = {c.head_dim, c.head_dim_v};
  for (const int head_dim : head_dims) {
    if (head_dim < 16 || head_dim % multiple != 0) return {Rule::head_dim_not_multiple_of_16, head_dim, multiple};
    if (head_dim > kMaxHeadDim) return {Rule::head_dim_out_of_range, head_dim, kMaxHeadDim};
  }
  if (c.head_dim_v > c.head_dim) return {Rule::head_dim_v_exceeds_head_dim, c.head_dim_v, c.head_dim};
  if (c.head_dim_v > kMaxProductN && !c.cta_pair) return {Rule::head_dim_v_needs_pair, c.head_dim_v, kMaxProductN};
  const int span = swizzle_span_bytes(c.swizzle);
  const int q_bytes = c.head_dim * dtype_bytes(c.dtype);
  if (q_bytes % span != 0) return {Rule::head_dim_not_multiple_of_span, q_bytes, span};
  // O leaves in spans too, whatever the layout of V.
  const int columns = c.v_layout == Layout::mn_major ? v_columns(c) : pv_columns(c);
  const int v_bytes = columns * dtype_bytes(c.dtype);
  if (v_bytes % span != 0) return {Rule::head_dim_not_multiple_of_span, v_bytes, span};
  return {};
}

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.dtype != DType::f16 && c.dtype != DType::bf16) return {Rule::dtype_not_16_bit, dtype_bytes(c.dtype), 2};
  const Verdict<Rule> of_head_dims = why_invalid_head_dims(c);
  if (!of_head_dims.ok()) return of_head_dims;
  const int rows = rows_per_product(c);
  if (c.tile_m < rows || c.tile_m % rows != 0) return {Rule::tile_m_not_whole_products, c.tile_m, rows};
  if (c.tile_m > 2 * rows) return {Rule::tile_m_out_of_range, c.tile_m, 2 * rows};
  const int keys = 32 * folds(c);
  if (c.tile_n < keys || c.tile_n % keys != 0) return {Rule::tile_n_not_multiple_of_32, c.tile_n, keys};
  if (c.tile_n > kMaxTileN) return {Rule::tile_n_out_of_range, c.tile_n, kMaxTileN};
  if (c.v_layout == Layout::k_major && c.tile_n % span_elements(c) != 0) {
    return {Rule::tile_n_not_multiple_of_span, c.tile_n * dtype_bytes(c.dtype), swizzle_span_bytes(c.swizzle)};
  }
  if (c.stages < 1 || c.stages > kMaxStages) return {Rule::stages_out_of_range, c.stages, kMaxStages};
  if (is_folded(c) && c.p_path == ProbabilityPath::tmem) return {Rule::folded_p_in_tmem, rows_per_cta(c), 128};
  if (used_columns(c) > kTmemColumns) return {Rule::tensor_memory_exceeded, used_columns(c), kTmemColumns};
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

inline constexpr int kNumRoles = 6;
inline constexpr int kWarpOfKv = 0;
inline constexpr int kWarpOfQ = 1;
inline constexpr int kWarpOfO = 2;
inline constexpr int kWarpOfMma = 3;

TESSERA_HD constexpr Role role(const Config& c, int index) {
  const RegisterBudget budget = register_budget(c);
  switch (index) {
    case 0:
      return {"load_kv", kWarpOfKv, 1, budget.control};
    case 1:
      return {"load_q", kWarpOfQ, 1, budget.control};
    case 2:
      return {"store_o", kWarpOfO, 1, budget.control};
    case 3:
      return {"mma", kWarpOfMma, 1, budget.control};
    case 4:
      return {"correction", 4, 4, budget.correction};
    default:
      return {"softmax", 8, 4 * q_tiles(c), budget.softmax};
  }
}

// A TMA box, innermost first: {span, rows, panels, 1 head, 1 batch}; K-major V: {span, columns, 1, 1}.
struct TmaBox {
  int extents[5] = {1, 1, 1, 1, 1};
};

TESSERA_HD constexpr TmaBox q_box(const Config& c) {
  return {{span_elements(c), rows_per_cta(c), c.head_dim / span_elements(c), 1, 1}};
}
TESSERA_HD constexpr TmaBox k_box(const Config& c) {
  return {{span_elements(c), k_rows(c), c.head_dim / span_elements(c), 1, 1}};
}
TESSERA_HD constexpr TmaBox v_box(const Config& c) {
  if (c.v_layout == Layout::k_major) return {{span_elements(c), v_columns(c), 1, 1, 1}};
  return {{span_elements(c), c.tile_n, v_columns(c) / span_elements(c), 1, 1}};
}
// O leaves in o_passes() boxes, none larger than its Q slot: fp32 needs two, by columns.
TESSERA_HD constexpr int o_passes(const Config& c) { return o_element_bytes(c) / dtype_bytes(c.dtype); }
TESSERA_HD constexpr int o_pass_columns(const Config& c) { return c.head_dim_v / o_passes(c); }
TESSERA_HD constexpr TmaBox o_box(const Config& c) {
  return {{o_span_elements(c), rows_per_cta(c), o_pass_columns(c) / o_span_elements(c), 1, 1}};
}

// The head dimensions that kernels are made for, and the tile that a Problem gets which pins none.
struct Tile {
  int head_dim = 0;
  int head_dim_v = 0;
  int tile_m = 0;
  int tile_n = 0;
  int stages = 0;
  ProbabilityPath p_path = ProbabilityPath::tmem;
  bool cta_pair = false;
};

// The first of a head_dim is its default: the published kernels' shape where there is one, two Q tiles and 128 keys, as
// long as Tensor Memory and a ring of two slots allow. Nothing was measured: there was no such device. head_dim 512 has
// one slot of 128 keys: each half of it is loaded while the other product runs, and half as many steps pass through the
// softmax.
inline constexpr Tile kTiles[] = {
    {16, 16, 256, 128, 4},
    {16, 16, 128, 128, 4},
    {32, 32, 256, 128, 4},
    {32, 32, 128, 128, 4},
    {64, 64, 256, 128, 3},
    {64, 64, 128, 128, 3},
    {64, 64, 256, 64, 4},
    {96, 96, 256, 128, 2},
    {96, 96, 128, 128, 2},
    {128, 128, 256, 128, 2},
    {128, 128, 128, 128, 2},
    {128, 128, 256, 64, 4},
    {192, 128, 256, 64, 2},
    {192, 128, 256, 64, 3},
    {192, 128, 128, 128, 1},
    {192, 192, 256, 64, 2},
    {192, 192, 128, 64, 2},
    {256, 256, 128, 64, 2},
    {256, 256, 128, 128, 1},
    {128, 128, 512, 128, 4, ProbabilityPath::tmem, true},
    {256, 256, 256, 128, 2, ProbabilityPath::tmem, true},
    {512, 512, 128, 128, 1, ProbabilityPath::smem, true},
    {512, 512, 128, 64, 2, ProbabilityPath::smem, true},
};

// The widest swizzle whose span divides what a CTA has of a row.
TESSERA_HD constexpr Swizzle widest_swizzle(const Config& c) {
  const Swizzle swizzles[] = {Swizzle::b128, Swizzle::b64, Swizzle::b32};
  for (const Swizzle swizzle : swizzles) {
    Config widened = c;
    widened.swizzle = swizzle;
    if (why_invalid_head_dims(widened).rule != Rule::head_dim_not_multiple_of_span &&
        (c.v_layout == Layout::mn_major || c.tile_n % span_elements(widened) == 0)) {
      return swizzle;
    }
  }
  return Swizzle::none;
}

// The default for these facts.
TESSERA_HD constexpr Config default_config(int head_dim, int head_dim_v, Mask mask, DType dtype, Output output,
                                           Layout v_layout = Layout::mn_major) {
  Config c;
  c.head_dim = head_dim;
  c.head_dim_v = head_dim_v;
  c.mask = mask;
  c.dtype = dtype;
  c.output = output;
  c.v_layout = v_layout;
  for (const Tile& tile : kTiles) {
    if (tile.head_dim != head_dim || tile.head_dim_v != head_dim_v) continue;
    c.tile_m = tile.tile_m;
    c.tile_n = tile.tile_n;
    c.stages = tile.stages;
    c.p_path = tile.p_path;
    c.cta_pair = tile.cta_pair;
    break;
  }
  c.swizzle = widest_swizzle(c);
  return c;
}

}  // namespace tessera::fmha_tcgen05
