// Two pools of keys: which keys of a block are there. A place of a query's list may hold no row, and the last block
// reaches behind the last key. A tile is one query, so that a bit for each key serves all its rows. The warp that loads
// K knows the rows, and puts the bits of a block beside its slot.
#pragma once

#include "attention/placed_keys.cuh"
#include "fmha/matmul.cuh"
#include "fmha/registers.cuh"
#include "fmha/softmax.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

template <Config C>
__device__ __forceinline__ unsigned present_at(unsigned smem, int slot) {
  return smem + smem_layout(C).present.offset + slot * present_slot_bytes(C);
}

// By the warp that loads K, of whose lanes one knows the row of each key; below 0: none. Its arrival at `full` hands
// the bits over.
template <Config C, int kCount>
__device__ __forceinline__ void tell_present(unsigned smem, int slot, unsigned full, const int (&rows)[kCount]) {
  unsigned words[(kCount + 3) / 4 * 4] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) words[i] = __ballot_sync(attention::kAllLanes, rows[i] >= 0);
  if (threadIdx.x % 32 != 0) return;
#pragma unroll
  for (int i = 0; i < kCount; i += 4)
    ptx::st_shared_v4(present_at<C>(smem, slot) + 4 * i, {words[i], words[i + 1], words[i + 2], words[i + 3]});
  ptx::mbarrier_arrive(full);
}

// A block's, in a consumer's registers.
template <Config C>
struct PresentKeys {
  static constexpr int kWords = (C.tile_n + 31) / 32;
  unsigned words[kWords];

  // By whole warps, before the slot is handed back.
  __device__ __forceinline__ void load(unsigned smem, int slot) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = ptx::ld_shared_u32(present_at<C>(smem, slot) + 4 * i);
    __syncwarp();
  }

  __device__ __forceinline__ bool is_missing() const {
    bool is_missing = false;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int keys = C.tile_n - 32 * i;
      is_missing = is_missing || words[i] != (keys < 32 ? (1u << (keys % 32)) - 1 : 0xffffffffu);
    }
    return is_missing;
  }

  // A thread's columns are constants plus 2 (t % 4). Scores are multiplied with the scale's factor on the way.
  __device__ __forceinline__ void hide_others(Scores<C>& scores, const Scale& scale) const {
    if (!scale.is_applied() && !is_missing()) return;
    const float factor = scale.factor();
    const int own_column = 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int group = 0; group < C.tile_n / 2; group += 16) {
      const unsigned bits = words[group / 16] >> own_column;
#pragma unroll
      for (int v = group; v < C.tile_n / 2 && v < group + 16; ++v) {
        const int key = 8 * ((v - group) / 4) + v % 2;
        scores[v] = (bits >> key & 1) != 0 ? scores[v] * factor : ptx::minus_infinity();
      }
    }
  }
  // The same by wgmma.
  __device__ __forceinline__ void hide_others(const Scale& scale) const {
    if (!scale.is_applied() && !is_missing()) return;
    unsigned bits[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) bits[i] = words[i] >> (2 * (static_cast<int>(threadIdx.x) % 4));
    RegistersOf<C>::hide_by_bits(scale.factor(), bits, bits);
  }
};

}  // namespace tessera::fmha
