// From packed codes to the registers of wgmma: sixteen of k of 64 rows are a word of codes and four registers of A. An
// e2m1 whose exponent and mantissa stand where the wider type has the low bits of its exponent and the high one of its
// mantissa is that type's number, subnormal ones among them, times a power of two; a multiplication with the scale,
// which has the rest of that power in it, makes the weight. All of it is exact. An int4 is in f16 put behind a number
// whose last place is one, which is taken off it with the zero point, exactly; the multiplication with its scale
// rounds. In bf16 it is a subnormal number (counts_codes()), from which the zero point is taken; without, both are one
// FMA.
//
// Products of few rows are limited by how many instructions a multiprocessor issues beside by memory, so the codes lie
// such that a register needs one rotation and one mask, but for one, of the sum of two words, which needs half an
// instruction more.
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

// To the left by kBits: no rotation where what leaves the word is masked out.
template <int kBits>
__device__ __forceinline__ unsigned shifted(unsigned word) {
  return kBits <= 6 ? word << kBits : rotated<kBits>(word);
}
// A register of an instruction, which lies kBits to the right, without its scale. f16 has exponent and mantissa three
// bits higher than bf16.
template <DType kDType, int kBits>
__device__ __forceinline__ unsigned widen_e2m1(unsigned word) {
  if constexpr (kDType == DType::bf16) return shifted<kBits>(word) & 0x81C081C0u;
  return (shifted<kBits>(word) & 0x80008000u) | (rotated<kBits + 3>(word) & 0x0E000E00u);
}
// What has register 3 of two words (pair_with_sum()).
__device__ __forceinline__ unsigned sum_of_pair(unsigned first, unsigned second) {
  return first + (second << kShiftOfSecond);
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
    if constexpr (counts_codes(C)) {
      count(scales.x, zeros.x);
      if constexpr (kWeights.group < 128) count(scales.y, zeros.y);
      if constexpr (kWeights.group < 64) count(scales.z, zeros.z);
      if constexpr (kWeights.group < 64) count(scales.w, zeros.w);
    }
  }

  // A word of scales of subnormal numbers, and of what the FMA takes off, or of zero points as such numbers.
  static __device__ __forceinline__ void count(unsigned& scale, unsigned& zero) {
    scale = ptx::mul_x2<DType::bf16>(scale, 0x10001u * kScaleOfCounted);
    zero = kWeights.has_zeros ? zero & 0x000F000Fu : ptx::mul_x2<DType::bf16>(scale, 0x10001u * kMiddleOfFused);
  }

  // Two scales are one word, each of which multiplies pairs of weights: of two groups of k, or (int4) of both rows.
  template <int kRow, int kStep>
  __device__ __forceinline__ unsigned scale() const {
    constexpr int kHalf = kStep / kStepsOfHalf, kInHalf = kStep % kStepsOfHalf;
    if constexpr (kWeights.type == OperandType::nvfp4) {
      const unsigned codes = ptx::prmt(word_of<2 * kHalf + kRow>(scales), 0, kInHalf < 2 ? 0x4140 : 0x4342);
      return ptx::both_halves<kInHalf % 2>(kDType == DType::bf16 ? codes * 16 + 0x70007000u : codes * 128);
    } else if constexpr (kWeights.type == OperandType::mxfp4) {
      constexpr int kRotation = kRow == 0 ? 0 : kRotationOfSecondRow;
      const unsigned word = rotated<kRotation>(word_of<kHalf>(scales));
      return ptx::both_halves<kInHalf / 2>(word & kExponentsOfRow);
    } else {
      return ptx::both_halves<kRow>(word_of<kStep * 16 / kWeights.group>(scales));
    }
  }

  // Counted: of the second row, whose codes stand four bits higher.
  template <int kStep>
  __device__ __forceinline__ unsigned zero_of_high() const {
    return ptx::both_halves<1>(word_of<kStep * 16 / kWeights.group>(zeros) << 4);
  }
  template <int kStep>
  __device__ __forceinline__ unsigned scale_of_high() const {
    return ptx::both_halves<1>(
        ptx::mul_x2<DType::bf16>(word_of<kStep * 16 / kWeights.group>(scales), 0x10001u * kSixteenth));
  }

  // What a code of int4 with the magic number in front of it is too large by; fused, what is added to its product.
  template <int kRow, int kStep>
  __device__ __forceinline__ unsigned zero() const {
    if constexpr (kWeights.has_zeros || fuses_middle(C))
      return ptx::both_halves<kRow>(word_of<kStep * 16 / kWeights.group>(zeros));
    return 0x10001u * (int4_magic(kDType) + kMiddleOfInt4);
  }
};

template <Config C, int kStep, int kR>
__device__ __forceinline__ unsigned widen_register(unsigned first, unsigned second, const BlockScales<C>& scales) {
  constexpr DType kDType = a_dtype(C);
  constexpr bool kIsSecond = kStep % 2 != 0;
  const unsigned scale = scales.template scale<kR % 2, kStep>(), own = kIsSecond ? second : first;
  if constexpr (is_e2m1(C.facts.b_type)) {
    const unsigned word = kR == 3 ? sum_of_pair(first, second) : own;
    return ptx::mul_x2<kDType>(widen_e2m1<kDType, code_rotation(kIsSecond, kR)>(word), scale);
  } else {
    if constexpr (counts_codes(C)) {
      constexpr bool kIsHigh = kR % 2 != 0;
      const unsigned number = kIsHigh ? own >> (4 * kR - 4) & 0x00F000F0u : own >> (4 * kR) & 0x000F000Fu;
      const unsigned of_number = kIsHigh ? scales.template scale_of_high<kStep>() : scale;
      if constexpr (fuses_middle(C)) return ptx::fma_bf16x2(number, of_number, scales.template zero<kR % 2, kStep>());
      const unsigned zero = kIsHigh ? scales.template zero_of_high<kStep>() : scales.template zero<0, kStep>();
      return ptx::mul_x2<kDType>(ptx::sub_x2<kDType>(number, zero), of_number);
    }
    const unsigned number = (own >> (4 * kR) & 0x000F000Fu) | scales.magic;
    return ptx::mul_x2<kDType>(ptx::sub_x2<kDType>(number, scales.template zero<kR % 2, kStep>()), scale);
  }
}

// Of a pair of words, the step's own is the first where the step is even.
template <Config C, int kStep>
__device__ __forceinline__ void widen_step(unsigned first, unsigned second, const BlockScales<C>& scales,
                                           unsigned (&out)[4]) {
  out[0] = widen_register<C, kStep, 0>(first, second, scales);
  out[1] = widen_register<C, kStep, 1>(first, second, scales);
  out[2] = widen_register<C, kStep, 2>(first, second, scales);
  out[3] = widen_register<C, kStep, 3>(first, second, scales);
}

// What a thread has of half a block, mxfp4: warps 0 and 1 of the team have k 0 to 63 of 32 rows, 2 and 3 k 64 to 127.
template <Config C>
struct PackedHalf {
  BlockScales<C> scales;
  ptx::Words4 codes;

  __device__ __forceinline__ explicit PackedHalf(unsigned block) {
    const int of_team = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    const int half = of_team / kWeightHalf, thread = of_team % kWeightHalf;
    constexpr int kPairBytes = pair_bytes(weights(C));
    scales.scales.x = ptx::ld_shared_u32(block + kWeightCodeBytes + thread / 4 * kPairBytes + half * (kPairBytes / 2));
    codes = ptx::ld_shared_v4(block + (half * kWarpgroupThreads + thread) * 16);
  }

  __device__ __forceinline__ void widen(unsigned (&out)[kStepsOfHalf][4]) const {
    widen_step<C, 0>(codes.x, codes.y, scales, out[0]);
    widen_step<C, 1>(codes.x, codes.y, scales, out[1]);
    widen_step<C, 2>(codes.z, codes.w, scales, out[2]);
    widen_step<C, 3>(codes.z, codes.w, scales, out[3]);
  }
};

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
    const ptx::Words4& of = codes[kHalf];
    widen_step<C, kHalf * kStepsOfHalf>(of.x, of.y, scales, out[0]);
    widen_step<C, kHalf * kStepsOfHalf + 1>(of.x, of.y, scales, out[1]);
    widen_step<C, kHalf * kStepsOfHalf + 2>(of.z, of.w, scales, out[2]);
    widen_step<C, kHalf * kStepsOfHalf + 3>(of.z, of.w, scales, out[3]);
  }
};

}  // namespace tessera::gemm_weights
