// Generated: the wgmma instructions of one kernel. ptx/wgmma.cuh says how to use them.
#pragma once

#include "ptx/wgmma.cuh"

namespace tessera::ptx {

template <>
struct Wgmma<16, DType::bf16, true, false, 4> {
  // PTX ISA "wgmma.mma_async", PTX 8.0, sm_90a. D += A B if accumulate is not 0, else D = A B; A from
  // registers, B K-major.
  static __device__ __forceinline__ void mma(float (&d)[8], const unsigned (&a)[4][4],
                                             const unsigned long long (&b)[4], int accumulate) {
    asm volatile(
        "{\n\t.reg .pred p, q;\n\tsetp.ne.b32 p, %28, 0;\n\tmov.pred q, 1;\n\t"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, {%8, %9, %10, %11}, %24, p, 1, 1, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, {%12, %13, %14, %15}, %25, q, 1, 1, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, {%16, %17, %18, %19}, %26, q, 1, 1, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, {%20, %21, %22, %23}, %27, q, 1, 1, 0;\n\t"
        "}"
        :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        :
        "r"(a[0][0]), "r"(a[0][1]), "r"(a[0][2]), "r"(a[0][3]), "r"(a[1][0]), "r"(a[1][1]), "r"(a[1][2]), "r"(a[1][3]),
        "r"(a[2][0]), "r"(a[2][1]), "r"(a[2][2]), "r"(a[2][3]), "r"(a[3][0]), "r"(a[3][1]), "r"(a[3][2]), "r"(a[3][3]),
        "l"(b[0]), "l"(b[1]), "l"(b[2]), "l"(b[3]), "r"(accumulate)
        : "memory");
  }
  // No instruction: what reads or writes the accumulators stays on its side of this line.
  static __device__ __forceinline__ void hold(float (&d)[8]) {
    asm volatile("" :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        :: "memory");
  }
};

}  // namespace tessera::ptx
