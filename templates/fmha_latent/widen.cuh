// 8-bit keys: their bytes become 16-bit numbers in the slots that wgmma reads.
//
// Q and two slots leave 10,032 of 232,448 bytes of shared memory, two panels of bytes: too few to have a block under
// way. So the bytes of a panel come to the second half of the panel itself, as soon as consumers give it back, and one
// warp widens it where it lies, row after row upwards: 128 bytes for each row never reach the bytes of the next one,
// which begin at 4096 + 64 i. The first 32 rows go where no bytes are; the others go over bytes that all lanes must
// have read by then. Nothing but that warp must agree, and scores begin with the first wide panel.
//
// A fourth warpgroup would leave no wgmma of 256 columns its accumulators. So of the producer's four warps one loads
// keys and three widen: of nine panels each has three. The first of them loads Q, too, which is rare. They have 56
// registers, and consumers 224, which is enough; with 40, as beside 16-bit keys, they spill. A panel is about 330
// instructions of a warp (to bf16), a block 1,000 on each of three schedulers, beside 2,176 cycles of tensor cores.
// Shared memory has less to spare: a block's bytes are written and read (2 x 288 cycles at 128 bytes) and its numbers
// written (576), beside some 1,730 cycles for both products. Loads from global memory to registers would save one
// write, but these registers have too little under way.
//
// What lies behind the last key is nobody's: its bytes are cleared before they are widened, and consumers need not.
#pragma once

#include "attention/widen.cuh"
#include "fmha_latent/deal.cuh"
#include "fmha_latent/params.cuh"
#include "fmha_latent/producer.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

// Of a sequence's keys, and of its values, which are a part of them.
template <Config C>
__device__ __forceinline__ float descale_of(const Params& p, int sequence) {
  if (p.k_descale == nullptr) return 1.0f;
  return __uint_as_float(ptx::ld_global_u32(p.k_descale + sequence * p.k_descale_stride_batch));
}

inline constexpr int kRowsAtOnce = 8;  // of a panel, by a warp: 16 bytes a lane
inline constexpr int kStepsInHand = 4;

// Bytes of rows from `valid` on, where some are behind the last key and some are not.
__device__ __forceinline__ void clear_bytes(unsigned panel, int valid) {
  if (valid <= 0 || valid >= kBlockKeys) return;
#pragma unroll 1
  for (int byte = valid * kRawSpanBytes + 16 * (static_cast<int>(threadIdx.x) % 32); byte < kRawPanelBytes;
       byte += 16 * 32)
    ptx::st_shared_v4(panel + kRawOffset + byte, {0, 0, 0, 0});
  __syncwarp();
}

// A warp; four lanes have a row. Of 16 bytes come two chunks of 16, neighbours under the swizzle: lanes that are served
// at once write two rows, whose chunks lie in different banks.
template <Config C>
__device__ __forceinline__ void widen_panel(unsigned panel) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned from = panel + kRawOffset + 16 * lane;
  const unsigned to = swizzle_address(C.swizzle, panel + static_cast<unsigned>(lane / 4 * kSpanBytes + lane % 4 * 32));
#pragma unroll
  for (int first = 0; first < kBlockKeys / kRowsAtOnce; first += kStepsInHand) {
    ptx::Words4 codes[kStepsInHand];
#pragma unroll
    for (int i = 0; i < kStepsInHand; ++i)
      codes[i] = ptx::ld_shared_v4(from + (first + i) * kRowsAtOnce * kRawSpanBytes);
    if ((first + kStepsInHand) * kRowsAtOnce * kSpanBytes > kRawOffset) __syncwarp();
#pragma unroll
    for (int i = 0; i < kStepsInHand; ++i) {
      ptx::Words4 low, high;
      attention::widen_word<C.facts.dtype>(codes[i].x, low.x, low.y);
      attention::widen_word<C.facts.dtype>(codes[i].y, low.z, low.w);
      attention::widen_word<C.facts.dtype>(codes[i].z, high.x, high.y);
      attention::widen_word<C.facts.dtype>(codes[i].w, high.z, high.w);
      ptx::st_shared_v4(to + (first + i) * kRowsAtOnce * kSpanBytes, low);
      ptx::st_shared_v4((to ^ 16) + (first + i) * kRowsAtOnce * kSpanBytes, high);
    }
  }
}

// A widening warp: every third panel of each block.
template <Config C>
__device__ __forceinline__ void widen_keys(const Params& p, unsigned smem, Walk<C>& walk, int first_panel) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  unsigned parity = 0, q_parity = 1;
  Part part;
#pragma unroll 1
  while (walk.next(part)) {
    // All that the part before needs is wide, so that consumers give Q back.
    if (first_panel == 0) {
      if (ptx::elect_sync()) load_rows<C>(p, smem, part.sequence, walk.tile() * kRows, q_parity);
      __syncwarp();
      q_parity ^= 1;
    }
    const int keys = keys_of<C>(p, part.sequence);
#pragma unroll 1
    for (int block = 2 * part.begin; block < 2 * part.end; ++block) {
      const int index = block % 2;
#pragma unroll 1
      for (int panel = first_panel; panel < kPanels; panel += kWideningWarps) {
        const unsigned address = smem + kLayout.k.offset + index * kSlotBytes + panel * kPanelBytes;
        ptx::mbarrier_wait_parity(barrier_at<kBarriers.raw_full>(smem, index * kPanels + panel), parity);
        if constexpr (C.facts.seqused != UsedLengths::none) clear_bytes(address, keys - block * kBlockKeys);
        widen_panel<C>(address);
        ptx::fence_proxy_async_shared();
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier_at<kBarriers.k_full>(smem, index * kPanels + panel));
      }
      parity ^= static_cast<unsigned>(index);
    }
  }
}

// The producer warpgroup.
template <Config C>
__device__ __forceinline__ void load_or_widen(const Params& p, unsigned smem) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Walk<C> walk(p);
  if (warp == kWarpOfK) {
    load_keys<C, Halves::both>(p, smem, walk);
  } else {
    widen_keys<C>(p, smem, walk, warp - kFirstWideningWarp);
  }
}

}  // namespace tessera::fmha_latent
