// The correction warpgroup: multiplies the rows of O whose reference has moved, and takes the finished O out of Tensor
// Memory: times its last factor, through the Q slot, to the warp that stores it.
//
// Its arrival at p_full says that O may be added to: rescaled if need be, or, in a Q tile's first step, read to the
// last value of the tile before.
#pragma once

#include "fmha_tcgen05/descales.cuh"
#include "fmha_tcgen05/key_blocks.cuh"
#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "fmha_tcgen05/softmax.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

template <Config C>
struct Correction {
  static constexpr SmemLayout kLayout = smem_layout(C);
  static constexpr Barriers kBarriers = barriers(C);
  static constexpr int kChunk = o_columns(C) / o_passes(C) % 32 == 0   ? 32
                                : o_columns(C) / o_passes(C) % 16 == 0 ? 16
                                                                       : 8;

  const Params& p;
  const unsigned smem;
  const unsigned tmem;  // of this warp's lanes
  const int lane;       // of Tensor Memory
  BufferPosition<C> position{};
  unsigned o_parities = 0;  // bit t: of the next step's O += P V of Q tile t

  __device__ __forceinline__ unsigned o_address(int q_tile) const {
    return tmem + o_column(C, 0) + q_tile * o_columns(C);
  }
  // Until the last step's product is complete.
  __device__ __forceinline__ void wait_output(int q_tile) const {
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.o_done>(smem, q_tile), (o_parities >> q_tile & 1) ^ 1);
    ptx::tcgen05_fence_after_thread_sync();
  }

  __device__ __forceinline__ void rescale(int q_tile, float factor) const {
#pragma unroll 1
    for (int column = 0; column < o_columns(C); column += kChunk) {
      unsigned bits[kChunk];
      ptx::tcgen05_ld_32x32b(bits, o_address(q_tile) + column);
      ptx::tcgen05_wait_ld(bits);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) bits[i] = __float_as_uint(__uint_as_float(bits[i]) * factor);
      ptx::tcgen05_st_32x32b(o_address(q_tile) + column, bits);
    }
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();
  }

  __device__ __forceinline__ void step(int q_tile, bool is_first) {
    const int slot = position.slot(q_tile);
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.factors_full>(smem, slot), position.parity(slot));
    const float factor = ptx::ld_shared_f32(smem + kLayout.factors.offset + 4 * (slot * 128 + lane));
    if (!is_first) {
      // Also where nothing moves: then every phase is waited for, and none can be missed.
      wait_output(q_tile);
      if (__any_sync(0xffffffff, factor != 1.0f)) rescale(q_tile, factor);
    }
    arrive_at_issuer<C>(barrier_at<kBarriers.p_full>(smem, slot));
    position.advance(slot);
    o_parities ^= 1u << q_tile;
  }

  // 16 bytes of a row of O, from value `i` on.
  __device__ __forceinline__ void make_unit(const unsigned (&bits)[kChunk], int i, float factor,
                                            unsigned (&unit)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (o_element_bytes(C.facts) == 4) {
        unit[j] = has_descales(C.facts) ? __float_as_uint(__uint_as_float(bits[i + j]) * factor) : bits[i + j];
      } else {
        unit[j] = ptx::cvt_pack<o_dtype(C.facts)>(__uint_as_float(bits[i + 2 * j]) * factor,
                                                  __uint_as_float(bits[i + 2 * j + 1]) * factor);
      }
    }
  }

  // Of values that have one of their own.
  __device__ __forceinline__ float descale_of_values(const TileIndex& tile) const {
    if constexpr (is_latent(C))
      return descale_of<C>(p, p.k_descale, p.k_descale_stride_batch, p.k_descale_stride_head, tile);
    return descale_of<C>(p, p.v_descale, p.v_descale_stride_batch, p.v_descale_stride_head, tile);
  }
  // What a finished row of O is multiplied with.
  __device__ __forceinline__ float last_factor(const TileIndex& tile, int q_tile) const {
    const float factor = ptx::ld_shared_f32(smem + kLayout.last.offset + 4 * (q_tile * 128 + lane));
    if constexpr (has_descales(C.facts)) return factor * descale_of_values(tile);
    return factor;
  }

  // Columns [column, column + kChunk) of a row of O to the Q slot, where panels of one pass lie side by side. `from`:
  // their place in the pass.
  __device__ __forceinline__ void stage(const unsigned (&bits)[kChunk], float factor, unsigned slot, int from) const {
    constexpr int kSpan = swizzle_span_bytes(C.swizzle);
    constexpr int kBytes = o_element_bytes(C.facts);
    constexpr int kOfUnit = 16 / kBytes;  // values of 16 bytes
    const unsigned row = swizzle_address(C.swizzle, slot + row_of_lane(C, lane) * kSpan);
#pragma unroll
    for (int i = 0; i < kChunk; i += kOfUnit) {
      const int byte = (from + i) * kBytes;
      const unsigned address = (row ^ (byte % kSpan)) + byte / kSpan * rows_per_cta(C) * kSpan;
      unsigned unit[4];
      make_unit(bits, i, factor, unit);
      ptx::st_shared_v4(address, {unit[0], unit[1], unit[2], unit[3]});
    }
  }

  // The column of O that a lane has in a column of Tensor Memory: upper lanes of a fold have the second half of a
  // product's columns.
  __device__ __forceinline__ int place_of_column(int column) const {
    constexpr int kOfProduct = pv_columns(C) / folds(C);  // of a lane in a product
    if constexpr (!is_folded(C)) return column;
    if constexpr (is_latent(C)) return part_of_lane(C, lane) * o_columns(C) + column;
    return column / kOfProduct * pv_columns(C) + part_of_lane(C, lane) * kOfProduct + column % kOfProduct;
  }

  // O of a finished part of a Q tile's keys, un-normalised, straight to global memory: a thread has a row's columns.
  __device__ __forceinline__ void store_part(const TileIndex& tile, int q_tile) const {
    wait_output(q_tile);
    const int row = first_row<C>(tile, q_tile) + row_of_lane(C, lane);
    const int query = row / padded_heads(C);
    const bool is_row = is_used_row<C>(p, tile, row, row_of_lane(C, lane));
    const int head = tile.head * C.pack_gqa + head_of_row<C>(row);
    [[maybe_unused]] float factor = 1.0f;
    if constexpr (has_descales(C.facts)) factor = descale_of_values(tile);
    float* const out =
        p.partial_o + (tile.split * num_rows<C>(p) + row_index<C>(p, tile, head, query)) * C.facts.head_dim_v;
#pragma unroll 1
    for (int column = 0; column < o_columns(C); column += kChunk) {
      unsigned bits[kChunk];
      ptx::tcgen05_ld_32x32b(bits, o_address(q_tile) + column);
      ptx::tcgen05_wait_ld(bits);
      const int to = place_of_column(column);
      if (!is_row) continue;
      if constexpr (has_descales(C.facts)) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) bits[i] = __float_as_uint(__uint_as_float(bits[i]) * factor);
      }
#pragma unroll
      for (int i = 0; i < kChunk; i += 4)
        if (!is_padded(C.facts) || to + i < C.facts.head_dim_v)
          ptx::st_global_v4(out + to + i, {bits[i], bits[i + 1], bits[i + 2], bits[i + 3]});
    }
    ptx::tcgen05_fence_before_thread_sync();
    arrive_of_warp(barrier_at<kBarriers.o_staged>(smem, q_tile));
  }

  // O of a finished Q tile. A pass is one box of TMA: fp32 needs two, of which the second waits until the first has
  // left.
  __device__ __forceinline__ void finish(const TileIndex& tile, int q_tile, unsigned& o_read_parity) const {
    constexpr int kColumns = o_columns(C) / o_passes(C);  // of a lane in a pass
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.last_full>(smem, q_tile), o_read_parity >> 1 & 1);
    const float factor = last_factor(tile, q_tile);
    wait_output(q_tile);
    const unsigned slot = smem + kLayout.q.offset + q_tile * q_slot_bytes(C);
#pragma unroll 1
    for (int pass = 0; pass < o_passes(C); ++pass) {
      if (pass > 0) {
        ptx::mbarrier_wait_parity(barrier_at<kBarriers.o_read>(smem), o_read_parity & 1);
        o_read_parity ^= 1;
      }
#pragma unroll 1
      for (int i = 0; i < kColumns; i += kChunk) {
        const int column = pass * kColumns + i;  // in Tensor Memory
        unsigned bits[kChunk];
        ptx::tcgen05_ld_32x32b(bits, o_address(q_tile) + column);
        ptx::tcgen05_wait_ld(bits);
        const int from = is_folded(C) ? place_of_column(column) - pass * o_pass_columns(C) : i;
        stage(bits, factor, slot, from);
      }
      ptx::fence_proxy_async_shared();
      if (pass == o_passes(C) - 1) ptx::tcgen05_fence_before_thread_sync();
      arrive_of_warp(barrier_at<kBarriers.o_staged>(smem, q_tile));
    }
  }

  // Ragged: a Q tile of which some rows belong to the next sequence. A thread has a row's columns; the storing thread
  // only hands the slot back.
  __device__ __forceinline__ void finish_rows(const TileIndex& tile, int q_tile, unsigned& o_read_parity) const {
    constexpr int kBytes = o_element_bytes(C.facts);
    constexpr int kOfUnit = 16 / kBytes;  // values of 16 bytes
    ptx::mbarrier_wait_parity(barrier_at<kBarriers.last_full>(smem, q_tile), o_read_parity >> 1 & 1);
    const float factor = last_factor(tile, q_tile);
    wait_output(q_tile);
    const int row = first_row<C>(tile, q_tile) + row_of_lane(C, lane);
    const bool is_row = is_used_row<C>(p, tile, row, row_of_lane(C, lane));
    const int head = tile.head * C.pack_gqa + head_of_row<C>(row);
    const int query = first_query<C>(p, tile.batch) + row / padded_heads(C);
    char* const out = static_cast<char*>(p.o_rows) + kBytes * (head * p.o_stride_head + query * p.o_stride_seqlen);
#pragma unroll 1
    for (int column = 0; column < o_columns(C); column += kChunk) {
      unsigned bits[kChunk];
      ptx::tcgen05_ld_32x32b(bits, o_address(q_tile) + column);
      ptx::tcgen05_wait_ld(bits);
      if (!is_row) continue;
      const int to = place_of_column(column);
#pragma unroll
      for (int i = 0; i < kChunk; i += kOfUnit) {
        if (is_padded(C.facts) && to + i >= C.facts.head_dim_v) continue;
        unsigned unit[4];
        make_unit(bits, i, factor, unit);
        ptx::st_global_v4(out + kBytes * (to + i), {unit[0], unit[1], unit[2], unit[3]});
      }
    }
    ptx::tcgen05_fence_before_thread_sync();
#pragma unroll 1
    for (int pass = 0; pass < o_passes(C); ++pass) {
      if (pass > 0) {
        ptx::mbarrier_wait_parity(barrier_at<kBarriers.o_read>(smem), o_read_parity & 1);
        o_read_parity ^= 1;
      }
      arrive_of_warp(barrier_at<kBarriers.o_staged>(smem, q_tile));
    }
  }

  __device__ __forceinline__ void run() {
    const Schedule<C> schedule{p};
    unsigned o_read_parity = 0;  // bit 0: of o_read; bit 1: of last_full
#pragma unroll 1
    for (int round = 0; schedule.has(round); ++round) {
      const TileIndex tile = schedule.at(round);
      const KeyBlocks<C> keys(p, tile);
      const Blocks all = keys.of_tile();
      const Blocks first = keys.of_q_tile(0);
      const Blocks second = q_tiles(C) == 2 ? keys.of_q_tile(1) : first;
#pragma unroll 1
      for (int block = all.end - 1; block >= all.begin; --block) {
#pragma unroll 1
        for (int t = 0; t < q_tiles(C); ++t) {
          const Blocks own = t == 0 ? first : second;
          if (own.has(block)) step(t, block + 1 == own.end);
        }
      }
#pragma unroll 1
      for (int t = 0; t < q_tiles(C); ++t) {
        if constexpr (is_split(C)) {
          store_part(tile, t);
        } else if (fills_box<C>(p, tile, t)) {
          finish(tile, t, o_read_parity);
        } else {
          finish_rows(tile, t, o_read_parity);
        }
      }
      o_read_parity ^= 2;
    }
  }
};

// The storing thread. A Q slot goes back to its loader when TMA has read the last of O.
template <Config C>
__device__ __forceinline__ void store_o(const Params& p, unsigned smem) {
  constexpr Barriers kBarriers = barriers(C);
  const Schedule<C> schedule{p};
#pragma unroll 1
  for (int round = 0; schedule.has(round); ++round) {
    const TileIndex tile = schedule.at(round);
#pragma unroll 1
    for (int i = 0; i < o_passes(C) * q_tiles(C); ++i) {
      const int t = i / o_passes(C);
      const int pass = i % o_passes(C);
      // Each pass is a phase, and of several they are two or four.
      const unsigned parity = o_passes(C) == 1 ? static_cast<unsigned>(round) & 1
                                               : static_cast<unsigned>(o_passes(C) == 2 ? pass : pass % 2);
      ptx::mbarrier_wait_parity(barrier_at<kBarriers.o_staged>(smem, t), parity);
      if (!is_split(C) && fills_box<C>(p, tile, t)) {
        const unsigned slot = smem + smem_layout(C).q.offset + t * q_slot_bytes(C);
        const int row = first_row<C>(tile, t);
        const int first_panel = pass * (o_pass_columns(C) / o_span_elements(C));
        if constexpr (is_packed(C)) {
#pragma unroll 1
          for (int panel = 0; panel < o_pass_columns(C) / o_span_elements(C); ++panel)
            ptx::tma_store_5d(p.o, slot + panel * rows_per_cta(C) * swizzle_span_bytes(C.swizzle),
                              (first_panel + panel) * o_span_elements(C), row % padded_heads(C),
                              first_query<C>(p, tile.batch) + row / padded_heads(C), tile.head,
                              sequence_of_map<C>(tile));
        } else if constexpr (is_padded(C.facts)) {
#pragma unroll 1
          for (int panel = 0; panel < o_pass_columns(C) / o_span_elements(C); ++panel)
            ptx::tma_store_5d(p.o, slot + panel * rows_per_cta(C) * swizzle_span_bytes(C.swizzle),
                              (first_panel + panel) * o_span_elements(C), first_query<C>(p, tile.batch) + row, 0,
                              tile.head, sequence_of_map<C>(tile));
        } else {
          ptx::tma_store_5d(p.o, slot, 0, first_query<C>(p, tile.batch) + row, first_panel, tile.head,
                            sequence_of_map<C>(tile));
        }
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read<0>();
      }
      const bool is_last = pass == o_passes(C) - 1;
      ptx::mbarrier_arrive(smem + (is_last ? barrier_at<kBarriers.q_empty>(0, t) : barrier_at<kBarriers.o_read>(0)));
    }
  }
  // Stores must have left before the CTA's shared memory goes.
  ptx::cp_async_bulk_wait_group<0>();
}

}  // namespace tessera::fmha_tcgen05
