// Keys that do not lie dense, on their way to shared memory: in pages of a pool, packed sequence behind sequence, or in
// two pools, where a query's own list of rows comes first and its sequence's window behind. One meaning for all
// families. A whole warp loads a block of K or of V.
//
// A block of keys is made of boxes, each of keys that lie side by side in memory (box_keys): a page or a part of one.
// With kv_copy tma a box is a TMA box, and lane i loads box i. A block that is a page and a box long (has_page_parts)
// is two boxes wherever it begins, of as many keys as it has of either page, by maps for each number of them. A box of
// no page, because no key of it is valid or because its entry in the table is none of the pool, is loaded from beyond
// the pool: zeros. What lies in memory behind the last valid key is nobody's: its scores are hidden, whatever K holds,
// but 0 times a NaN is one, so the warp clears those rows of V before anyone else sees the block. With kv_copy cp_async
// all keys are copied by threads, one by one, with zeros behind the last.
//
// Keys with scales (kv_format): those of a box, which lie side by side, are a bulk copy beside it. Zeros stand for a
// box of no page, and behind the last valid key: they may be nobody's, too, and one may be a NaN.
//
// Entries behind a sequence's last page are never read.
#pragma once

#include "attention/pools.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/global_written.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tma.cuh"
#include "spec/attention_facts.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera::attention {

inline constexpr unsigned kAllLanes = 0xffffffff;

template <auto C>
TESSERA_HD constexpr bool reads_some_keys_once() {
  if constexpr (requires { has_whole_tiles(C); }) return has_whole_tiles(C);
  return false;
}

template <auto C>
TESSERA_HD constexpr bool knows_first_block() {
  if constexpr (requires { asks_ahead(C); }) return asks_ahead(C);
  return false;
}
template <auto C>
TESSERA_HD constexpr bool makes_blocks_of_parts() {
  if constexpr (requires { has_page_parts(C); }) return has_page_parts(C);
  return false;
}
// A CTA's first block as it was found before it could be known for certain, and what the lane loads of it.
struct KnownBlock {
  int first_key = -1;  // -1: there is none
  int sequence = 0;
  int head = 0;
  int entry = -1;  // of the table, for the lane's box; -1: the box has no keys
  int guess = -1;  // its page, as it was looked up before; -1: none
  int page = -1;   // the number that stands there behind the wait
};

template <auto C>
TESSERA_HD constexpr Swizzle swizzle_of(int columns) {
  if constexpr (requires { swizzle_of_keys(C, 16); }) return swizzle_of_keys(C, columns);
  return key_swizzle(C.facts, C.swizzle);
}

// K or V of one tile: where its keys lie, and where they go. kKeys: of a block; kColumns: elements of a key. kIsEither:
// which of the two is known at run time alone, so that one copy of the code serves both; their keys are alike.
template <auto C, bool kIsV, int kKeys, int kColumns, class Params, bool kIsEither = false>
struct KeyLoad {
  static_assert(!kIsEither || C.facts.head_dim == C.facts.head_dim_v);
  static constexpr bool kHasPools = tessera::has_pools(C.facts);
  static constexpr bool kHasPages = C.facts.kv_layout == KvLayout::paged || kHasPools;  // a row of a pool is a page
  static constexpr int kSpan = key_span_bytes(C.facts, C.swizzle, kColumns);
  static constexpr Swizzle kSwizzle = swizzle_of<C>(kColumns);
  static constexpr int kBytes = dtype_bytes(key_dtype(C.facts));  // of an element
  static constexpr int kPageSize = C.facts.page_size > 0 ? C.facts.page_size : 1;
  static constexpr int kBoxKeys = kHasPools ? 1 : box_keys(C.facts.kv_layout, C.facts.page_size, kKeys);
  // Whether a block is two boxes, of as many keys as it has of either page.
  static constexpr bool kHasParts = makes_blocks_of_parts<C>();
  static constexpr int kBoxes = kHasParts ? 2 : kKeys / kBoxKeys;
  static constexpr int kPagesOfLane = (kBoxes + 31) / 32;
  // Whether one elected thread starts a block's boxes, with addresses in uniform registers; several lanes take turns,
  // each with a vote. H100, times the dense kernel's time, by it and by lanes: one box 1.034 and 1.036 (1.09 by lane 0
  // without election), two 1.05 and 1.05, eight 1.21 and 1.06, since one thread waits for each page's number.
  static constexpr int kScales = key_scale_bytes(C.facts, kColumns);  // of a key
  static constexpr bool kHasFewBoxes =
      C.kv_copy == KvCopy::tma && !kHasPools && !is_padded(C.facts) && kScales == 0 && kBoxes <= 2;
  // Lanes that copy a key's 16-byte chunks of one panel, and keys that a warp copies at once.
  static constexpr int kChunks = kSpan / 16;
  static constexpr int kKeysAtOnce = 32 / kChunks;
  static constexpr int kPanels = key_row_bytes(C.facts, kColumns) / kSpan;
  // Where columns are padded the map has whole rows, not panels, and a box is one panel: zeros come behind the end.
  static constexpr bool kIsPadded = is_padded(C.facts);
  // Whether keys that are read once stand beside keys that the L2 should keep.
  static constexpr bool kHasPolicy = reads_some_keys_once<C>();
  static constexpr int kRowBytes = (kIsV ? C.facts.head_dim_v : C.facts.head_dim) * kBytes;

  const Params& p;
  const int batch;
  const int head;  // two pools, which have one: the query whose list comes first
  const int first_panel;
  const int end;                        // keys of the sequence that are valid; 0: the tile sees none
  const int origin;                     // ragged: where the sequence begins; two pools: places of the list
  const unsigned long long policy = 0;  // for the L2, if it has one
  const bool is_either_v = kIsV;        // of either
  const KnownBlock known{};             // where knows_first_block()

  __device__ __forceinline__ bool is_v() const { return kIsEither ? is_either_v : kIsV; }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ static int place_in_page(int key) {
    return C.facts.kv_layout == KvLayout::ragged ? key : static_cast<int>(static_cast<unsigned>(key) % kPageSize);
  }

  // What the table says of the box that begins at `key`, 0 of ragged keys; -1: no key of it is valid. Asked for ahead,
  // so nothing is computed with it here, which would wait for it.
  __device__ __forceinline__ int entry_of(int key) const {
    if (key >= end) return -1;
    if constexpr (C.facts.kv_layout == KvLayout::ragged) return 0;
    if constexpr (kHasPools) return key < origin ? listed_row(p, batch, head, key, origin, -1) : 0;
    const int entry = static_cast<int>(static_cast<unsigned>(key) / kPageSize);
    const int* const table = p.block_table + static_cast<long long>(batch) * p.max_pages;
    const bool is_known = knows_first_block<C>() && entry == known.entry && batch == known.sequence;
    return is_known ? known.page : static_cast<int>(ptx::ld_global_u32(table + entry));
  }
  // Where that box is: its page; -1: nowhere.
  __device__ __forceinline__ int page_of(int entry) const {
    if constexpr (C.facts.kv_layout != KvLayout::paged) return entry;
    return static_cast<unsigned>(entry) < static_cast<unsigned>(p.pages) ? entry : -1;
  }
  __device__ __forceinline__ bool has_memory() const {
    return (C.facts.kv_layout == KvLayout::ragged ? p.tokens_k : p.pages) > 0;
  }

  // What all lanes have alike, in a form that says so: of either the assembler cannot tell, and each lane's box would
  // move all its operands to uniform registers, eight in place of two.
  template <class T>
  __device__ __forceinline__ static T of_lane_0(T x) {
    return kIsEither ? __shfl_sync(kAllLanes, x, 0) : x;
  }
  __device__ __forceinline__ KeyLoad as_of_lane_0() const {
    const bool loads_v = of_lane_0(static_cast<int>(is_either_v)) != 0;
    return {p, batch, of_lane_0(head), first_panel, end, of_lane_0(origin), policy, loads_v, known};
  }

  // A TMA box.
  __device__ __forceinline__ void start_box(unsigned to, unsigned barrier, int column, int row, int panel,
                                            int outermost) const {
    start_box_of(is_v() ? p.v : p.k, to, barrier, column, row, panel, outermost);
  }
  __device__ __forceinline__ void start_box_of(const ptx::TensorMap& map, unsigned to, unsigned barrier, int column,
                                               int row, int panel, int outermost) const {
    if constexpr (kHasPolicy) {
      ptx::tma_load_5d_with_policy(to, map, barrier, policy, column, row, panel, head, outermost);
    } else {
      ptx::tma_load_5d(to, map, barrier, column, row, panel, head, outermost);
    }
  }

  __device__ __forceinline__ void load_box(unsigned to, unsigned barrier, int key, int page) const {
    const int row = C.facts.kv_layout == KvLayout::ragged ? (page < 0 ? p.tokens_k : origin + key) : place_in_page(key);
    const int outermost = C.facts.kv_layout == KvLayout::ragged ? 0 : page < 0 ? p.pages : page;
    if constexpr (kIsPadded) {
#pragma unroll 1
      for (int panel = 0; panel < kPanels; ++panel) {
        constexpr int kElements = kSpan / kBytes;
        start_box(to + panel * kKeys * kSpan, barrier, panel * kElements, row, 0, outermost);
      }
    } else if constexpr (kBoxes == 1) {
      start_box(to, barrier, 0, row, first_panel, outermost);
    } else {
#pragma unroll(kIsEither ? kPanels : 1)
      for (int panel = 0; panel < kPanels; ++panel) {
        start_box(to + panel * kKeys * kSpan, barrier, 0, row, first_panel + panel, outermost);
      }
    }
  }

  // Keys of a block before those of a box. The block of a tile that sees no key may begin anywhere: it is zeros, of as
  // many keys as every block.
  __device__ __forceinline__ static int keys_before(int first_key, int box) {
    return box * (kHasParts ? kPageSize - place_in_page(first_key) / kBoxKeys * kBoxKeys : kBoxKeys);
  }
  // The lane's part of a block, of as many keys as lie in its page.
  __device__ __forceinline__ void load_part(unsigned slot, unsigned barrier, int first_key, int page) const {
    const int before = keys_before(first_key, lane()), first = keys_before(first_key, 1);
    const int boxes = (lane() == 0 ? first : kKeys - first) / kBoxKeys;
    const auto* const* const parts = is_v() ? p.v_parts : p.k_parts;
    const ptx::TensorMap* map = is_v() ? &p.v : &p.k;
#pragma unroll
    for (int i = 2; i <= kPageSize / kBoxKeys; ++i) map = boxes == i ? parts[i - 2] : map;
    const int row = place_in_page(first_key + before);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      start_box_of(*map, slot + before * kSpan + panel * kKeys * kSpan, barrier, 0, row, first_panel + panel,
                   page < 0 ? p.pages : page);
  }

  // Where the pool that a key lies in begins, and how many elements from there the key does, if it has `bytes`.
  __device__ __forceinline__ const void* pool_of(int key) const {
    if constexpr (kHasPools)
      if (key >= origin) return is_v() ? p.swa_v : p.swa_k;
    return is_v() ? p.v_keys : p.k_keys;
  }
  __device__ __forceinline__ long long place_of(int key, int page, int bytes) const {
    if constexpr (kHasPools) {
      if (bytes == 0) return 0;
      if (key < origin) return page * (is_v() ? p.v_stride_seqlen : p.k_stride_seqlen);
      return batch * (is_v() ? p.swa_v_stride_batch : p.swa_k_stride_batch) +
             (key - origin) * (is_v() ? p.swa_v_stride_seqlen : p.swa_k_stride_seqlen);
    } else {
      const long long to_page = bytes != 0 ? page * (is_v() ? p.v_stride_page : p.k_stride_page) : 0;
      const long long to_key =
          bytes != 0 ? (origin + place_in_page(key)) * (is_v() ? p.v_stride_seqlen : p.k_stride_seqlen) : 0;
      return to_page + to_key + head * (is_v() ? p.v_stride_head : p.k_stride_head);
    }
  }

  // One chunk of each panel of a key. `slot`: of the block; `i`: the key's place in it.
  __device__ __forceinline__ void copy_key(unsigned slot, int i, int key, int page) const {
    const int bytes = page >= 0 && key < end ? 16 : 0;
    const long long elements = place_of(key, page, bytes);
    const int chunk = lane() % kChunks * 16;
    const char* const from = static_cast<const char*>(pool_of(key)) + elements * kBytes + first_panel * kSpan + chunk;
    const unsigned to = swizzle_address(kSwizzle, slot + i * kSpan + chunk);
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel)
      ptx::cp_async_16(to + panel * kKeys * kSpan, from + panel * kSpan,
                       kIsPadded && panel * kSpan + chunk >= kRowBytes ? 0 : bytes);
  }

  // Rows of the block from `first` on become zeros.
  __device__ __forceinline__ void clear_rows(unsigned slot, int first) const {
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel) {
      const unsigned of_panel = slot + panel * kKeys * kSpan;
#pragma unroll 1
      for (int byte = first * kSpan + 16 * lane(); byte < kKeys * kSpan; byte += 16 * 32)
        ptx::st_shared_v4(of_panel + byte, {0, 0, 0, 0});
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
  }

  // Scales of a block from key `first` on, up to key `end_key`, become zeros; who calls orders that before others'
  // turn.
  __device__ __forceinline__ static void clear_scales(unsigned scales, int first, int end_key, int thread,
                                                      int threads) {
    if constexpr (kScales % 4 == 0) {
#pragma unroll 1
      for (int byte = first * kScales + 4 * thread; byte < end_key * kScales; byte += 4 * threads)
        ptx::st_shared_u32(scales + byte, 0);
    } else if constexpr (kScales > 0) {
#pragma unroll 1
      for (int key = first + thread; key < end_key; key += threads) ptx::st_shared_u16(scales + key * kScales, 0);
    }
  }
  // Before lane 0 announces the block's copies: zeros, by itself, for boxes of no page. How many bytes the others'
  // scales have.
  __device__ __forceinline__ static int prepare_scales(unsigned scales, int page) {
    const unsigned nowhere = __ballot_sync(kAllLanes, lane() < kBoxes && page < 0);
    if (lane() == 0 && nowhere != 0) {
#pragma unroll 1
      for (int box = 0; box < kBoxes; ++box)
        if ((nowhere >> box & 1) != 0) clear_scales(scales, box * kBoxKeys, (box + 1) * kBoxKeys, 0, 1);
      ptx::fence_proxy_async_shared();
    }
    return (kBoxes - __popc(nowhere)) * kBoxKeys * kScales;
  }
  // Of a box that begins at `key`.
  __device__ __forceinline__ void load_scales(unsigned to, unsigned barrier, int key, int page) const {
    if (page < 0) return;
    const char* const pool = static_cast<const char*>(is_v() ? p.v_scale : p.k_scale);
    const long long to_page = page * (is_v() ? p.v_scale_stride_page : p.k_scale_stride_page);
    const long long to_head = head * (is_v() ? p.v_scale_stride_head : p.k_scale_stride_head);
    ptx::bulk_load(to, pool + to_page + to_head + place_in_page(key) * kScales, kBoxKeys * kScales, barrier);
  }

  // Whether rows of a block of V must be cleared: those behind the sequence's end in the box where it ends.
  __device__ __forceinline__ bool has_tail(int first_key) const {
    return is_v() && kBoxKeys > 1 && end > first_key && end < first_key + kKeys &&
           (kHasParts ? place_in_page(end) : (end - first_key) % kBoxKeys) != 0;
  }

  // Those of a block from `first` on, and scales of theirs; then its slot is as if loaded.
  __device__ __forceinline__ void clear_and_arrive(unsigned slot, unsigned full, int first, unsigned scales) const {
    clear_scales(scales, first, kKeys, lane(), 32);
    clear_rows(slot, first);
    if (lane() == 0) ptx::mbarrier_arrive(full);
    __syncwarp();
  }

  // Starts the boxes of a block, once its slot is empty. They complete `full`, with one arrival; or `tail`, where the
  // block has one: finish_tail() must follow.
  // `scales`: where those of the block go, if keys have them.
  __device__ __forceinline__ void load_boxes(unsigned slot, unsigned full, unsigned tail, int first_key, int entry,
                                             unsigned scales = 0) const {
    const int page = page_of(entry);
    if (!kIsEither && !has_memory()) {
      clear_scales(scales, 0, kKeys, lane(), 32);
      clear_rows(slot, 0);
      if (lane() == 0) ptx::mbarrier_arrive(has_tail(first_key) ? tail : full);
      __syncwarp();
      return;
    }
    const unsigned barrier = has_tail(first_key) ? tail : full;
    int bytes = kKeys * kPanels * kSpan;
    if constexpr (kScales > 0) bytes += prepare_scales(scales, page);
    if (lane() == 0) ptx::mbarrier_arrive_expect_tx(barrier, bytes);
    __syncwarp();
    const KeyLoad load = as_of_lane_0();
    const unsigned completes = of_lane_0(barrier);
    const int key = of_lane_0(first_key) + lane() * kBoxKeys;
    if constexpr (kHasParts) {
      if (lane() < kBoxes) load.load_part(slot, completes, first_key, page);
    } else if (lane() < kBoxes) {
      load.load_box(slot + lane() * kBoxKeys * kSpan, completes, key, page);
    }
    if constexpr (kScales > 0) {
      if (lane() < kBoxes)
        load_scales(scales + lane() * kBoxKeys * kScales, barrier, first_key + lane() * kBoxKeys, page);
    }
    __syncwarp();
  }
  // Parity: of `tail`, which completes once for each block that has one.
  __device__ __forceinline__ void finish_tail(unsigned slot, unsigned full, unsigned tail, unsigned parity,
                                              int first_key, unsigned scales = 0) const {
    ptx::mbarrier_wait_parity(tail, parity);
    clear_and_arrive(slot, full, end - first_key, scales);
  }

  __device__ __forceinline__ void find_entries(int first_key, int (&entries)[kPagesOfLane]) const {
#pragma unroll
    for (int i = 0; i < kPagesOfLane; ++i) {
      const int box = 32 * i + lane();
      entries[i] = box < kBoxes ? entry_of(first_key + keys_before(first_key, box)) : -1;
    }
  }

  // A block key by key. Who knows when it is complete, and fences, is the caller's matter.
  __device__ __forceinline__ void copy_keys(unsigned slot, int first_key, const int (&entries)[kPagesOfLane]) const {
#pragma unroll
    for (int group = 0; group < kPagesOfLane; ++group) {
      constexpr int kGroup = 32 * kBoxKeys;
      const int begin = group * kGroup;
      const int group_end = begin + kGroup < kKeys ? begin + kGroup : kKeys;
#pragma unroll 1
      for (int first = begin; first < group_end; first += kKeysAtOnce) {
        const int i = first + lane() / kChunks;
        const int page = page_of(__shfl_sync(kAllLanes, entries[group], i / kBoxKeys % 32));
        if (i < group_end) copy_key(slot, i, first_key + i, page);
      }
    }
  }
};

}  // namespace tessera::attention
