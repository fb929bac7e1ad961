// Keys on their way to the L2 while the kernel before still runs.
//
// A launch that may begin early waits for the end of the one before it, whatever that one writes: lengths, table, keys.
// But memory need not idle meanwhile. A warp that has nothing else to do looks up what the CTA will load first, and
// asks the L2 for it. That is a hint: what the kernel before changes after the look is looked up again behind the wait,
// by those who load; a line that is in the L2 already takes a write as any other does; and a number from memory that is
// none yet is clamped like every other.
//
// Few queries only, whose time is that of their keys.
#pragma once

#include "attention/visible_keys.cuh"
#include "fmha/dealer.cuh"
#include "fmha/params.cuh"
#include "fmha/schedule.cuh"
#include "ptx/global_written.cuh"
#include "ptx/tma_prefetch.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Keys of one tile, or of its part: blocks [begin, end) of its sequence's.
struct AheadPart {
  int sequence;
  int head;
  int begin;
  int end;
};

// All lanes of a warp, before the wait.
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
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int left = kBlocksAhead;  // that may still be asked for

  __device__ __forceinline__ int keys_of(int sequence) const {
    return min(max(ptx::ld_global_s32_relaxed(p.seqused_k + sequence), 0), p.seqlen_k);
  }
  __device__ __forceinline__ static int blocks_of(int keys) { return max((keys + C.tile_n - 1) / C.tile_n, 1); }

  // From its end on, as they are loaded.
  __device__ __forceinline__ void ask(const AheadPart& part, int keys) {
    const int count = min(part.end - part.begin, left);
    left -= count;
#pragma unroll 1
    for (int i = lane; i < count * kStarts; i += 32) {
      const int block = part.end - 1 - i / kStarts;
      const int start = i % kStarts;
      const int box = start / (2 * kPanels);
      const int panel = start / 2 % kPanels;
      const int key = block * C.tile_n + box * kBoxKeys;
      if (key >= keys) continue;
      const int entry = static_cast<int>(static_cast<unsigned>(key) / kPageSize);
      const int* const table = p.block_table + static_cast<long long>(part.sequence) * p.max_pages;
      const int page = ptx::ld_global_s32_relaxed(table + entry);
      if (static_cast<unsigned>(page) >= static_cast<unsigned>(p.pages)) continue;
      const int row = static_cast<int>(static_cast<unsigned>(key) % kPageSize);
      if (start % 2 == 0) {
        ptx::tma_prefetch_5d(p.k, 0, row, panel, part.head, page);
      } else {
        ptx::tma_prefetch_5d(p.v, 0, row, panel, part.head, page);
      }
    }
  }

  // Parts by num_splits.
  __device__ __forceinline__ void ask_for_split() {
    const Schedule<C> schedule(p);
    if (!schedule.has(0)) return;
    const TileIndex tile = schedule.at(0);
    const int heads = tile_heads<C>(p);
    const int sequence = quotient(tile.head, heads);
    const int keys = keys_of(sequence);
    const attention::Blocks part = attention::part_of({0, blocks_of(keys)}, tile.split, p.num_splits);
    ask({sequence, tile.head - sequence * heads, part.begin, part.end}, keys);
  }

  // Dealt keys: the CTA's range, as dealer.cuh cuts it, where tiles see all keys of their sequence.
  __device__ __forceinline__ void ask_for_range() {
    const int tiles = tiles_of_head<C>(p, 0);
    const int each = tiles * tile_heads<C>(p);  // tiles of a sequence
    const int sequences_of_lane = (p.batch + 31) / 32;
    int of_lane = 0;
#pragma unroll 1
    for (int i = 0; i < sequences_of_lane; ++i) {
      const int sequence = lane * sequences_of_lane + i;
      if (sequence < p.batch) of_lane += blocks_of(keys_of(sequence)) * each;
    }
    int end = of_lane;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const int before = __shfl_up_sync(0xffffffff, end, i);
      if (lane >= i) end += before;
    }
    const int total = __shfl_sync(0xffffffff, end, 31);
    const int ctas = static_cast<int>(gridDim.x), cta = static_cast<int>(blockIdx.x);
    const int of_cta = quotient(total, ctas), more = total - of_cta * ctas;
    const int begin = of_cta * cta + min(cta, more);
    int in_range = of_cta + (cta < more ? 1 : 0);
    if (in_range == 0) return;
    const int owner = __popc(__ballot_sync(0xffffffff, end <= begin));
    int sequence = owner * sequences_of_lane;
    int block = begin - __shfl_sync(0xffffffff, end - of_lane, owner);
    int keys = keys_of(sequence);
    while (sequence + 1 < p.batch && block >= blocks_of(keys) * each) {
      block -= blocks_of(keys) * each;
      keys = keys_of(++sequence);
    }
    int tile = quotient(block, blocks_of(keys));
    block -= tile * blocks_of(keys);
#pragma unroll 1
    while (in_range > 0 && left > 0) {
      const int part_end = min(blocks_of(keys), block + in_range);
      ask({sequence, quotient(tile, tiles), block, part_end}, keys);
      in_range -= part_end - block;
      block = 0;
      if (++tile < each) continue;
      tile = 0;
      if (++sequence >= p.batch) return;
      keys = keys_of(sequence);
    }
  }
};

template <Config C>
__device__ __forceinline__ void ask_for_keys(const Params& p) {
  KeysAhead<C> ahead{p};
  if constexpr (is_dealt(C)) {
    ahead.ask_for_range();
  } else {
    ahead.ask_for_split();
  }
}

}  // namespace tessera::fmha
