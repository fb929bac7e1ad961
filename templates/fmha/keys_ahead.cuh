// Keys on their way to the L2 while the kernel before still runs.
//
// A launch that may begin early waits for the end of the one before it, whatever that one writes: lengths, table, keys.
// But memory need not idle meanwhile. The producers look up what the CTA will load first, and one of them, which has
// nothing else to do, asks the L2 for it. That is a hint: what the kernel before changes after the look is looked up
// again behind the wait; a line that is in the L2 already takes a write as any other does; and a number from memory
// that is none yet is clamped like every other.
//
// The first block's boxes start as soon as the wait is over, by what was found before. Its warps look then whether that
// has stayed as it was, and load the block once more if not: paged_load.cuh.
//
// Few queries only, whose time is that of their keys.
#pragma once

#include "attention/placed_keys.cuh"
#include "attention/visible_keys.cuh"
#include "fmha/dealer.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "ptx/global_written.cuh"
#include "ptx/tma_prefetch.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Keys of one tile, or of its part: blocks [begin, end) of its sequence's, which has so many keys.
struct AheadPart {
  int sequence = 0;
  int head = 0;  // of K and V
  int begin = 0;
  int end = 0;
  int keys = 0;
};

// What a CTA will load, from its first tile on, as far as it goes by what is in memory before the wait. All lanes of a
// warp.
template <Config C>
struct KeysAhead {
  static constexpr unsigned kPageSize = static_cast<unsigned>(C.facts.page_size);
  static constexpr int kBoxKeys = box_keys(C);
  static constexpr int kBoxes = C.tile_n / kBoxKeys;  // of a block of K, or of V
  // A box of a whole block has all panels.
  static constexpr int kPanels =
      kBoxes == 1 ? 1 : key_row_bytes(C.facts, qk_columns(C)) / key_span_bytes(C.facts, C.swizzle, qk_columns(C));
  static constexpr int kStarts = 2 * kBoxes * kPanels;  // of a block: K and V

  const Params& p;
  AheadPart part{};  // what is left of the tile at hand
  int tile = 0;      // dealt keys: its number among those of its sequence and head
  int in_range = 0;  // likewise: blocks behind it
  int head = 0;      // likewise: as tiles count heads
  int length = 0;    // likewise: of the lane's sequence, where each lane has one

  __device__ __forceinline__ explicit KeysAhead(const Params& params) : p(params) {
    if constexpr (is_dealt(C)) {
      begin_range();
    } else {
      begin_part();
    }
  }

  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ int keys_of(int sequence) const {
    return min(max(ptx::ld_global_s32_relaxed(p.seqused_k + sequence), 0), p.seqlen_k);
  }
  // Of a sequence that all lanes name.
  __device__ __forceinline__ int known_keys_of(int sequence) const {
    return p.batch <= 32 ? __shfl_sync(0xffffffff, length, sequence) : keys_of(sequence);
  }
  __device__ __forceinline__ static int blocks_of(int keys) { return max((keys + C.tile_n - 1) / C.tile_n, 1); }

  __device__ __forceinline__ int key_head(int head) const {
    return is_packed(C) ? head : quotient(head, quotient(p.heads_q, p.heads_kv));
  }

  // Parts by num_splits.
  __device__ __forceinline__ void begin_part() {
    const Schedule<C> schedule(p);
    if (!schedule.has(0)) return;
    const TileIndex first = schedule.at(0);
    const int heads = tile_heads<C>(p);
    part.sequence = quotient(first.head, heads);
    part.head = key_head(first.head - part.sequence * heads);
    part.keys = keys_of(part.sequence);
    const attention::Blocks blocks = attention::part_of({0, blocks_of(part.keys)}, first.split, p.num_splits);
    part.begin = blocks.begin;
    part.end = blocks.end;
  }

  // Dealt keys: the CTA's range, as dealer.cuh cuts it, where tiles see all keys of their sequence.
  __device__ __forceinline__ void begin_range() {
    const int each = tiles_of_head<C>(p, 0);  // tiles of a sequence and head
    const int sequences_of_lane = (p.batch + 31) / 32;
    int of_lane = 0;
#pragma unroll 1
    for (int i = 0; i < sequences_of_lane; ++i) {
      const int sequence = lane() * sequences_of_lane + i;
      if (sequence >= p.batch) break;
      length = keys_of(sequence);
      of_lane += blocks_of(length) * each;
    }
    int end = of_lane;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const int before = __shfl_up_sync(0xffffffff, end, i);
      if (lane() >= i) end += before;
    }
    const int of_head = __shfl_sync(0xffffffff, end, 31);
    const int cta = static_cast<int>(blockIdx.x), ctas = static_cast<int>(gridDim.x);
    const int begin = cut_of_heads(of_head, tile_heads<C>(p), cta, ctas);
    in_range = cut_of_heads(of_head, tile_heads<C>(p), cta + 1, ctas) - begin;
    if (in_range == 0) return;
    head = quotient(begin, of_head);
    int block = begin - head * of_head;
    const int owner = __popc(__ballot_sync(0xffffffff, end <= block));
    part.sequence = owner * sequences_of_lane;
    part.keys = known_keys_of(part.sequence);
    block -= __shfl_sync(0xffffffff, end - of_lane, owner);
    while (part.sequence + 1 < p.batch && block >= blocks_of(part.keys) * each) {
      block -= blocks_of(part.keys) * each;
      part.keys = known_keys_of(++part.sequence);
    }
    tile = quotient(block, blocks_of(part.keys));
    take(block - tile * blocks_of(part.keys));
  }
  // The tile from a block of its on.
  __device__ __forceinline__ void take(int block) {
    part.head = key_head(head);
    part.begin = block;
    part.end = min(blocks_of(part.keys), block + in_range);
    in_range -= part.end - block;
  }
  // The next tile.
  __device__ __forceinline__ void go_on() {
    if (in_range == 0) return;
    if (++tile == tiles_of_head<C>(p, 0)) {
      tile = 0;
      if (++part.sequence >= p.batch) {
        part.sequence = 0;
        ++head;
      }
      part.keys = known_keys_of(part.sequence);
    }
    take(0);
  }

  __device__ __forceinline__ int page_of(int key) const {
    const int entry = static_cast<int>(static_cast<unsigned>(key) / kPageSize);
    const int page =
        ptx::ld_global_s32_relaxed(p.block_table + static_cast<long long>(part.sequence) * p.max_pages + entry);
    return static_cast<unsigned>(page) < static_cast<unsigned>(p.pages) ? page : -1;
  }

  // The L2 is asked for so many blocks, from a tile's end on, as they are loaded.
  __device__ __forceinline__ void ask(int blocks) {
#pragma unroll 1
    while (blocks > 0 && part.begin < part.end) {
      const int count = min(part.end - part.begin, blocks);
#pragma unroll 1
      for (int i = lane(); i < count * kStarts; i += 32) {
        const int start = i % kStarts;
        const int panel = start / 2 % kPanels;
        const int key = (part.end - 1 - i / kStarts) * C.tile_n + start / (2 * kPanels) * kBoxKeys;
        const int page = key < part.keys ? page_of(key) : -1;
        if (page < 0) continue;
        const int row = static_cast<int>(static_cast<unsigned>(key) % kPageSize);
        if (start % 2 == 0) {
          ptx::tma_prefetch_5d(p.k, 0, row, panel, part.head, page);
        } else {
          ptx::tma_prefetch_5d(p.v, 0, row, panel, part.head, page);
        }
      }
      blocks -= count;
      part.end -= count;
      if constexpr (is_dealt(C))
        if (part.begin == part.end) go_on();
    }
  }

  // The first block, and what the lane loads of it.
  __device__ __forceinline__ attention::KnownBlock first_block() const {
    attention::KnownBlock known;
    if (part.begin >= part.end) return known;
    known.sequence = part.sequence;
    known.head = part.head;
    known.first_key = (part.end - 1) * C.tile_n;
    const int key = known.first_key + lane() * kBoxKeys;
    if (lane() >= kBoxes || key >= part.keys) return known;
    known.entry = static_cast<int>(static_cast<unsigned>(key) / kPageSize);
    known.guess = page_of(key);
    return known;
  }
};

}  // namespace tessera::fmha
