// mxfp4 to bf16, exactly, where no instruction multiplies it: keys on their way to registers, a tile of queries into
// shared memory. In which order: spec/indexer.h.
#pragma once

#include "common/e2m1_bf16.cuh"
#include "common/ring.cuh"
#include "indexer/producer.cuh"
#include "ptx/barrier.cuh"
#include "ptx/fence.cuh"
#include "ptx/pairs.cuh"
#include "ptx/shared_words.cuh"
#include "spec/indexer.h"

namespace tessera::indexer {

inline constexpr int kConsumersBarrier = 1;
inline constexpr int kPanelBytes = 128;

// Code times scale, of eight: pairs (j, j + 4). Two products, since 2^126 times a scale is no bf16.
__device__ __forceinline__ void widen_word(unsigned word, unsigned scale, unsigned (&pairs)[4]) {
  constexpr unsigned kTwoTo126 = 0x7e807e80;
  common::lowered_pairs(word, pairs);
#pragma unroll
  for (unsigned& pair : pairs) pair = ptx::mul_x2<DType::bf16>(ptx::mul_x2<DType::bf16>(pair, kTwoTo126), scale);
}
// Of a key's or a head's four scales the one of a block of 32, twice.
__device__ __forceinline__ unsigned scale_of_block(unsigned scales, int block) {
  return common::bf16_of_ue8m0(scales >> (8 * block) & 0xff) * 0x00010001u;
}

// A lane's share of two rows of keys, g and g + 8 of its warp's 16, as what the first operand has in registers.
// keys: the tile's first byte. scales: of these rows.
template <Config C>
__device__ __forceinline__ void load_keys(unsigned keys, const unsigned (&scales)[2], unsigned (&a)[steps(C)][4]) {
  constexpr int kBytes = row_bytes(C) / 4, kWords = kBytes / 4;
  const unsigned lane = threadIdx.x % kWarp, quarter = lane % 4;
  const int block = static_cast<int>(quarter) * (C.head_dim / 4) / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const unsigned row = threadIdx.x / kWarp % 4 * 16 + lane / 4 + 8 * half;
    const unsigned from = swizzle_address(swizzle(C), keys + row * row_bytes(C) + quarter * kBytes);
    unsigned words[kWords];
    if constexpr (kWords == 4) {
      const ptx::Words4 four = ptx::ld_shared_v4(from);
      words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    } else {
      ptx::ld_shared_v2(from, words[0], words[1]);
    }
    const unsigned scale = scale_of_block(scales[half], block);
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      unsigned pairs[4];
      widen_word(words[word], scale, pairs);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) a[2 * word + pair / 2][2 * (pair % 2) + half] = pairs[pair];
    }
  }
}

// Where 32 bytes of a widened query's row begin, not swizzled: those of step `step`.
template <Config C>
__device__ __forceinline__ unsigned wide_step(unsigned smem, int row, int step) {
  constexpr int kSteps = kPanelBytes / 32;
  return smem + smem_layout(C).wide + step / kSteps * (columns_of_tile(C) * kPanelBytes) + row * kPanelBytes +
         step % kSteps * 32;
}

// All consumers: the queries of a slot, which have come. None of them still reads those of before when this is over,
// and all may read what is there.
template <Config C>
__device__ __forceinline__ void widen_queries(unsigned smem, int slot) {
  constexpr int kThreads = kWarpgroup * C.consumers, kWords = C.head_dim / 8, kOfQuarter = kWords / 4;
  static_assert(smem_layout(C).wide % 1024 == 0 && C.head_dim % 64 == 0);
  const unsigned codes = smem + smem_layout(C).q + slot * q_slot_bytes(C);
  const unsigned scales = smem + smem_layout(C).q_scales + slot * weights_slot_bytes(C);
  ptx::barrier_sync(kConsumersBarrier, kThreads);
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x) - kWarpgroup; i < columns_of_tile(C) * kWords; i += kThreads) {
    const int row = i / kWords, word = i % kWords;
    const unsigned scale = scale_of_block(ptx::ld_shared_u32(scales + 4 * row), word / 4);
    unsigned pairs[4];
    widen_word(ptx::ld_shared_u32(swizzle_address(swizzle(C), codes + row * row_bytes(C) + 4 * word)), scale, pairs);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const unsigned to =
          wide_step<C>(smem, row, word % kOfQuarter * 2 + pair / 2) + place_of_pair(word / kOfQuarter, pair);
      ptx::st_shared_u32(swizzle_address(Swizzle::b128, to), pairs[pair]);
    }
  }
  if constexpr (uses_wgmma(C)) ptx::fence_proxy_async_shared();
  ptx::barrier_sync(kConsumersBarrier, kThreads);
}

}  // namespace tessera::indexer
