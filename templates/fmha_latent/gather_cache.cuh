// Keys of two pools whose rows are tokens of a cache, which is narrower than what is multiplied: gathered as they are,
// widened on the way. As gather.cuh; what differs is how a warp's 16 keys of a block come.
//
// Values come to registers before their slot is free, and are stored where wgmma's swizzle has them: from a slot's
// release to its next keys no load is waited for. Shared memory is what both products are bound by: a slot of raw bytes
// would be written and read on top. The rotation, which is bf16, goes the same way.
//
// Lines stay in L1, as a row's pieces follow each other and rows of 656 bytes begin inside a sector.
//
// Two CTAs of a cluster that have the same keys (shares_keys) widen half of them each, eight of a warp's 16. A warp has
// them in its own shared memory and sends them from there to the other CTA's, 1 KB of a panel by a bulk copy (by
// st.async, 16 bytes a lane, 128 heads took a third longer). A CTA on its own has all codes of a block under way, and
// its rotation comes meanwhile.
//
// A lane has 16 columns of a panel at a time, four lanes a row's 64, eight rows a step: of 16 columns come two chunks
// of 16 bytes, neighbours under the swizzle. Lanes that are served at once write two rows, whose chunks lie in
// different banks.
//
// An e4m3 code with its bits moved to where bf16 has sign, exponent and mantissa is the number times 2^-120, subnormal
// ones included; e2m1 likewise, times 2^-126. So two exact products, with that power and with the scale, which bf16
// holds, are all the arithmetic; only where a scale is no power of two the last one rounds. NaN, the codes 0x7F and
// 0xFF, counts as 480.
#pragma once

#include "fmha_latent/deal.cuh"
#include "fmha_latent/gather.cuh"
#include "fmha_latent/params.cuh"
#include "ptx/address.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/narrow.cuh"
#include "ptx/pairs.cuh"
#include "ptx/shared_words.cuh"
#include "spec/fmha_latent.h"

namespace tessera::fmha_latent {

template <Config C>
struct CacheFormat {
  static constexpr RowCache kCache = cache_of(C.facts);
  static constexpr CacheLayout kLayout = cache_layout(kCache);
  static constexpr bool kIsE2m1 = kLayout.value == ValueType::e2m1;
  static constexpr int kNarrowPanels = kLayout.values / kSpanElements;
  static constexpr int kPanelOfRotation = kNarrowPanels;
  static constexpr int kCodeBytes = kIsE2m1 ? kSpanElements / 2 : kSpanElements;      // of a row's panel
  static constexpr int kWords = kCodeBytes / 16;                                      // of a lane's 16 columns
  static constexpr int kScaleWords = kLayout.scale_bytes == 4 ? 2 : kIsE2m1 ? 4 : 1;  // of half of a row
};

// 8 bytes of e2m1 codes. A CTA on its own keeps their lines in L1, as it does of 16 bytes (H200, 16 heads: 218 us
// without and 183 with it); in a cluster it was not timed beside lines of 16 bytes in L1.
template <Config C>
__device__ __forceinline__ void load_8_bytes(const void* from, unsigned& x, unsigned& y) {
  if constexpr (shares_keys(C)) {
    ptx::ld_global_v2_stream(from, x, y);
  } else {
    ptx::ld_global_v2_l2_128b(from, x, y);
  }
}

// Where a token's data begin, and its scales.
struct TokenPlace {
  const char* data;
  const char* scales;
};
template <Config C>
__device__ __forceinline__ TokenPlace token_of(const ListedKeys<C>& keys, int key, int row) {
  using Format = CacheFormat<C>;
  constexpr int kPage = C.facts.page_size;
  const Params& p = keys.p;
  const int token = max(row, 0);
  const int page = quotient(token, kPage), place = token - page * kPage;
  const int batch = C.facts.kv_cache == KvCache::mla_656 ? ptx::forget(keys.place.batch) : keys.place.batch;
  const char* const begin =
      key < keys.listed ? static_cast<const char*>(p.k_keys) + page * p.k_stride_page
                        : static_cast<const char*>(p.swa_k) + batch * p.swa_k_stride_batch + page * p.swa_k_stride_page;
  return {begin + place * Format::kLayout.token_bytes, begin + cache_scale_at(Format::kCache, kPage, place, 0)};
}

// Keys of a warp that a CTA widens, as its lanes have them: of rows 8 apart.
template <Config C>
inline constexpr int kRowsOfLane = shares_keys(C) ? 1 : 2;
template <Config C>
__device__ __forceinline__ int key_of_lane(int j) {
  return (shares_keys(C) ? 8 * cta_of_pair() : 0) + 8 * j + static_cast<int>(threadIdx.x) % 32 / 4;
}

// Where the lane's rows of a block begin. `data` is null: there is none.
template <Config C>
struct RowPlaces {
  const char* data[kRowsOfLane<C>];
  const char* scales[kRowsOfLane<C>];

  __device__ __forceinline__ void find(const ListedKeys<C>& keys, int first_key, int row) {
#pragma unroll
    for (int j = 0; j < kRowsOfLane<C>; ++j) {
      const int its_row = __shfl_sync(0xffffffff, row, key_of_lane<C>(j));
      const TokenPlace at = token_of<C>(keys, first_key + key_of_lane<C>(j), its_row);
      data[j] = its_row >= 0 ? at.data : nullptr;
      scales[j] = at.scales;
    }
  }
  // A token without a tail has its scales among its data.
  __device__ __forceinline__ const char* scales_of(int j) const {
    constexpr CacheLayout kLayout = CacheFormat<C>::kLayout;
    return kLayout.tail_bytes == 0 ? data[j] + kLayout.scales_at : scales[j];
  }
};

// Where a lane's 16 columns of the first panel of a slot are stored, and the other CTA's, with the barrier at which
// those bytes count. The panel of P alone is stored in both at once; others are sent as a group.
template <Config C>
struct KeyStore {
  unsigned to;
  unsigned other = 0;
  unsigned other_full = 0;

  __device__ __forceinline__ KeyStore(unsigned slot, unsigned full) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = gather_warp();
    const int key = warp * kKeysOfWarp + key_of_lane<C>(0);
    to = swizzle_address(Swizzle::b128, slot + static_cast<unsigned>(key * kSpanBytes + lane % 4 * 32));
    if constexpr (shares_keys(C)) {
      other = ptx::mapa(to, other_cta());
      other_full = ptx::mapa(full, other_cta());
    }
  }
  // 16 columns of a panel, of the lane's row `j`.
  __device__ __forceinline__ void store(int panel, int j, const ptx::Words4& low, const ptx::Words4& high) const {
    const unsigned place = panel * kPanelBytes + j * 8 * kSpanBytes;
    ptx::st_shared_v4(to + place, low);
    ptx::st_shared_v4((to ^ 16) + place, high);
    if (shares_keys(C) && panel == kPanelOfP) {
      ptx::st_async_v4(other + place, other_full, low);
      ptx::st_async_v4((other ^ 16) + place, other_full, high);
    }
  }
};

// What a warp has of a group of panels is stored: to the other CTA goes a panel by each of the first lanes, but for the
// panel of P. A slot is free when both CTAs have read it, so after its copies. The first warp announces what comes from
// the other CTA.
template <Config C>
__device__ __forceinline__ void arrive_at_group(unsigned full, int panels_of_group, unsigned first_panel = 0) {
  ptx::fence_proxy_async_shared();
  __syncwarp();
  if (shares_keys(C) && panels_of_group > 1 && static_cast<int>(threadIdx.x) % 32 < panels_of_group) {
    const unsigned from = first_panel + static_cast<int>(threadIdx.x) % 32 * kPanelBytes +
                          (static_cast<int>(threadIdx.x) / 32 * kKeysOfWarp + 8 * cta_of_pair()) * kSpanBytes;
    ptx::bulk_send(ptx::mapa(from, other_cta()), from, 8 * kSpanBytes, ptx::mapa(full, other_cta()));
  }
  if (threadIdx.x % 32 != 0) return;
  if (shares_keys(C) && threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(full, panels_of_group * kPanelBytes / 2);
  } else {
    ptx::mbarrier_arrive(full);
  }
}

template <Config C>
__device__ __forceinline__ void wait_for_slot(unsigned empty, unsigned parity) {
  if constexpr (shares_keys(C)) {
    ptx::mbarrier_wait_parity_acquire_cluster(empty, parity);
    __syncwarp();
  } else {
    wait_of_warp(empty, parity);
  }
}

// Where a lane's columns of a row begin. A panel's lie a constant further, and are not a place of their own, each a
// register from block to block. Rows of 656 bytes are found again in each block: without it (H200).
template <Config C>
__device__ __forceinline__ const char* columns_at(const char* from) {
  if constexpr (C.facts.kv_cache == KvCache::mla_656) return from;
  return ptx::forget(from);
}

// Columns of the rotation, on their way.
template <Config C>
struct Rotation {
  ptx::Words4 words[kRowsOfLane<C>][2];

  __device__ __forceinline__ void load(const RowPlaces<C>& places) {
#pragma unroll
    for (int j = 0; j < kRowsOfLane<C>; ++j) {
      const char* const from =
          columns_at<C>(places.data[j] + CacheFormat<C>::kLayout.bf16_at + static_cast<int>(threadIdx.x) % 4 * 32);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ptx::Vector4 v{0, 0, 0, 0};
        if (places.data[j] != nullptr) v = ptx::ld_global_v4_l2_128b(from + 16 * i);
        words[j][i] = {v.x, v.y, v.z, v.w};
      }
    }
  }
  __device__ __forceinline__ void store(const KeyStore<C>& to) const {
#pragma unroll
    for (int j = 0; j < kRowsOfLane<C>; ++j) to.store(CacheFormat<C>::kPanelOfRotation, j, words[j][0], words[j][1]);
  }
};

// Values of half of a block's panels, on their way: 16 columns of four panels.
template <Config C>
struct NarrowHalf {
  using Format = CacheFormat<C>;
  static constexpr unsigned kPowerOfE4m3 = 0x7b807b80u;  // 2^120, twice
  static constexpr unsigned kPowerOfE2m1 = 0x7e807e80u;  // 2^126
  unsigned codes[kRowsOfLane<C>][kPanelsOfHalf][Format::kWords];
  unsigned scales[kRowsOfLane<C>][Format::kScaleWords];

  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // `half`: 0 or 1. A row that is not there is zeros.
  __device__ __forceinline__ void load(int half, const RowPlaces<C>& places) {
#pragma unroll
    for (int j = 0; j < kRowsOfLane<C>; ++j) {
      const bool is_there = places.data[j] != nullptr;
      const char* const from = columns_at<C>(places.data[j] + half * kPanelsOfHalf * Format::kCodeBytes +
                                             lane() % 4 * (Format::kCodeBytes / 4));
#pragma unroll
      for (int i = 0; i < kPanelsOfHalf; ++i) {
#pragma unroll
        for (int w = 0; w < Format::kWords; ++w) codes[j][i][w] = 0;
        if (!is_there || half * kPanelsOfHalf + i >= Format::kNarrowPanels) continue;
        if constexpr (Format::kIsE2m1) {
          load_8_bytes<C>(from + i * Format::kCodeBytes, codes[j][i][0], codes[j][i][1]);
        } else {
          const ptx::Vector4 v = ptx::ld_global_v4_l2_128b(from + i * Format::kCodeBytes);
          codes[j][i][0] = v.x;
          codes[j][i][1] = v.y;
          codes[j][i][2] = v.z;
          codes[j][i][3] = v.w;
        }
      }
#pragma unroll
      for (int w = 0; w < Format::kScaleWords; ++w) scales[j][w] = 0;
      if (is_there) load_scales(j, half, places.scales_of(j));
    }
  }

  __device__ __forceinline__ void load_scales(int j, int half, const char* from) {
    if constexpr (Format::kLayout.scale_bytes == 4) {
      ptx::ld_global_v2_stream(from + 8 * half, scales[j][0], scales[j][1]);
    } else if constexpr (Format::kIsE2m1) {
      const ptx::Vector4 v = ptx::ld_global_v4_l2_128b(from + 16 * half);
      scales[j][0] = v.x;
      scales[j][1] = v.y;
      scales[j][2] = v.z;
      scales[j][3] = v.w;
    } else {
      scales[j][0] = ptx::ld_global_u32_stream(from + 4 * half);
    }
  }

  // Of a panel of the half, as bf16, twice in a word.
  __device__ __forceinline__ unsigned scale_of(int j, int panel) const {
    if constexpr (Format::kLayout.scale_bytes == 4) {
      const float scale = __uint_as_float(scales[j][panel / 2]);
      return ptx::cvt_pack<DType::bf16>(scale, scale);
    } else if constexpr (Format::kIsE2m1) {
      const unsigned code = scales[j][panel] >> (8 * (lane() % 4)) & 0x7f;
      return ptx::mul_x2<DType::bf16>(code * 0x00100010u, kPowerOfE4m3);
    } else {
      const unsigned code = scales[j][0] >> (8 * panel) & 0xff;
      return code == 0 ? 0x00400040u : code * 0x00800080u;
    }
  }

  // Two columns: of a word of e4m3 its half `i`, of e2m1 its byte `i`.
  __device__ __forceinline__ static unsigned widen_two(unsigned word, int i, unsigned scale) {
    unsigned bits, power;
    if constexpr (Format::kIsE2m1) {
      // The byte of both, and the byte that has the second one low.
      const unsigned both = ptx::prmt(word, word >> 4, static_cast<unsigned>((4 + i) << 8 | i));
      bits = ((both << 12) & 0x80008000u) | ((both << 6) & 0x01c001c0u);
      power = kPowerOfE2m1;
    } else {
      const unsigned both = ptx::prmt(word, 0, i == 0 ? 0x4140u : 0x4342u);
      bits = (both & 0x00800080u) * 240 + both * 16;  // the sign goes four places further
      power = kPowerOfE4m3;
    }
    return ptx::mul_x2<DType::bf16>(ptx::mul_x2<DType::bf16>(bits, power), scale);
  }

  // Eight columns, from word `first` on.
  __device__ __forceinline__ ptx::Words4 widen(int j, int panel, int first, unsigned scale) const {
    unsigned wide[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wide[i] = widen_two(codes[j][panel][first + (Format::kIsE2m1 ? 0 : i / 2)], Format::kIsE2m1 ? i : i % 2, scale);
    return {wide[0], wide[1], wide[2], wide[3]};
  }

  // Widened on the way to shared memory.
  __device__ __forceinline__ void store(int half, const KeyStore<C>& to) const {
#pragma unroll
    for (int i = 0; i < kPanelsOfHalf; ++i) {
      if (half * kPanelsOfHalf + i >= Format::kNarrowPanels) continue;
#pragma unroll
      for (int j = 0; j < kRowsOfLane<C>; ++j) {
        const unsigned scale = scale_of(j, i);
        to.store(half * kPanelsOfHalf + i, j, widen(j, i, 0, scale), widen(j, i, Format::kWords / 2, scale));
      }
    }
  }
};

// The producer warpgroup.
template <Config C>
__device__ __forceinline__ void gather_cache(const Params& p, unsigned smem) {
  using Format = CacheFormat<C>;
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr Barriers kBarriers = barriers(C);
  constexpr bool kRotatesAlone = full_of_panel(C, Format::kPanelOfRotation) == 2;  // no value has those columns
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp * kKeysOfWarp + lane % kKeysOfWarp;
  Walk<C> walk(p);
  unsigned parity = 1, q_parity = 1;
  Part part;
#pragma unroll 1
  while (walk.next(part)) {
    if (warp == kWarpOfQ) {
      if (ptx::elect_sync()) load_rows<C>(p, smem, part.sequence, walk.tile() * kRows, q_parity);
      __syncwarp();
      q_parity ^= 1;
    }
    const ListedKeys<C> keys(p, part.sequence);
    const int end = 2 * part.end;
    const auto first_of_warp = [&](int block) { return block * kBlockKeys + warp * kKeysOfWarp; };
    int row = keys.row_of(2 * part.begin * kBlockKeys + own, keys.entry_of(2 * part.begin * kBlockKeys + own));
    unsigned entry = keys.entry_of((2 * part.begin + 1) * kBlockKeys + own);
    NarrowHalf<C> halves[2];
    Rotation<C> rotation;
    RowPlaces<C> places;
    places.find(keys, first_of_warp(2 * part.begin), row);
#pragma unroll
    for (int i = 0; i < 2; ++i) halves[i].load(i, places);
    if constexpr (shares_keys(C)) rotation.load(places);
#pragma unroll 1
    for (int block = 2 * part.begin; block < end; ++block) {
      const int index = block % 2;
      const unsigned slot = smem + kLayout.k.offset + index * kSlotBytes;
      const BarrierRow full = row_at<kBarriers.k_full>(smem, index * kGroups);
      const BarrierRow empty = row_at<kBarriers.k_empty>(smem, index * kConsumers);
      const unsigned present = __ballot_sync(0xffffffff, row >= 0) & ((1u << kKeysOfWarp) - 1);
      // Behind the last block rows of the next are none.
      const int next = block + 1 < end ? keys.row_of((block + 1) * kBlockKeys + own, entry) : -1;
      entry = keys.entry_of((block + 2) * kBlockKeys + own);
      // Where S alone needs the rotation, it comes with the panel of P, which the other warpgroup reads last.
      const auto rotate = [&] {
        rotation.store(KeyStore<C>(slot, full[2]));
        arrive_at_group<C>(full[2], 1);
      };
      wait_for_slot<C>(empty[0], parity);
      halves[0].store(0, KeyStore<C>(slot, full[0]));
      if (lane == 0) ptx::st_shared_u32(smem + kLayout.present.offset + (index * kGatherWarps + warp) * 4, present);
      arrive_at_group<C>(full[0], kPanelsOfHalf, slot);
      if constexpr (shares_keys(C)) {
        places.find(keys, first_of_warp(block + 1), next);
        halves[0].load(0, places);
        if (kRotatesAlone && index == 1) rotate();
      } else {
        // Found again: where rows are is not worth registers from block to block there, which spilled (H200: 6 %
        // faster; others would be 5 to 8 % slower).
        if constexpr (C.facts.kv_cache == KvCache::mla_656) places.find(keys, first_of_warp(block), ptx::forget(row));
        rotation.load(places);
      }
      wait_for_slot<C>(empty[1], parity);
      halves[1].store(1, KeyStore<C>(slot, full[1]));
      if (!kRotatesAlone) rotation.store(KeyStore<C>(slot, full[1]));
      arrive_at_group<C>(full[1], kPanelsOfHalf, slot + kPanelsOfHalf * kPanelBytes);
      if constexpr (!shares_keys(C)) {
        places.find(keys, first_of_warp(block + 1), next);
        halves[0].load(0, places);
        halves[1].load(1, places);
        if (kRotatesAlone) rotate();
      } else {
        halves[1].load(1, places);
        if (kRotatesAlone && index == 0) rotate();
        rotation.load(places);
      }
      row = next;
      parity ^= static_cast<unsigned>(index);
    }
  }
}

}  // namespace tessera::fmha_latent
