// From packed codes to the registers of wgmma: sixteen of k of 64 rows are a word of codes and four registers of A. An
// e2m1 whose exponent and mantissa stand where the wider type has the low bits of its exponent and the high one of its
// mantissa is that type's number, subnormal ones among them, times a power of two; a multiplication with the scale,
// which has the rest of that power in it, makes the weight. All of it is exact. An int4 is put behind a number whose
// last place is one, which is taken off it with the zero point, exactly; the multiplication with its scale rounds.
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

// Words of a thread's two rows: scales, or zero points.
template <int kBytes>
__device__ __forceinline__ ptx::Words4 load_pair(unsigned from) {
  ptx::Words4 words{};
  if constexpr (kBytes == 16) {
    words = ptx::ld_shared_v4(from);
  } else if constexpr (kBytes == 8) {
    ptx::ld_shared_v2(from, words.x, words.y);
  } else {
    words.x = ptx::ld_shared_u32(from);
  }
  return words;
}
template <int kIndex>
__device__ __forceinline__ unsigned word_of(const ptx::Words4& words) {
  return kIndex == 0 ? words.x : kIndex == 1 ? words.y : kIndex == 2 ? words.z : words.w;
}

// The scales of a thread's two rows, of one block. Of row kRow of the pair, for step kStep of 16 of k, in both halves.
template <Config C>
struct BlockScales {
  static constexpr PackedWeights kWeights = weights(C);
  static constexpr DType kDType = a_dtype(C);

  ptx::Words4 scales{};
  ptx::Words4 zeros{};
  unsigned magic = 0;  // int4: in front of a code, in both halves

  BlockScales() = default;
  // Scales of pairs lie side by side from `from_pairs` on, in shared memory.
  __device__ __forceinline__ BlockScales(unsigned from_pairs, int pair) {
    const unsigned from = from_pairs + pair * pair_bytes(kWeights);
    scales = load_pair<pair_scale_bytes(kWeights)>(from);
    // The assembler does not know that shared memory's addresses are small: of two constants it would take one in an
    // instruction of its own.
    magic = 0x10001u * int4_magic(kDType) | from_pairs >> 31;
    if constexpr (kWeights.has_zeros) zeros = load_pair<pair_scale_bytes(kWeights)>(from + pair_scale_bytes(kWeights));
  }

  template <int kRow, int kStep>
  __device__ __forceinline__ unsigned scale() const {
    constexpr int kHalf = kStep / kStepsOfHalf, kInHalf = kStep % kStepsOfHalf;
    if constexpr (kWeights.type == OperandType::nvfp4) {
      const unsigned code = ptx::prmt(word_of<2 * kHalf + kRow>(scales), 0, 0x4040 + 0x0101 * kInHalf);
      return kDType == DType::bf16 ? code * 16 + 0x70007000u : code * 128;
    } else if constexpr (kWeights.type == OperandType::mxfp4) {
      const unsigned code = ptx::prmt(word_of<kHalf>(scales), 0, 0x4040 + 0x0101 * (2 * kRow + kInHalf / 2));
      return code * 128 + 0x2F002F00u;  // 2^(code - 127 + 126 - 32)
    } else {
      return ptx::prmt(word_of<kStep * 16 / kWeights.group>(scales), 0, kRow == 0 ? 0x1010 : 0x3232);
    }
  }

  // What a code of int4 with the magic number in front of it is too large by.
  template <int kRow, int kStep>
  __device__ __forceinline__ unsigned zero() const {
    if constexpr (kWeights.has_zeros)
      return ptx::prmt(word_of<kStep * 16 / kWeights.group>(zeros), 0, kRow == 0 ? 0x1010 : 0x3232);
    return 0x10001u * (int4_magic(kDType) + kMiddleOfInt4);
  }
};

template <Config C, int kStep, int kR>
__device__ __forceinline__ unsigned widen_register(unsigned word, const BlockScales<C>& scales) {
  constexpr DType kDType = a_dtype(C);
  const unsigned scale = scales.template scale<kR % 2, kStep>();
  if constexpr (is_e2m1(C.facts.b_type)) {
    return ptx::mul_x2<kDType>(widen_e2m1<kDType, kR>(word), scale);
  } else {
    const unsigned number = ((word >> (4 * kR)) & 0x000F000Fu) | scales.magic;
    return ptx::mul_x2<kDType>(ptx::sub_x2<kDType>(number, scales.template zero<kR % 2, kStep>()), scale);
  }
}

template <Config C, int kStep>
__device__ __forceinline__ void widen_step(unsigned word, const BlockScales<C>& scales, unsigned (&out)[4]) {
  out[0] = widen_register<C, kStep, 0>(word, scales);
  out[1] = widen_register<C, kStep, 1>(word, scales);
  out[2] = widen_register<C, kStep, 2>(word, scales);
  out[3] = widen_register<C, kStep, 3>(word, scales);
}

// What a thread has of a block, as it lies in shared memory.
template <Config C>
struct PackedBlock {
  BlockScales<C> scales;
  ptx::Words4 codes[2];  // of 64 of k each

  __device__ __forceinline__ explicit PackedBlock(unsigned block)
      : scales(block + kWeightCodeBytes, static_cast<int>(threadIdx.x) % kWarpgroupThreads / 4) {
    const unsigned from = block + static_cast<int>(threadIdx.x) % kWarpgroupThreads * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) codes[half] = ptx::ld_shared_v4(from + half * kWarpgroupThreads * 16);
  }

  template <int kHalf>
  __device__ __forceinline__ void widen(unsigned (&out)[kStepsOfHalf][4]) const {
    widen_step<C, kHalf * kStepsOfHalf>(codes[kHalf].x, scales, out[0]);
    widen_step<C, kHalf * kStepsOfHalf + 1>(codes[kHalf].y, scales, out[1]);
    widen_step<C, kHalf * kStepsOfHalf + 2>(codes[kHalf].z, scales, out[2]);
    widen_step<C, kHalf * kStepsOfHalf + 3>(codes[kHalf].w, scales, out[3]);
  }
};

}  // namespace tessera::gemm_weights
