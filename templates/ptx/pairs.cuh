// Arithmetic on pairs of 16-bit numbers in a register; pairs of words.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::ptx {

// PTX ISA "mul", PTX 7.8, sm_90 (bf16x2); PTX 4.2, sm_53 (f16x2). Nearest even, subnormal numbers kept.
template <DType kDType>
__device__ __forceinline__ unsigned mul_x2(unsigned a, unsigned b) {
  static_assert(kDType == DType::bf16 || kDType == DType::f16);
  unsigned product;
  if constexpr (kDType == DType::bf16) {
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  } else {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  }
  return product;
}

// PTX ISA "fma", PTX 7.0, sm_80. Rounded once, to nearest even; subnormal numbers kept.
__device__ __forceinline__ unsigned fma_bf16x2(unsigned a, unsigned b, unsigned c) {
  unsigned sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// PTX ISA "sub", PTX 7.8, sm_90 (bf16x2); PTX 4.2, sm_53 (f16x2). Nearest even.
template <DType kDType>
__device__ __forceinline__ unsigned sub_x2(unsigned a, unsigned b) {
  static_assert(kDType == DType::bf16 || kDType == DType::f16);
  unsigned difference;
  if constexpr (kDType == DType::bf16) {
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  } else {
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  }
  return difference;
}

// PTX ISA "add", PTX 1.0, sm_20. To the low word of a pair alone, which stays in its registers.
__device__ __forceinline__ unsigned long long add_to_low(unsigned long long pair, unsigned more) {
  asm("{\n.reg .b32 low, high;\nmov.b64 {low, high}, %0;\nadd.u32 low, low, %1;\nmov.b64 %0, {low, high};\n}"
      : "+l"(pair)
      : "r"(more));
  return pair;
}

// PTX ISA "mov", PTX 1.0, sm_20. A half of a word in both: products and differences of pairs take it as it is, without
// an instruction of the machine.
template <int kHalf>
__device__ __forceinline__ unsigned both_halves(unsigned word) {
  unsigned both;
  if constexpr (kHalf == 0) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {low, low};\n}" : "=r"(both) : "r"(word));
  } else {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {high, high};\n}" : "=r"(both) : "r"(word));
  }
  return both;
}

// PTX ISA "mov", PTX 1.0, sm_20. Two registers side by side: no instruction of the machine.
__device__ __forceinline__ unsigned long long pack_words(unsigned low, unsigned high) {
  unsigned long long both;
  asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(low), "r"(high));
  return both;
}

}  // namespace tessera::ptx
