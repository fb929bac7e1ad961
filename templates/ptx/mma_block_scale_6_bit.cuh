// Products of a warp from registers with values of six bits on either side, in the low bits of a byte each: as those of
// ptx/mma_block_scale.cuh, beside e2m1, e4m3 and e5m2 too.
#pragma once

#include "tessera/spec/operand_type.h"

namespace tessera::ptx {

// PTX ISA "mma", PTX 8.7, sm_120a. D += A B, m16n8k32 with a scale ue8m0 for 32 along K: one byte.
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e4m3 && kB == OperandType::mxfp6_e3m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e3m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e4m3 && kB == OperandType::mxfp6_e2m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e2m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e5m2 && kB == OperandType::mxfp6_e3m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e5m2.e3m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e5m2 && kB == OperandType::mxfp6_e2m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e5m2.e2m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp4 && kB == OperandType::mxfp6_e3m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e3m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp4 && kB == OperandType::mxfp6_e2m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e2m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e3m2 && kB == OperandType::mxfp8_e4m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e3m2.e4m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e3m2 && kB == OperandType::mxfp8_e5m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e3m2.e5m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e3m2 && kB == OperandType::mxfp4) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e3m2.e2m1.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e3m2 && kB == OperandType::mxfp6_e3m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e3m2.e3m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e3m2 && kB == OperandType::mxfp6_e2m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e3m2.e2m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e2m3 && kB == OperandType::mxfp8_e4m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m3.e4m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e2m3 && kB == OperandType::mxfp8_e5m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m3.e5m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e2m3 && kB == OperandType::mxfp4) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m3.e2m1.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e2m3 && kB == OperandType::mxfp6_e3m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m3.e3m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp6_e2m3 && kB == OperandType::mxfp6_e2m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m3.e2m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}

}  // namespace tessera::ptx
