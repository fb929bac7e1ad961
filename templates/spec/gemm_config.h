// What a Config of a matrix product on Hopper is, why one may be illegal, and what its fields say of operands and
// warps. What follows from a Config, and which ones are legal: spec/gemm.h.
#pragma once

#include "spec/limits.h"
#include "spec/product_facts.h"
#include "tessera/spec/types.h"

namespace tessera::gemm {

// One specialisation. A structural type: it is a template parameter of the device code.
struct Config {
  ProductFacts facts{};  // of the product: with swap_ab too its A is facts.a_type
  int tile_m = 128;
  int tile_n = 256;
  int stages = 4;     // slots of the ring
  int cluster_m = 2;  // CTAs along M that share B
  int cluster_n = 1;  // CTAs along N that share A
  int split_k = 1;    // CTAs that share the K of a tile
  KernelSchedule kernel_schedule = KernelSchedule::cooperative;
  int raster = 8;  // tiles of clusters along M that are walked before the next one along N
  SwapAb swap_ab = SwapAb::off;
  int box_m = 64;  // most rows of the product's a that one copy loads: fewer where few are expected; above 64, of b too
  bool has_whole_panels = false;  // no columns are left over (may_have_rest): of kernels that borrow the epilogue

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

// The limits of sm_90a that the rules use.
inline constexpr int kMaxStages = 16;
inline constexpr int kMaxClusterSize = 8;  // that every device of the target grants
inline constexpr int kBlockRows = 64;      // wgmma M
inline constexpr int kStepBytes = 128;     // of K: a swizzle span
inline constexpr int kStagingSlots = 2;    // for each consumer warpgroup
inline constexpr int kMostBoxRows = 64;    // of B, loaded by one copy
inline constexpr int kFirstGatherWarp = 2;
inline constexpr int kGatherWarps = 2;

// Where the next launch gets ready beside this one: what a CTA brings to the L2 for it, and how many CTAs leave no
// multiprocessor without one (132 of an H200 and H100).
inline constexpr int kPrefetchedBytes = 32768;
inline constexpr int kCtasOfDevice = 124;

inline constexpr int kMostIncomingBytes = 32768;  // sums of other parts of K that a CTA has memory for

// A B whose lines leave the L2 first (producer.cuh): its bytes, and the rows of clusters that read it.
inline constexpr long long kMostStreamedBytes = 320'000'000;
inline constexpr int kRowsOfStreamedB = 4;
inline constexpr int kRowsOfSharedStreamedB = 2;  // where CTAs share operands

// Why a Config is illegal. The comment says what `found` and `bound` of the verdict are.
enum class Rule {
  ok,
  facts_of_tcgen05,               // 1; 0
  dual_gate,                      // 1; 0
  gate_and_addend,                // 1; 0
  interleave_of_gate,             // columns of the gate that stand together; 128
  type_of_d_factors,              // bytes of D's type; 1
  squares_of_d,                   // 1; 0
  operand_type,                   // bytes of A's and B's types together; 2 or 4
  output_type,                    // bytes of D's type; 4
  layout_needs_16_bit,            // bytes of the type; 2
  promotion_needs_8_bit,          // bytes of the type; 1
  scale_blocks_need_8_bit,        // bytes of the type; 1
  scale_blocks_of_one_operand,    // operands with them; 2
  scale_blocks_need_promotion,    // 0; 1
  layout_of_groups,               // 1; 0
  squares_of_groups,              // 1; 0
  gather_without_groups,          // 1; 0
  layout_of_gather,               // 1; 0
  cluster_n_of_gather,            // cluster_n; 1
  swap_of_groups,                 // 1; 0
  split_k_of_groups,              // split_k; 1
  tile_m_not_multiple_of_64,      // tile_m; 64
  tile_m_out_of_range,            // tile_m; 256
  tile_n_not_multiple,            // tile_n; 8 or 16
  tile_n_out_of_range,            // tile_n; 256 (wgmma N)
  stages_out_of_range,            // stages; 16
  cluster_too_large,              // CTAs; 8
  split_k_out_of_range,           // split_k; 8
  split_k_and_ping_pong,          // split_k; 1
  raster_out_of_range,            // raster; 1,024
  part_of_a_too_small,            // rows of A that a CTA loads; the multiple that they must be
  part_of_b_too_small,            // rows of B that a CTA loads; the multiple that they must be
  part_of_d_too_small,            // columns that a CTA stores; 16
  swap_needs_16_bit_output,       // bytes of D's type; 2
  swap_of_gate,                   // 1; 0
  split_k_of_gate,                // split_k; 1
  tile_n_of_gate,                 // tile_n; columns of 16 columns of D, or of a turn of gate and up
  columns_of_d_factors,           // columns of D that a CTA stores; 128
  accumulators_exceed_registers,  // registers for accumulators per thread; those that the budget leaves
  partial_sums_exceed_ring,       // bytes of a tile in fp32; bytes of the ring
  shared_memory_exceeded,         // bytes; 232,448
};

TESSERA_HD constexpr bool is_8_bit(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }
TESSERA_HD constexpr bool is_ping_pong(const Config& c) { return c.kernel_schedule == KernelSchedule::ping_pong; }
TESSERA_HD constexpr bool is_swapped(const Config& c) { return c.swap_ab == SwapAb::on; }
TESSERA_HD constexpr bool is_grouped(const Config& c) { return c.facts.grouping != Grouping::none; }
TESSERA_HD constexpr bool is_gated(const Config& c) { return c.facts.gate != Gate::none; }
TESSERA_HD constexpr bool is_dual(const Config& c) { return c.facts.gate == Gate::dual; }
// Columns of sums of the gate that stand together.
TESSERA_HD constexpr int gate_columns(const Config& c) { return is_dual(c) ? c.tile_n / 2 : c.facts.interleave; }
TESSERA_HD constexpr bool is_gathered(const Config& c) { return c.facts.gather != Gather::none; }
// Of what the kernel calls A and B.
TESSERA_HD constexpr DType a_dtype(const Config& c) {
  return element_type(is_swapped(c) ? c.facts.b_type : c.facts.a_type);
}
TESSERA_HD constexpr DType b_dtype(const Config& c) {
  return element_type(is_swapped(c) ? c.facts.a_type : c.facts.b_type);
}
TESSERA_HD constexpr Layout a_layout(const Config& c) { return is_swapped(c) ? c.facts.b_layout : c.facts.a_layout; }
TESSERA_HD constexpr Layout b_layout(const Config& c) { return is_swapped(c) ? c.facts.a_layout : c.facts.b_layout; }
// Of what the kernel calls A and B.
TESSERA_HD constexpr ScaleBlock a_scale_block(const Config& c) {
  return is_swapped(c) ? c.facts.b_scale_block : c.facts.a_scale_block;
}
TESSERA_HD constexpr ScaleBlock b_scale_block(const Config& c) {
  return is_swapped(c) ? c.facts.a_scale_block : c.facts.b_scale_block;
}
TESSERA_HD constexpr bool has_scale_blocks(const Config& c) { return c.facts.a_scale_block != ScaleBlock::none; }
TESSERA_HD constexpr bool has_d_factors(const Config& c) { return c.facts.d_scale_block != ScaleBlock::none; }
TESSERA_HD constexpr int element_bytes(const Config& c) { return dtype_bytes(a_dtype(c)); }
TESSERA_HD constexpr int tile_k(const Config& c) { return kStepBytes / element_bytes(c); }
TESSERA_HD constexpr int multicast_size(const Config& c) { return c.cluster_m * c.cluster_n; }
TESSERA_HD constexpr int cluster_size(const Config& c) { return multicast_size(c) * c.split_k; }
TESSERA_HD constexpr DType c_dtype(const Config& c) {
  return is_8_bit(c.facts.d_dtype) ? DType::bf16 : c.facts.d_dtype;
}

TESSERA_HD constexpr int consumer_warpgroups(const Config& c) {
  if (is_ping_pong(c)) return 2;
  return c.tile_m == 192 ? 3 : c.tile_m >= 128 ? 2 : 1;
}
// 64-row blocks of a tile that one consumer warpgroup owns.
TESSERA_HD constexpr int blocks(const Config& c) {
  return c.tile_m / kBlockRows / (is_ping_pong(c) ? 1 : consumer_warpgroups(c));
}
TESSERA_HD constexpr int num_threads(const Config& c) { return (consumer_warpgroups(c) + 1) * kWarpgroupThreads; }

}  // namespace tessera::gemm
