// Conversions between narrow formats and the registers that arithmetic takes, and what moves bytes between registers.
// Of a pair the first element is the low one: PTX names the high one first.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::ptx {

// PTX ISA "cvt", PTX 8.1, sm_89. Nearest even, saturating; NaN is 0x7F. Not volatile: pure, as are all below.
__device__ __forceinline__ unsigned cvt_e4m3x2(float low, float high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
// The same for four, as a word, the first in its lowest byte.
__device__ __forceinline__ unsigned cvt_e4m3x4(float a, float b, float c, float d) {
  unsigned word;
  asm("{\n\t.reg .b16 l, h;\n\tcvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\n\tcvt.rn.satfinite.e4m3x2.f32 h, %4, %3;\n\t"
      "mov.b32 %0, {l, h};\n\t}"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}
// PTX ISA "cvt", PTX 8.1, sm_89.
__device__ __forceinline__ unsigned cvt_e5m2x2(float low, float high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
// PTX ISA "cvt", PTX 8.1, sm_89. Exact.
__device__ __forceinline__ unsigned cvt_f16x2_e4m3x2(unsigned pair) {
  unsigned halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(pair)));
  return halves;
}
// The same for the four of a word, the lower two first. The upper half of a register is an operand as it is: no shift.
__device__ __forceinline__ void cvt_f16x2_e4m3x2_x2(unsigned word, unsigned& low, unsigned& high) {
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, l;\n\tcvt.rn.f16x2.e4m3x2 %1, h;\n\t}"
      : "=r"(low), "=r"(high)
      : "r"(word));
}
// PTX ISA "cvt", PTX 8.1, sm_89. Exact.
__device__ __forceinline__ unsigned cvt_f16x2_e5m2x2(unsigned pair) {
  unsigned halves;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(pair)));
  return halves;
}

// PTX ISA "cvt", PTX 8.6, sm_100a, sm_120a and their families. Nearest even, saturating; NaN is +6. The byte's low four
// bits are `low`.
__device__ __forceinline__ unsigned cvt_e2m1x2(float low, float high) {
  unsigned byte;
  asm("{\n\t.reg .b8 t;\n\tcvt.rn.satfinite.e2m1x2.f32 t, %1, %2;\n\tcvt.u32.u8 %0, t;\n\t}"
      : "=r"(byte)
      : "f"(high), "f"(low));
  return byte;
}
// PTX ISA "cvt", PTX 8.6, sm_100a, sm_120a and their families. The four bytes of a word, each two values. Exact.
__device__ __forceinline__ void cvt_f16x2_e2m1x2_x4(unsigned word, unsigned (&halves)[4]) {
  asm("{\n\t.reg .b8 t0, t1, t2, t3;\n\tmov.b32 {t0, t1, t2, t3}, %4;\n\tcvt.rn.f16x2.e2m1x2 %0, t0;\n\t"
      "cvt.rn.f16x2.e2m1x2 %1, t1;\n\tcvt.rn.f16x2.e2m1x2 %2, t2;\n\tcvt.rn.f16x2.e2m1x2 %3, t3;\n\t}"
      : "=r"(halves[0]), "=r"(halves[1]), "=r"(halves[2]), "=r"(halves[3])
      : "r"(word));
}

// PTX ISA "cvt", PTX 2.3, any target: the low or high half of a pair to fp32. Exact.
__device__ __forceinline__ float f32_of_low_f16(unsigned pair) {
  float x;
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %1;\n\tcvt.f32.f16 %0, l;\n\t}" : "=f"(x) : "r"(pair));
  return x;
}
__device__ __forceinline__ float f32_of_high_f16(unsigned pair) {
  float x;
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %1;\n\tcvt.f32.f16 %0, h;\n\t}" : "=f"(x) : "r"(pair));
  return x;
}

// Both halves.
__device__ __forceinline__ void f32_of_f16x2(unsigned pair, float& low, float& high) {
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
      : "=f"(low), "=f"(high)
      : "r"(pair));
}

// PTX ISA "cvt", PTX 7.0, sm_80. Towards zero: what is too large becomes the largest number, infinity stays.
__device__ __forceinline__ unsigned cvt_rz_f16x2(float low, float high) {
  unsigned pair;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// PTX ISA "mul", PTX 4.2, sm_53. Two products, nearest even, subnormals kept.
__device__ __forceinline__ unsigned mul_f16x2(unsigned a, unsigned b) {
  unsigned product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
// PTX ISA "fma", PTX 4.2, sm_53.
__device__ __forceinline__ unsigned fma_f16x2(unsigned a, unsigned b, unsigned c) {
  unsigned sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// PTX ISA "abs" and "min", PTX 7.0, sm_80. min(a, |b|) and max(a, b) of two f16; NaN gives way to a number.
__device__ __forceinline__ unsigned min_abs_f16x2(unsigned a, unsigned b) {
  unsigned least;
  asm("{\n\t.reg .b32 t;\n\tabs.f16x2 t, %2;\n\tmin.f16x2 %0, %1, t;\n\t}" : "=r"(least) : "r"(a), "r"(b));
  return least;
}
__device__ __forceinline__ unsigned max_f16x2(unsigned a, unsigned b) {
  unsigned most;
  asm("max.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}
// PTX ISA "abs" and "max", PTX 7.0, sm_80. max(a, |b|) of two 16-bit floats; NaN gives way to a number.
template <DType kDType>
__device__ __forceinline__ unsigned max_abs_x2(unsigned a, unsigned b) {
  unsigned most;
  if constexpr (kDType == DType::bf16) {
    asm("{\n\t.reg .b32 t;\n\tabs.bf16x2 t, %2;\n\tmax.bf16x2 %0, %1, t;\n\t}" : "=r"(most) : "r"(a), "r"(b));
  } else {
    asm("{\n\t.reg .b32 t;\n\tabs.f16x2 t, %2;\n\tmax.f16x2 %0, %1, t;\n\t}" : "=r"(most) : "r"(a), "r"(b));
  }
  return most;
}
// The same, but NaN stays.
template <DType kDType>
__device__ __forceinline__ unsigned max_abs_nan_x2(unsigned a, unsigned b) {
  unsigned most;
  if constexpr (kDType == DType::bf16) {
    asm("{\n\t.reg .b32 t;\n\tabs.bf16x2 t, %2;\n\tmax.NaN.bf16x2 %0, %1, t;\n\t}" : "=r"(most) : "r"(a), "r"(b));
  } else {
    asm("{\n\t.reg .b32 t;\n\tabs.f16x2 t, %2;\n\tmax.NaN.f16x2 %0, %1, t;\n\t}" : "=r"(most) : "r"(a), "r"(b));
  }
  return most;
}
// PTX ISA "rcp", PTX 1.4, any target. Within one unit in the last place; subnormal operands count as 0.
__device__ __forceinline__ float rcp_approx(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// PTX ISA "prmt", PTX 2.0, any target. Byte i of the result is the byte of {a, b} (a's are 0 to 3) that nibble i of the
// selector names; a selector nibble of 8 or more copies that byte's sign bit into all eight.
__device__ __forceinline__ unsigned prmt(unsigned a, unsigned b, unsigned selector) {
  unsigned bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(selector));
  return bytes;
}
// PTX ISA "lop3", PTX 4.3, sm_50. a where the mask's bits are 1, b elsewhere.
__device__ __forceinline__ unsigned select_bits(unsigned mask, unsigned a, unsigned b) {
  unsigned selected;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(selected) : "r"(mask), "r"(a), "r"(b));
  return selected;
}
// PTX ISA "dp4a", PTX 5.0, sm_61. c + the products of the four signed bytes.
__device__ __forceinline__ int dp4a(unsigned a, unsigned b, int c) {
  int sum;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

}  // namespace tessera::ptx
