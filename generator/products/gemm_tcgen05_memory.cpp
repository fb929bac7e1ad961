// Who owns which bytes of shared memory and which columns of Tensor Memory when, as templates/gemm_tcgen05 hands them
// on: producer.cuh, multiplier.cuh, storer.cuh, epilogue.cuh; and what its launch is made from.
#include <fmt/format.h>

#include <iterator>

#include "generator/operator_words.h"
#include "generator/products/gemm_launch.h"
#include "generator/products/gemm_tcgen05_operator.h"

namespace tessera::gemm_tcgen05 {

namespace {

std::vector<std::uint32_t> extents_of(const gemm_tcgen05::TmaBox& box) {
  return {std::begin(box.extents), std::end(box.extents)};
}

void add_smem(const Config& c, Plan& plan) {
  const gemm_tcgen05::SmemLayout map = gemm_tcgen05::smem_layout(c);
  const std::string_view full = gemm_tcgen05::has_scale_barriers(c) ? "barrier scales" : "barrier full";
  const auto add = [&](const gemm_tcgen05::SmemRegion& region, int slots, std::vector<MemoryPhase> phases) {
    if (region.bytes > 0)
      plan.smem.push_back({.name = region.name,
                           .offset = region.offset,
                           .bytes = region.bytes,
                           .slots = slots,
                           .phases = std::move(phases)});
  };
  const auto ring = [&](const gemm_tcgen05::SmemRegion& region) {
    std::vector<MemoryPhase> phases = {
        {fmt::format("{} on its way", region.name), "load", "barrier full"},
        {fmt::format("{} of a step, read by the products", region.name), "multiply", "barrier empty"}};
    // The sums of a part of K lie over all slots, from those of the lanes' operand on.
    if (c.split_k > 1 && region.offset < gemm_tcgen05::columns(c) * gemm_tcgen05::kLanes * 4) {
      phases.push_back({"sums of this CTA's part of K, being written", "store", "barrier of the cluster"});
      phases.push_back({"sums of this CTA's part of K, being read", "store of every CTA of the tile", "end"});
    }
    add(region, c.stages, std::move(phases));
  };
  ring(map.lanes);
  ring(map.columns);
  for (const gemm_tcgen05::SmemRegion& region : {map.lane_scales, map.column_scales})
    add(region, c.stages,
        {{fmt::format("{} on its way", region.name), "load", std::string(full)},
         {fmt::format("{} of a step, copied to Tensor Memory", region.name), "multiply", "barrier empty"}});
  add(map.d, gemm_tcgen05::kStoreWarps * gemm_tcgen05::kStagingSlots,
      {{"panel of D, being staged", "store", "fence and warp barrier"},
       {"panel of D on its way out", "store", "the wait for the store before last"}});
  add(map.barriers, 1, {});
  add(map.tmem_address, 1, {});
  plan.smem_bytes = map.total_bytes;
}

void add_tmem(const Config& c, Plan& plan) {
  const gemm_tcgen05::TmemLayout tmem = gemm_tcgen05::tmem_layout(c);
  plan.tmem.push_back({.name = "sums",
                       .columns = tmem.scales,
                       .slots = c.accumulators,
                       .phases = {{"sums of a tile", "multiply", "barrier sums_full"},
                                  {"sums of a tile, read", "store", "barrier sums_empty"}}});
  if (gemm_tcgen05::is_scaled(c)) {
    plan.tmem.push_back({.name = "scales",
                         .first_column = tmem.scales,
                         .columns = tmem.used - tmem.scales,
                         .slots = gemm_tcgen05::scale_slots(c),
                         .phases = {{"scales of a step, being copied", "multiply", "the order of issue"},
                                    {"scales of a step, read by the products", "multiply", "barrier empty"}}});
  }
  plan.tmem_columns = tmem.allocated;
}

}  // namespace

void gemm_tcgen05_memory(const gemm_tcgen05::Config& config, Plan& plan) {
  add_smem(config, plan);
  add_tmem(config, plan);
}

GemmLaunch gemm_tcgen05_launch(const Config& c) {
  const bool is_swapped = gemm_tcgen05::is_swapped(c);
  const auto swizzle_of = [&](bool is_of_lanes) {
    return gemm_tcgen05::has_wide_atoms(c, is_of_lanes) ? TensorMapSwizzle::b128_atom_32b : TensorMapSwizzle::b128;
  };
  GemmLaunch launch{
      .facts = c.facts,
      .tiles = {c.tile_m, c.tile_n, c.cluster_m, c.cluster_n, c.split_k},
      .cluster_size = gemm_tcgen05::cluster_size(c),
      .threads = gemm_tcgen05::num_threads(c),
      .smem_bytes = gemm_tcgen05::smem_layout(c).total_bytes,
      .a = {.box = extents_of(gemm_tcgen05::a_box(c)),
            .swizzle = swizzle_of(!is_swapped),
            .is_padded = gemm_tcgen05::is_padded(c, c.facts.a_type)},
      .b = {.box = extents_of(gemm_tcgen05::b_box(c)),
            .swizzle = swizzle_of(is_swapped),
            .is_padded = gemm_tcgen05::is_padded(c, c.facts.b_type)},
      .d = {.box = extents_of(gemm_tcgen05::d_box(c)), .swizzle = tensor_map_swizzle(gemm_tcgen05::d_swizzle(c))},
      .has_tensor_scales = gemm_tcgen05::has_tensor_scales(c),
      .pitch_remedy =
          "copy {} into rows that are padded to that (cudaMemcpy2DAsync, pad_on_host; "
          "--pad-rows); they need not be dense"};
  if (gemm_tcgen05::is_scaled(c)) {
    launch.scale_block = gemm_tcgen05::scale_block(c);
    launch.sfa_box = extents_of(gemm_tcgen05::scale_box(c, !is_swapped));
    launch.sfb_box = extents_of(gemm_tcgen05::scale_box(c, is_swapped));
  }
  return launch;
}

}  // namespace tessera::gemm_tcgen05
