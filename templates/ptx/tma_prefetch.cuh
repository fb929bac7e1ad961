// TMA loads that go no further than to the L2.
#pragma once

#include "ptx/tma.cuh"

namespace tessera::ptx {

// PTX ISA "cp.async.bulk.prefetch.tensor", PTX 8.0, sm_90.
__device__ __forceinline__ void tma_prefetch_3d(const TensorMap& map, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map), "r"(c0), "r"(c1),
               "r"(c2)
               : "memory");
}

// PTX ISA "cp.async.bulk.prefetch.tensor", PTX 8.0, sm_90.
__device__ __forceinline__ void tma_prefetch_5d(const TensorMap& map, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(c0),
               "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

}  // namespace tessera::ptx
