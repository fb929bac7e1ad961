// Arithmetic on pairs of fp32 in 64 bits: one instruction does two, each rounded as a single one would be.
#pragma once

namespace tessera::ptx {

struct FloatPair {
  unsigned long long bits;
};

// PTX ISA "mov", PTX 1.0, any target. The first is the lower half. Not volatile: pure.
__device__ __forceinline__ FloatPair pack_floats(float low, float high) {
  FloatPair pair;
  asm("mov.b64 %0, {%1, %2};" : "=l"(pair.bits) : "f"(low), "f"(high));
  return pair;
}
__device__ __forceinline__ void unpack_floats(FloatPair pair, float& low, float& high) {
  asm("mov.b64 {%0, %1}, %2;" : "=f"(low), "=f"(high) : "l"(pair.bits));
}

// PTX ISA "add", PTX 8.6, sm_100. Not volatile: pure.
__device__ __forceinline__ FloatPair add_f32x2(FloatPair a, FloatPair b) {
  FloatPair sum;
  asm("add.rn.f32x2 %0, %1, %2;" : "=l"(sum.bits) : "l"(a.bits), "l"(b.bits));
  return sum;
}

// PTX ISA "sub", PTX 8.6, sm_100. Not volatile: pure.
__device__ __forceinline__ FloatPair sub_f32x2(FloatPair a, FloatPair b) {
  FloatPair difference;
  asm("sub.rn.f32x2 %0, %1, %2;" : "=l"(difference.bits) : "l"(a.bits), "l"(b.bits));
  return difference;
}

// PTX ISA "mul", PTX 8.6, sm_100. Not volatile: pure.
__device__ __forceinline__ FloatPair mul_f32x2(FloatPair a, FloatPair b) {
  FloatPair product;
  asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(product.bits) : "l"(a.bits), "l"(b.bits));
  return product;
}

// PTX ISA "fma", PTX 8.6, sm_100. a * b + c. Not volatile: pure.
__device__ __forceinline__ FloatPair fma_f32x2(FloatPair a, FloatPair b, FloatPair c) {
  FloatPair sum;
  asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(sum.bits) : "l"(a.bits), "l"(b.bits), "l"(c.bits));
  return sum;
}

}  // namespace tessera::ptx
