// b's panel in shared memory: values converted once for all rows of the CTA, block scales as fp32.
//
// A lane has 16 or 32 neighbours of a step. Its values lie in pieces of 16 bytes, the pieces of 32 lanes side by side,
// so that a warp's 128-bit loads meet no bank twice. Bytes: doubled values, signed, a piece is 16 elements. Halves:
// f16, 8 elements. Floats: 4.
#pragma once

#include "gemv/values.cuh"
#include "ptx/global.cuh"
#include "spec/gemv.h"

namespace tessera::gemv {

// Piece `piece` of `lane` in `step` of the panel, in 16-byte units.
template <Config C>
__device__ __forceinline__ int piece_index(int step, int piece, int lane) {
  return (step * lane_pieces(C) + piece) * 32 + lane;
}

// Sixteen elements of b as they lie in memory: 8 bytes or 16.
struct Unit {
  unsigned words[4];
};

template <Config C>
__device__ __forceinline__ void store_unit(ptx::Vector4* values, int unit, const Unit& u) {
  constexpr int kOfLane = lane_elements(C) / kUnit;
  const int step = unit / (32 * kOfLane), lane = unit / kOfLane % 32, part = unit % kOfLane;
  if constexpr (products(C) == Products::bytes) {
    values[piece_index<C>(step, part, lane)] = {signed_bytes(u.words[0]), signed_bytes(u.words[0] >> 16),
                                                signed_bytes(u.words[1]), signed_bytes(u.words[1] >> 16)};
  } else if constexpr (products(C) == Products::halves) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned pairs[4];
      ptx::decode_e2m1x8<C.conversion>(u.words[i], pairs);
      values[piece_index<C>(step, 2 * part + i, lane)] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  } else {
    constexpr int kWords = value_bits(C.b_format) / 2, kPairs = 8 / kWords;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      unsigned pairs[kPairs];
      decode_word<C.b_format, C.conversion>(u.words[i], pairs);
#pragma unroll
      for (int j = 0; j < kPairs; j += 2)
        values[piece_index<C>(step, 4 * part + (i * kPairs + j) / 2, lane)] = {
            __float_as_uint(ptx::f32_of_low_f16(pairs[j])), __float_as_uint(ptx::f32_of_high_f16(pairs[j])),
            __float_as_uint(ptx::f32_of_low_f16(pairs[j + 1])), __float_as_uint(ptx::f32_of_high_f16(pairs[j + 1]))};
    }
  }
}

// Elements [start, start + C.k_panel) of b; zeros past k. b, sfb: of this batch.
template <Config C>
__device__ __forceinline__ void load_panel(const char* b, const char* sfb, int start, int k, ptx::Vector4* values,
                                           float* scales) {
  // Loads of four units are under way together.
  constexpr int kBatch = 4, kUnitsOfBlock = block(C) / kUnit, kBytes = kUnit * value_bits(C.b_format) / 8;
  const int end = min(C.k_panel, (k - start + step_elements(C) - 1) / step_elements(C) * step_elements(C)) / kUnit;
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base < end; base += kBatch * kNumThreads) {
    Unit units[kBatch] = {};
    unsigned code[kBatch] = {};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int index = start / kUnit + base + i * kNumThreads;
      if (index * kUnit >= k) continue;
      const char* const from = b + static_cast<long long>(index) * kBytes;
      if constexpr (kBytes == 8) {
        ptx::ld_global_v2(from, units[i].words[0], units[i].words[1]);
      } else {
        const ptx::Vector4 v = ptx::ld_global_v4(from);
        units[i] = {v.x, v.y, v.z, v.w};
      }
      const int of_block = index / kUnitsOfBlock;
      code[i] = ptx::ld_global_u8(
          sfb + (C.scale_form == ScaleForm::plain
                     ? static_cast<long long>(of_block)
                     : static_cast<long long>(of_block / kTileBlocks) * kTileBytes + of_block % kTileBlocks));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int unit = base + i * kNumThreads;
      if (unit >= end) break;
      store_unit<C>(values, unit, units[i]);
      if (unit % kUnitsOfBlock == 0) scales[unit / kUnitsOfBlock] = scale_number<C.b_format>(code[i]);
    }
  }
}

}  // namespace tessera::gemv
