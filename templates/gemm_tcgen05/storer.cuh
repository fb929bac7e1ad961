// The storing warps: sums from Tensor Memory to the epilogue, tile by tile; with a split K by way of the shared memory
// of all CTAs of the tile.
//
// An accumulator is free for the next tile as soon as its last columns are in registers; that is before they are
// stored, so that the products of one tile run while the other leaves; with one accumulator a thread takes its whole
// row before it stores anything. Of two that overlap the columns that both have leave first, and the next tile's
// products wait for those alone. In a pair both CTAs' warps say so to the even CTA, which issues the products.
#pragma once

#include "common/ring.cuh"
#include "gemm_tcgen05/epilogue.cuh"
#include "gemm_tcgen05/params.cuh"
#include "gemm_tcgen05/quantizer.cuh"
#include "gemm_tcgen05/schedule.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mbarrier_cluster.cuh"
#include "ptx/tcgen05.cuh"
#include "spec/gemm_tcgen05.h"

namespace tessera::gemm_tcgen05 {

// kCount columns of the thread's lane, in loads of at most 32.
template <int kCount>
__device__ __forceinline__ void load_sums(float (&v)[kCount], unsigned address) {
  constexpr int kPiece = kCount < 32 ? kCount : 32;
  unsigned bits[kCount / kPiece][kPiece];
#pragma unroll
  for (int i = 0; i < kCount / kPiece; ++i) ptx::tcgen05_ld_32x32b(bits[i], address + i * kPiece);
  ptx::tcgen05_wait_ld();
#pragma unroll
  for (int i = 0; i < kCount / kPiece; ++i) {
    ptx::hold(bits[i]);
#pragma unroll
    for (int j = 0; j < kPiece; ++j) v[i * kPiece + j] = __uint_as_float(bits[i][j]);
  }
}

// After the warp's last load: the accumulator of this barrier may be written again.
template <Config C>
__device__ __forceinline__ void release_sums(unsigned barrier, int even_rank) {
  ptx::tcgen05_fence_before_thread_sync();
  __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  if constexpr (pair_size(C) == 2) {
    ptx::mbarrier_arrive_release_cluster(ptx::mapa(barrier, even_rank));
  } else {
    ptx::mbarrier_arrive(barrier);
  }
}

// Partial sums lie by column, the 128 lanes of each side by side.
__device__ __forceinline__ unsigned partial_sum_address(unsigned smem, int column, int lane) {
  return smem + (column * kLanes + lane) * 4;
}

// Leaves this part's sums in shared memory, where the ring was: its slots were filled and read, no load follows.
template <Config C>
__device__ __forceinline__ void share_sums(unsigned smem, unsigned from, int lane) {
#pragma unroll 1
  for (int column = 0; column < columns(C); column += 16) {
    float v[16];
    load_sums(v, from + column);
#pragma unroll
    for (int i = 0; i < 16; ++i) ptx::st_shared_f32(partial_sum_address(smem, column + i, lane), v[i]);
  }
}

// Sums of integers are in registers like those of fp32, as bits: nothing but this and the addition of parts counts with
// them.
template <Config C, int kCount>
__device__ __forceinline__ void to_fp32(float (&v)[kCount]) {
  if constexpr (is_integer(C) && !stores_sums(C)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = __int2float_rn(__float_as_int(v[i]));
  }
}

// The parts of all CTAs, added up in the order of the parts.
template <Config C>
__device__ __forceinline__ void add_sums(float (&v)[panel_columns(C)], unsigned smem, int column, int lane) {
#pragma unroll
  for (int i = 0; i < panel_columns(C); ++i) v[i] = 0.0f;
#pragma unroll 1
  for (int part = 0; part < C.split_k; ++part) {
    const unsigned from = ptx::mapa(partial_sum_address(smem, column, lane), part);
#pragma unroll
    for (int i = 0; i < panel_columns(C); ++i) {
      const float sum = ptx::ld_cluster_f32(from + i * kLanes * 4);
      v[i] = is_integer(C) ? __int_as_float(__float_as_int(v[i]) + __float_as_int(sum)) : v[i] + sum;
    }
  }
}

// A panel of D from the sums of a gate and of up, which stand behind each other, or in turn.
template <Config C>
__device__ __forceinline__ void load_gated(float (&v)[panel_columns(C)], float (&up)[panel_columns(C)], unsigned from,
                                           int column) {
  if constexpr (C.facts.gate == Gate::dual) {
    load_sums(v, from + column);
    load_sums(up, from + columns(C) + column);
  } else {
    float both[2 * panel_columns(C)];
    load_sums(both, from + 2 * column);
#pragma unroll
    for (int i = 0; i < panel_columns(C); ++i) {
      const int at = i / C.facts.interleave * 2 * C.facts.interleave + i % C.facts.interleave;
      v[i] = both[at];
      up[i] = both[at + C.facts.interleave];
    }
  }
}

// A tile that is the only one in Tensor Memory: its next piece is on its way while one is finished and rounded.
template <Config C>
__device__ __forceinline__ void store_whole_rows(Epilogue<C>& epilogue, unsigned from, unsigned sums_empty,
                                                 int even_rank, int lanes, int first, int batch) {
  constexpr int kPanel = panel_columns(C), kPiece = kPanel < 32 ? kPanel : 32, kPieces = columns(C) / kPiece;
  unsigned bits[2][kPiece];
  unsigned words[columns(C) / 2];
  ptx::tcgen05_ld_32x32b(bits[0], from);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    ptx::tcgen05_wait_ld(bits[piece % 2]);
    if (piece + 1 < kPieces) {
      ptx::tcgen05_ld_32x32b(bits[(piece + 1) % 2], from + (piece + 1) * kPiece);
    } else {
      release_sums<C>(sums_empty, even_rank);
    }
    float v[kPiece];
#pragma unroll
    for (int i = 0; i < kPiece; ++i) v[i] = __uint_as_float(bits[piece % 2][i]);
    to_fp32<C>(v);
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      v[i] = epilogue.finish(v[i], lanes + epilogue.lane, first + piece * kPiece + i, batch);
#pragma unroll
    for (int i = 0; i < kPiece / 2; ++i)
      words[piece * kPiece / 2 + i] = ptx::cvt_pack<C.facts.d_dtype>(v[2 * i], v[2 * i + 1]);
  }
#pragma unroll
  for (int panel = 0; panel < columns(C) / kPanel; ++panel)
    epilogue.store_staged([&](unsigned to) { epilogue.stage_words(words, panel, to); }, lanes, first + panel * kPanel,
                          batch);
}

// One warp of the four.
template <Config C>
__device__ __forceinline__ void store(const Params& p, unsigned smem, unsigned tmem) {
  Schedule<C> schedule{p};
  const int warp = static_cast<int>(threadIdx.x) / 32 - kFirstStoreWarp;
  Epilogue<C> epilogue{p, smem, warp};
  const Barriers barriers = gemm_tcgen05::barriers(C, smem);
  common::RingPosition<sum_phases(C)> sums;
  constexpr int kPanel = panel_columns(C);
  const int first_column = schedule.k_part() * stored_columns(C);
  const typename QuantizerOf<C>::type quantizer{p, columns_of_d(C, p.n)};
#pragma unroll 1
  for (; schedule.has_tile(); schedule.advance()) {
    const Tile tile = schedule.tile();
    epilogue.row_end = tile.row_end;
    if constexpr (C.facts.bias == Bias::group) epilogue.group = tile.b_matrix;
    constexpr int kPanels = stored_columns(C) / kPanel;
    // The first of two that overlap ends with what both have.
    const bool is_backwards = do_sums_overlap(C) && sums.parity == 0;
    const int b_row = columns_of_d(C, tile.b_row);
    const int lanes = (is_swapped(C) ? b_row : tile.a_row) + warp * 32;
    const auto column_of = [&](int panel) { return (is_backwards ? kPanels - 1 - panel : panel) * kPanel; };
    const auto first_of = [&](int panel) {
      return (is_swapped(C) ? tile.a_row : b_row) + first_column + column_of(panel);
    };
    epilogue.ask_for_addend(lanes, first_of(0), tile.a_matrix);
    ptx::mbarrier_wait_parity(barriers.sums_full[sums.slot], sums.parity);
    ptx::tcgen05_fence_after_thread_sync();
    const unsigned from = tmem + (static_cast<unsigned>(warp) * 32 << 16) + first_sum<C>(sums.slot, sums.parity);
    if constexpr (takes_whole_rows(C)) {
      store_whole_rows<C>(epilogue, from, barriers.sums_empty[sums.slot], schedule.even_rank(), tile.a_row + warp * 32,
                          tile.b_row, tile.a_matrix);
      sums.advance();
      continue;
    }
    if constexpr (C.split_k > 1) {
      share_sums<C>(smem, from, warp * 32 + epilogue.lane);
      release_sums<C>(barriers.sums_empty[sums.slot], schedule.even_rank());
      ptx::cluster_arrive();
      ptx::cluster_wait();
    }
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel) {
      const int column = column_of(panel);
      float v[kPanel];
      float up[kPanel];
      if constexpr (C.split_k > 1) {
        add_sums<C>(v, smem, first_column + column, warp * 32 + epilogue.lane);
      } else {
        if constexpr (C.facts.gate == Gate::none) {
          load_sums(v, from + column);
        } else {
          load_gated<C>(v, up, from, column);
        }
        if (panel + 1 == panels_until_free(C)) release_sums<C>(barriers.sums_empty[sums.slot], schedule.even_rank());
      }
      const int first = first_of(panel);
      to_fp32<C>(v);
      if constexpr (C.facts.gate == Gate::none) {
        epilogue.finish_panel(v, lanes, first, panel + 1 < kPanels ? first_of(panel + 1) : -1, tile.a_matrix);
      } else {
        to_fp32<C>(up);
        epilogue.apply_gate(v, up, first);
      }
      if constexpr (is_quantized(C)) {
        quantizer.store(v, tile, warp * 32 + epilogue.lane, first);
      } else {
        epilogue.store(v, lanes, first, tile.a_matrix);
      }
    }
    sums.advance();
  }
  epilogue.finish_stores();
}

}  // namespace tessera::gemm_tcgen05
