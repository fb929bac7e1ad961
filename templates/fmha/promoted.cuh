// Sums of O beside an accumulator of few fraction bits: see spec/fmha_transposed.h. Each thread keeps its own in shared
// memory, in the order of its registers, so that nobody waits for another: fp32, or where keeps_f16_sums() pairs of f16
// (a word holds two columns). Those are O times 2^k of its row, such that O / sum, a mean of V, reaches half of f16's
// range.
//
// A thread's two rows have factors, what kept sums are multiplied with to be O again. They follow when references move,
// and lie behind a warpgroup's sums; with a sign: there are no sums.
#pragma once

#include "fmha/matmul.cuh"
#include "fmha/softmax.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Of the thread's first four words, and of its factors.
template <Config C>
__device__ __forceinline__ unsigned promoted_address(unsigned smem, int warpgroup) {
  return smem + smem_layout(C).promoted.offset + warpgroup * promoted_slot_bytes(C) +
         static_cast<unsigned>(threadIdx.x) % kWarpgroupThreads * 16;
}
template <Config C>
__device__ __forceinline__ unsigned promoted_factors(unsigned smem, int warpgroup) {
  return smem + smem_layout(C).promoted.offset + warpgroup * promoted_slot_bytes(C) + promoted_sums_bytes(C) +
         static_cast<unsigned>(threadIdx.x) % kWarpgroupThreads * 8;
}

template <Config C>
__device__ constexpr int promoted_words() {
  return promoted_sums_bytes(C) / 4 / kWarpgroupThreads;
}

template <Config C>
__device__ __forceinline__ void forget_promoted(unsigned smem, int warpgroup) {
  ptx::st_shared_v2_f32(promoted_factors<C>(smem, warpgroup), -1.0f, -1.0f);
}

// References move.
template <Config C>
__device__ __forceinline__ void scale_promoted(unsigned smem, int warpgroup, const float (&factor)[2]) {
  const unsigned address = promoted_factors<C>(smem, warpgroup);
  ptx::st_shared_v2_f32(address, ptx::ld_shared_f32(address) * factor[0], ptx::ld_shared_f32(address + 4) * factor[1]);
}

// O becomes the whole sum.
template <Config C>
__device__ __forceinline__ void add_promoted(Accumulator<C>& output, unsigned smem, int warpgroup) {
  const unsigned factors = promoted_factors<C>(smem, warpgroup), address = promoted_address<C>(smem, warpgroup);
  const float factor[2] = {ptx::ld_shared_f32(factors), ptx::ld_shared_f32(factors + 4)};
  if (__float_as_int(factor[0]) < 0) return;
#pragma unroll
  for (int word = 0; word < promoted_words<C>(); word += 4) {
    float words[4];
    ptx::ld_shared_v4_f32(address + word * 4 * kWarpgroupThreads, words);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (keeps_f16_sums(C)) {
        float kept[2];
        ptx::f32_of_f16x2(__float_as_uint(words[i]), kept[0], kept[1]);
        float* const sums = output + 2 * (word + i);
        sums[0] = fmaf(kept[0], factor[i % 2], sums[0]);
        sums[1] = fmaf(kept[1], factor[i % 2], sums[1]);
      } else {
        output[word + i] = fmaf(words[i], factor[i / 2], output[word + i]);
      }
    }
  }
}

// 2^k of a row for what is kept as f16. `sum`: of this thread's columns. Of e, that of the row's sum, at least -100,
// |O| is at most 448 (1 + 2^-4) 2^(e + 1), and 2^(6 - e) brings it below 2^16 - 2^5.
__device__ __forceinline__ float factor_to_f16(float sum) {
  const int exponent = __float_as_int(fmaxf(sum_of_quad(sum), 0x1p-100f)) & 0x7f800000;
  return __int_as_float(((2 * 127 + kPromotedShift) << 23) - exponent);
}

// O, the whole sum, is kept, and may begin anew. `sum`: of this thread's columns of its rows, of the keys in O and
// perhaps of more.
template <Config C>
__device__ __forceinline__ void keep_promoted(const Accumulator<C>& output, const float (&sum)[2], unsigned smem,
                                              int warpgroup) {
  float up[2] = {1.0f, 1.0f}, down[2] = {1.0f, 1.0f};
  if constexpr (keeps_f16_sums(C)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      up[r] = factor_to_f16(sum[r]);
      down[r] = __int_as_float(((2 * 127) << 23) - __float_as_int(up[r]));  // of a power of two the reciprocal
    }
  }
  const unsigned address = promoted_address<C>(smem, warpgroup);
#pragma unroll
  for (int word = 0; word < promoted_words<C>(); word += 4) {
    float words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (keeps_f16_sums(C)) {
        const float* const sums = output + 2 * (word + i);
        words[i] = __uint_as_float(ptx::cvt_pack<DType::f16>(sums[0] * up[i % 2], sums[1] * up[i % 2]));
      } else {
        words[i] = output[word + i];
      }
    }
    ptx::st_shared_v4_f32(address + word * 4 * kWarpgroupThreads, words[0], words[1], words[2], words[3]);
  }
  ptx::st_shared_v2_f32(promoted_factors<C>(smem, warpgroup), down[0], down[1]);
}

}  // namespace tessera::fmha
