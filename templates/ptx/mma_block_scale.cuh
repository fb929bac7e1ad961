// Products of a warp from registers, of block-scaled types: mma.sync with scales, for sm_120 and sm_121 with suffix a
// or f. Registers as in ptx/mma.cuh. Of a quad's four threads two, by a's id, have the scales of A's rows, one, by b's,
// those of B's column, in the bytes of a register from the given one on: layout::mma_scale_slot in spec/fragment.h.
#pragma once

#include "tessera/spec/operand_type.h"

namespace tessera::ptx {

// PTX ISA "mma", PTX 8.7, sm_120a. D += A B, m16n8k64 of e2m1 with a scale ue4m3 for 16 along K.
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::nvfp4) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
// The same with a scale ue8m0 for 32 along K: two bytes.
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp4 && kB == OperandType::mxfp4) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
// m16n8k32 of e4m3 and e5m2 with a scale ue8m0 for 32 along K: one byte.
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e4m3 && kB == OperandType::mxfp8_e4m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e4m3 && kB == OperandType::mxfp8_e5m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e5m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e5m2 && kB == OperandType::mxfp8_e4m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e5m2.e4m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e5m2 && kB == OperandType::mxfp8_e5m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e5m2.e5m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
// The same beside e2m1, which stands in bits 2 to 5 of a byte.
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e4m3 && kB == OperandType::mxfp4) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e2m1.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp8_e5m2 && kB == OperandType::mxfp4) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e5m2.e2m1.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp4 && kB == OperandType::mxfp8_e4m3) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e4m3.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}
template <OperandType kA, OperandType kB, int kByte, int kThreadOfA, int kThreadOfB>
requires(kA == OperandType::mxfp4 && kB == OperandType::mxfp8_e5m2) __device__ __forceinline__
    void mma_block_scale(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1, unsigned sfa, unsigned sfb) {
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e5m2.f32.ue8m0 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %13}, {%11}, {%12, %14};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sfa), "r"(sfb), "n"(kByte), "n"(kThreadOfA),
        "n"(kThreadOfB));
}

}  // namespace tessera::ptx
