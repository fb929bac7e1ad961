// The producer warpgroup: one warp loads blocks of keys, one the rows of Q.
//
// A slot is loaded panel by panel, each with a barrier of its own, so that scores begin with the first one. A warpgroup
// gives back what it has multiplied as values, so that one half of a slot is on its way again while the other is in
// use. The panel that P lay in comes back with the half of the warpgroup which got that P.
#pragma once

#include "fmha_latent/deal.cuh"
#include "fmha_latent/params.cuh"
#include "ptx/elect.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// A block beyond the sequence's keys is loaded from behind all rows: zeros.
template <Config C>
__device__ __forceinline__ void load_panels(const Params& p, unsigned slot, unsigned full, int first, int count,
                                            int key, int sequence) {
#pragma unroll 1
  for (int panel = first; panel < first + count; ++panel) {
    ptx::mbarrier_arrive_expect_tx(full + 8 * panel, kPanelBytes);
    ptx::tma_load_5d(slot + panel * kPanelBytes, p.k, full + 8 * panel, 0, key, panel, 0, sequence);
  }
}

template <Config C>
__device__ __forceinline__ void load_keys(const Params& p, unsigned smem, Walk<C>& walk) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  unsigned parity = 1;
  Part part;
#pragma unroll 1
  while (walk.next(part)) {
    const int keys = keys_of<C>(p, part.sequence);
#pragma unroll 1
    for (int pair = part.begin; pair < part.end; ++pair, parity ^= 1) {
#pragma unroll 1
      for (int block = 0; block < 2; ++block) {
        const int first = pair * kPairKeys + block * kBlockKeys;
        const int key = first < keys ? first : max(p.seqlen_k, 1);
        const unsigned slot = smem + kLayout.k.offset + block * kSlotBytes;
        const unsigned full = smem + kBarriers.k_full + 8 * block * kPanels;
        const unsigned empty = smem + kBarriers.k_empty + 8 * block * kConsumers;
        ptx::mbarrier_wait_parity(empty, parity);
        load_panels<C>(p, slot, full, 0, kPanelsOfHalf, key, part.sequence);
        if (block == 1) load_panels<C>(p, slot, full, kPanelOfP, 1, key, part.sequence);
        ptx::mbarrier_wait_parity(empty + 8, parity);
        load_panels<C>(p, slot, full, kPanelsOfHalf, block == 0 ? kPanels - kPanelsOfHalf : kPanelsOfHalf, key,
                       part.sequence);
      }
    }
  }
}

template <Config C>
__device__ __forceinline__ void load_rows(const Params& p, unsigned smem, Walk<C>& walk) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  unsigned parity = 1;
  Part part;
  const int row = walk.tile() * kRows;
  const int query = row / C.pack_gqa;
#pragma unroll 1
  for (; walk.next(part); parity ^= 1) {
    ptx::mbarrier_wait_parity(smem + kBarriers.q_empty, parity);
    ptx::mbarrier_arrive_expect_tx(smem + kBarriers.q_full, kSlotBytes);
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel) {
      ptx::tma_load_5d(smem + kLayout.q.offset + panel * kPanelBytes, p.q, smem + kBarriers.q_full,
                       panel * kSpanElements, row - query * C.pack_gqa, query, 0, part.sequence);
    }
  }
}

template <Config C>
__device__ __forceinline__ void produce(const Params& p, unsigned smem) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp > kWarpOfQ) return;
  Walk<C> walk(p);
  if (!ptx::elect_sync()) return;
  if (warp == kWarpOfK) {
    load_keys<C>(p, smem, walk);
  } else {
    load_rows<C>(p, smem, walk);
  }
}

}  // namespace tessera::fmha_latent
