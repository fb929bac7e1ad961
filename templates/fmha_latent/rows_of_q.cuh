// Rows of Q for S^T = K Q^T over 8-bit keys (transposed.cuh): B, as its other operand has its columns.
#pragma once

#include "fmha_latent/epilogue.cuh"
#include "ptx/barrier.cuh"
#include "ptx/math.cuh"
#include "ptx/narrow.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// Q's panels as B of S^T, by all consumers, of whom `thread` is one.
//
// Columns change places: of step s lane t has k 2t, 2t + 1, 2t + 8 and 2t + 9, which are its columns 4s to 4s + 3
// of 16. In words of two columns this transposes 4 x 8. Two lanes share a panel's row: one has the even chunks of 16
// bytes, which become the first four, the other the odd ones; both have read before one writes.
//
// bf16 becomes f16, as e4m3 does in one instruction for two; to bf16 it takes four and a half. A power of two brings a
// row's largest number to 2^14 before: what is exact in bf16 is so in f16, but for numbers below 2^-31 of that one,
// which lose what lies below its 2^-39. scales[row] takes the power back.
template <Config C>
struct RowsOfQ {
  const unsigned q;
  const unsigned maxima;  // a word of each row and panel that is taken at once
  const unsigned scales;  // [rows] fp32
  const int thread;

  static constexpr bool kIsScaled = C.facts.dtype == DType::bf16;
  static constexpr int kWarpsOfPanel = C.tile_m / 16;
  static constexpr int kPanelsAtOnce = kConsumers * kWarpsOfConsumer / kWarpsOfPanel;

  __device__ __forceinline__ int half() const { return thread / 8 % 2; }
  __device__ __forceinline__ int row() const {
    return thread / 32 % kWarpsOfPanel * 16 + thread / 16 % 2 * 8 + thread % 8;
  }
  __device__ __forceinline__ int first_panel() const { return thread / 32 / kWarpsOfPanel; }
  __device__ __forceinline__ unsigned place(int panel) const {
    return swizzle_address(C.swizzle, q + static_cast<unsigned>(panel * q_panel_bytes(C) + row() * kSpanBytes));
  }
  __device__ __forceinline__ void load(int panel, unsigned (&words)[16]) const {
    const unsigned from = place(panel) ^ static_cast<unsigned>(16 * half());
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const ptx::Words4 v = ptx::ld_shared_v4(from ^ static_cast<unsigned>(32 * i));
      words[4 * i] = v.x;
      words[4 * i + 1] = v.y;
      words[4 * i + 2] = v.z;
      words[4 * i + 3] = v.w;
    }
  }

  // The power of two, as an exponent: of this thread's row.
  __device__ __forceinline__ int find_power() const {
    unsigned max = 0;
#pragma unroll 1
    for (int panel = first_panel(); panel < kPanels; panel += kPanelsAtOnce) {
      unsigned words[16];
      load(panel, words);
#pragma unroll
      for (int i = 0; i < 16; ++i) max = ptx::max_abs_x2<DType::bf16>(max, words[i]);
    }
    max = ptx::max_abs_x2<DType::bf16>(max, __shfl_xor_sync(0xffffffff, max, 8));
    if (half() == 0) ptx::st_shared_u32(maxima + 4 * (first_panel() * C.tile_m + row()), max);
    ptx::barrier_sync(kBarrierOfConsumers, kConsumers * kWarpgroupThreads);
    int exponent = 0;
#pragma unroll
    for (int i = 0; i < kPanelsAtOnce; ++i) {
      const unsigned two = ptx::ld_shared_u32(maxima + 4 * (i * C.tile_m + row()));
      exponent = ::max(exponent, static_cast<int>(::max(two & 0x7fff, two >> 16 & 0x7fff) >> 7));
    }
    return ::min(::max(127 + 14 - exponent, -113), 100);
  }

  __device__ __forceinline__ void prepare(float scale) const {
    int power = 0;
    if constexpr (kIsScaled) power = find_power();
    const float factor = __int_as_float((127 + power) << 23);
    if (first_panel() == 0 && half() == 0)
      ptx::st_shared_f32(scales + 4 * row(), scale * __int_as_float((127 - power) << 23));
#pragma unroll 1
    for (int panel = first_panel(); panel < kPanels; panel += kPanelsAtOnce) {
      unsigned words[16];
      load(panel, words);
      if constexpr (kIsScaled) {
#pragma unroll
        for (int i = 0; i < 16; ++i)
          words[i] = ptx::cvt_pack<DType::f16>(__uint_as_float(words[i] << 16) * factor,
                                               __uint_as_float(words[i] & 0xffff0000u) * factor);
      }
      __syncwarp();
      const unsigned to = place(panel) ^ static_cast<unsigned>(64 * half());
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ptx::st_shared_v4(to ^ static_cast<unsigned>(16 * i), {words[i], words[4 + i], words[8 + i], words[12 + i]});
    }
  }
};

}  // namespace tessera::fmha_latent
