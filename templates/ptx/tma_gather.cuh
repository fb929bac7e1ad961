// TMA loads of four rows of a matrix at a time, whichever they are. The map has rank 2 and a box of one row; the rows
// land one after the other, and one past the end of the matrix as zeros, which counts like the others. All of that is
// the manual's word: no device has run it here.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::ptx {

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_100 (.tile::gather4). Completes on `barrier` with the bytes of four rows.
__device__ __forceinline__ void tma_gather4(unsigned destination, const TensorMap& map, unsigned barrier, int column,
                                            const int (&rows)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(column), "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3])
      : "memory");
}

// PTX ISA "cp.async.bulk.tensor", PTX 8.6, sm_100a (.cta_group). Counts at a barrier of either CTA of a pair.
__device__ __forceinline__ void tma_gather4_pair(unsigned destination, const TensorMap& map, unsigned barrier,
                                                 int column, const int (&rows)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes.cta_group::2 "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(column), "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3])
      : "memory");
}

}  // namespace tessera::ptx
