#include "generator/products/gemm_addend_cost.h"

namespace tessera::gemm {

namespace {

// Of a tile's c, as products over c took longer than without on an H200: 100 kernels of 31 shapes in bf16.
constexpr double kAddendTileCycles = 3000;
constexpr double kAddendPanelCycles = 500;
constexpr double kAddendOneTileCycles = 300;  // the same where one warpgroup works on the tile
constexpr double kAddendOnePanelCycles = 700;
constexpr double kAddendThreeCycles = 2000;   // more where three do
constexpr double kAddendRestCycles = 1500;    // more of each block whose last panel is narrower
constexpr double kAddendSwappedCycles = 600;  // and where rows of d are columns of the tile
constexpr double kAddendLateCycles = 4000;    // where the loading thread has no registers to bring c to the L2
constexpr double kAddendElementsFactor = 3;   // where its elements come one by one
constexpr double kAddendBesideShare = 0.2;    // of that time beside the other warpgroup's products
constexpr double kAddendWaitingShare = 0.5;   // the same without registers for panels ahead
constexpr int kAddendRegistersOfLoader = 40;  // with fewer c is not brought to the L2 (addend.cuh)

}  // namespace

double addend_cycles(const Config& c) {
  if (c.facts.c == Addend::none) return 0;
  const double of_tile = blocks(c), panels = of_tile * panels_across(c);
  const bool has_units = dtype_bytes(c_dtype(c)) == dtype_bytes(c.facts.d_dtype);
  const double elements = has_units ? 1 : kAddendElementsFactor;
  if (!is_ping_pong(c) && consumer_warpgroups(c) == 1)
    return elements * (kAddendOneTileCycles + panels * kAddendOnePanelCycles);
  return elements *
         (kAddendTileCycles + panels * kAddendPanelCycles + (consumer_warpgroups(c) == 3 ? kAddendThreeCycles : 0) +
          (rest_columns(c) > 0 ? of_tile * kAddendRestCycles : 0) + (is_swapped(c) ? kAddendSwappedCycles : 0) +
          (register_budget(c).producer < kAddendRegistersOfLoader ? kAddendLateCycles : 0));
}

double addend_share_in_turn(const Config& c) {
  const bool is_ahead = blocks(c) * c.tile_n / 2 <= 128 && rest_columns(c) == 0;  // panels in registers
  return is_ahead ? kAddendBesideShare : kAddendWaitingShare;
}

}  // namespace tessera::gemm
