// Products of a warp from registers: mma.sync. Which lane holds what: spec/fragment.h.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::ptx {

// PTX ISA "mma", PTX 7.0, sm_80. D += A B of m16n8k16: A 16 x 16 row-major, B 16 x 8 column-major, both bf16 or f16;
// D fp32, four elements of a lane: columns 2 (t % 4) and the next of row t / 4, then of the row 8 further.
template <DType kDType>
__device__ __forceinline__ void mma_m16n8k16(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  static_assert(kDType == DType::bf16 || kDType == DType::f16);
  if constexpr (kDType == DType::bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace tessera::ptx
