// TMA loads of rank 4 and 5 by the CTAs of a pair (cluster ranks 2 i and 2 i + 1) whose bytes count at a barrier of
// either CTA of it: what attention loads.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::ptx {

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_100a (.cta_group). The box comes into this CTA's shared memory, its bytes
// count at `barrier`, an address from mapa() in a CTA of the pair.
__device__ __forceinline__ void tma_load_4d_pair(unsigned destination, const TensorMap& map, unsigned barrier, int c0,
                                                 int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_100a (.cta_group). As tma_load_4d_pair.
__device__ __forceinline__ void tma_load_5d_pair(unsigned destination, const TensorMap& map, unsigned barrier, int c0,
                                                 int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

}  // namespace tessera::ptx
