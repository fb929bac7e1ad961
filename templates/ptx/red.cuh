// Additions to global memory by its own units: atomic, in no order, without a result.
#pragma once

#include "ptx/global.cuh"
#include "tessera/spec/types.h"

namespace tessera::ptx {

// PTX ISA "red", PTX 8.1, sm_90. 16-byte aligned; denormal numbers count as zeros.
__device__ __forceinline__ void red_add_v4_f32(void* p, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

// PTX ISA "red", PTX 8.1, sm_90. Eight bf16 or f16, as pairs; 16-byte aligned.
template <DType kDType>
__device__ __forceinline__ void red_add_v4(void* p, const Vector4& v) {
  static_assert(kDType == DType::bf16 || kDType == DType::f16);
  if constexpr (kDType == DType::bf16) {
    asm volatile("red.relaxed.gpu.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
  } else {
    asm volatile("red.relaxed.gpu.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
  }
}

}  // namespace tessera::ptx
