// From packed codes to the registers of wgmma: sixteen of k of 64 rows are a word of codes and four registers of A. An
// e2m1 whose exponent and mantissa stand where the wider type has the low bits of its exponent and the high one of its
// mantissa is that type's number, subnormal ones among them, times a power of two; a multiplication with the scale,
// which has the rest of that power in it, makes the weight. All of it is exact.
//
// Products of few rows are limited by how many instructions a multiprocessor issues beside by memory, so the codes lie
// such that most registers need one rotation and one mask.
#pragma once

#include "ptx/narrow.cuh"
#include "ptx/pairs.cuh"
#include "ptx/shared_words.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

// To the left; the compiler makes one instruction of it.
template <int kBits>
__device__ __forceinline__ unsigned rotated(unsigned word) {
  if constexpr (kBits == 0) {
    return word;
  } else {
    return word << kBits | word >> (32 - kBits);
  }
}

// Register kR of an instruction, without its scale. f16 has exponent and mantissa three bits higher than bf16.
template <DType kDType, int kR>
__device__ __forceinline__ unsigned widen_e2m1(unsigned word) {
  constexpr int kExponent = code_rotation(kR, 1), kMantissa = code_rotation(kR, 0);
  if constexpr (kDType == DType::bf16) {
    if constexpr (kR != 3) return (kR == 1 ? word << kExponent : rotated<kExponent>(word)) & 0x81C081C0u;
    return (rotated<kExponent>(word) & 0x81808180u) | ((word << kMantissa) & 0x00400040u);
  } else {
    const unsigned sign = rotated<kExponent>(word) & 0x80008000u, exponent = rotated<kExponent + 3>(word);
    if constexpr (kR != 3) return sign | (exponent & 0x0E000E00u);
    return sign | (exponent & 0x0C000C00u) | ((word << (kMantissa + 3)) & 0x02000200u);
  }
}

// The scales of a thread's two rows, of one block.
template <Config C>
struct BlockScales {
  static constexpr bool kIsNvfp4 = C.facts.b_type == OperandType::nvfp4;

  ptx::Words4 words;

  __device__ __forceinline__ explicit BlockScales(unsigned block) {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    const unsigned from = block + kWeightCodeBytes + thread / 4 * pair_bytes(weights(C));
    if constexpr (kIsNvfp4) {
      words = ptx::ld_shared_v4(from);
    } else {
      ptx::ld_shared_v2(from, words.x, words.y);
    }
  }

  // Of row kRow of the pair, for step kStep of 16 of k, in both halves.
  template <int kRow, int kStep>
  __device__ __forceinline__ unsigned at() const {
    constexpr int kHalf = kStep / kStepsOfHalf, kInHalf = kStep % kStepsOfHalf;
    if constexpr (kIsNvfp4) {
      const unsigned word = kHalf == 0 ? (kRow == 0 ? words.x : words.y) : (kRow == 0 ? words.z : words.w);
      const unsigned code = ptx::prmt(word, 0, 0x4040 + 0x0101 * kInHalf);
      return a_dtype(C) == DType::bf16 ? code * 16 + 0x70007000u : code * 128;
    } else {
      const unsigned code = ptx::prmt(kHalf == 0 ? words.x : words.y, 0, 0x4040 + 0x0101 * (2 * kRow + kInHalf / 2));
      return code * 128 + 0x2F002F00u;  // 2^(code - 127 + 126 - 32)
    }
  }
};

template <Config C, int kStep>
__device__ __forceinline__ void widen_step(unsigned word, const BlockScales<C>& scales, unsigned (&out)[4]) {
  constexpr DType kDType = a_dtype(C);
  const unsigned first = scales.template at<0, kStep>(), second = scales.template at<1, kStep>();
  out[0] = ptx::mul_x2<kDType>(widen_e2m1<kDType, 0>(word), first);
  out[1] = ptx::mul_x2<kDType>(widen_e2m1<kDType, 1>(word), second);
  out[2] = ptx::mul_x2<kDType>(widen_e2m1<kDType, 2>(word), first);
  out[3] = ptx::mul_x2<kDType>(widen_e2m1<kDType, 3>(word), second);
}

// 64 of k of a block.
template <Config C, int kHalf>
__device__ __forceinline__ void widen_half(unsigned block, const BlockScales<C>& scales,
                                           unsigned (&out)[kStepsOfHalf][4]) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const ptx::Words4 codes = ptx::ld_shared_v4(block + (kHalf * kWarpgroupThreads + thread) * 16);
  widen_step<C, kHalf * kStepsOfHalf>(codes.x, scales, out[0]);
  widen_step<C, kHalf * kStepsOfHalf + 1>(codes.y, scales, out[1]);
  widen_step<C, kHalf * kStepsOfHalf + 2>(codes.z, scales, out[2]);
  widen_step<C, kHalf * kStepsOfHalf + 3>(codes.w, scales, out[3]);
}

}  // namespace tessera::gemm_weights
