// TMA loads by the CTAs of a pair (cluster ranks 2 i and 2 i + 1) whose bytes count at a barrier of either CTA of it.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::ptx {

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_100a (.cta_group). The box comes into this CTA's shared memory, its bytes
// count at `barrier`, an address from mapa() in a CTA of the pair.
__device__ __forceinline__ void tma_load_3d_pair(unsigned destination, const TensorMap& map, unsigned barrier, int c0,
                                                 int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_100a (.cta_group with .multicast::cluster). Every CTA of the cluster
// whose rank is a bit of `ctas` gets the box at the same offset of its shared memory; its bytes count at the barrier
// with that offset in the CTA of its pair that has the parity of the one that `barrier` lies in.
__device__ __forceinline__ void tma_load_3d_pair_multicast(unsigned destination, const TensorMap& map, unsigned barrier,
                                                           unsigned short ctas, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster "
      "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(destination),
      "l"(&map), "r"(barrier), "h"(ctas), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

}  // namespace tessera::ptx
