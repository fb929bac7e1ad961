// b's panel in shared memory: values converted once for all rows of the CTA, block scales as fp32.
//
// A lane has 32 neighbours of a step of 1,024: two blocks. Its values lie in pieces of 16 bytes, the pieces of 32 lanes
// side by side, so that a warp's 128-bit loads meet no bank twice. Software: doubled values as signed bytes, a piece is
// a block. Hardware: f16, a piece is half a block.
#pragma once

#include "ptx/e2m1.cuh"
#include "ptx/global.cuh"
#include "ptx/narrow.cuh"
#include "spec/gemv.h"

namespace tessera::gemv {

// Twice the magnitudes of e2m1, as bytes for prmt: codes 0 to 3, 4 to 7. All are below 128, so that prmt's copying of
// signs, which it does where a code's own sign bit is set, gives 0.
inline constexpr unsigned kDoubledLow = 0x03020100u;
inline constexpr unsigned kDoubledHigh = 0x0c080604u;

// Four values of the selector's low 16 bits: the positive ones; those of the opposite sign are 0.
__device__ __forceinline__ unsigned positive_part(unsigned selector) {
  return ptx::prmt(kDoubledLow, kDoubledHigh, selector);
}

__device__ __forceinline__ float ue4m3_low(unsigned codes) {
  return ptx::f32_of_low_f16(ptx::cvt_f16x2_e4m3x2(codes & 0x7f7fu));
}

// Piece `piece` of `lane` in `step` of the panel, in 16-byte units.
template <Config C>
__device__ __forceinline__ int piece_index(int step, int piece, int lane) {
  constexpr int kPieces = C.conversion == Conversion::software ? 2 : 4;
  return (step * kPieces + piece) * 32 + lane;
}

// Signed bytes from four codes: with 128 added no byte borrows from the next, and the last step takes it away again.
__device__ __forceinline__ unsigned signed_bytes(unsigned selector) {
  return (positive_part(selector) + 0x80808080u - positive_part(selector ^ 0x8888u)) ^ 0x80808080u;
}

template <Config C>
__device__ __forceinline__ void store_block(ptx::Vector4* values, int block, unsigned low, unsigned high) {
  const int step = block / 64, lane = block / 2 % 32, half = block % 2;
  if constexpr (C.conversion == Conversion::software) {
    values[piece_index<C>(step, half, lane)] = {signed_bytes(low), signed_bytes(low >> 16), signed_bytes(high),
                                                signed_bytes(high >> 16)};
  } else {
    unsigned pairs[4];
    ptx::decode_e2m1x8<C.conversion>(low, pairs);
    values[piece_index<C>(step, 2 * half, lane)] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    ptx::decode_e2m1x8<C.conversion>(high, pairs);
    values[piece_index<C>(step, 2 * half + 1, lane)] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

// Elements [start, start + C.k_panel) of b; zeros past k. b, sfb: of this batch.
template <Config C>
__device__ __forceinline__ void load_panel(const char* b, const char* sfb, int start, int k, ptx::Vector4* values,
                                           float* scales) {
  // Loads of four blocks are under way together.
  constexpr int kBatch = 4;
  const int end = min(C.k_panel, (k - start + kStepElements - 1) / kStepElements * kStepElements) / 16;
#pragma unroll 1
  for (int base = static_cast<int>(threadIdx.x); base < end; base += kBatch * kNumThreads) {
    unsigned low[kBatch] = {}, high[kBatch] = {}, code[kBatch] = {};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int index = start / 16 + base + i * kNumThreads;
      if (index * 16 >= k) continue;
      ptx::ld_global_v2(b + index * 8, low[i], high[i]);
      code[i] = ptx::ld_global_u8(
          sfb + (C.scale_form == ScaleForm::plain
                     ? static_cast<long long>(index)
                     : static_cast<long long>(index / kTileBlocks) * kTileBytes + index % kTileBlocks));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int block = base + i * kNumThreads;
      if (block >= end) break;
      store_block<C>(values, block, low[i], high[i]);
      scales[block] = ue4m3_low(code[i]);
    }
  }
}

}  // namespace tessera::gemv
