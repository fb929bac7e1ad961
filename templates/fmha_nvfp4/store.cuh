// How a warp's 16 rows of O leave: staged in shared memory of its own and stored by TMA, or from registers where they
// fill no box of a ragged tensor, and as parts of split keys. Value v of a thread is of row lane / 4 + 8 (v / 2 % 2),
// column 8 (v / 4) + 2 (lane % 4) + v % 2.
#pragma once

#include "common/transpose_quad.cuh"
#include "fmha_nvfp4/tiles.cuh"
#include "ptx/fence.cuh"
#include "ptx/global.cuh"
#include "ptx/math.cuh"
#include "ptx/shared.cuh"
#include "ptx/tma.cuh"
#include "spec/fmha_nvfp4.h"

namespace tessera::fmha_nvfp4 {

template <Config C>
using OutputRows = float[C.facts.head_dim / 2];

// A row of fp32 from registers: of o, or of a part of split keys. Neighbouring threads have neighbouring columns.
template <Config C>
__device__ __forceinline__ void store_row_of_sums(float* row, const OutputRows<C>& outputs, int r, float factor) {
#pragma unroll
  for (int tile = 0; tile < C.facts.head_dim / 8; ++tile)
    ptx::st_global_v2(row + 8 * tile + threadIdx.x % 4 * 2, __float_as_uint(outputs[4 * tile + 2 * r] * factor),
                      __float_as_uint(outputs[4 * tile + 2 * r + 1] * factor));
}

// A row of 16-bit elements from registers, by all lanes of the warp: four lanes exchange columns for 16 bytes of each.
template <Config C>
__device__ __forceinline__ void store_row(char* row, const OutputRows<C>& outputs, int r, float factor, bool is_there) {
#pragma unroll
  for (int tiles = 0; tiles < C.facts.head_dim / 8; tiles += 4) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = ptx::cvt_pack<C.facts.o_dtype>(outputs[4 * (tiles + i) + 2 * r] * factor,
                                                outputs[4 * (tiles + i) + 2 * r + 1] * factor);
    common::transpose_quad(words);
    if (is_there) ptx::st_global_v4(row + 16 * tiles + threadIdx.x % 4 * 16, {words[0], words[1], words[2], words[3]});
  }
}

// Columns of one pass into the warp's panels. Panels lie on a repeat of the swizzle, which depends on the row alone: so
// chunks are flipped into the first one's address.
template <Config C>
__device__ __forceinline__ void stage_pass(unsigned panels, const OutputRows<C>& outputs, const float (&factors)[2],
                                           int pass) {
  constexpr int kSpan = swizzle_span_bytes(Swizzle::b128);
  constexpr int kColumns = panels_of_pass(C) * o_span_elements(C);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* const of_pass = outputs + pass * kColumns / 2;
  if constexpr (stores_sums(C)) {
    const unsigned address = swizzle_address(Swizzle::b128, panels + lane / 4 * kSpan + lane % 4 * 8);
#pragma unroll
    for (int tile = 0; tile < kColumns / 8; ++tile) {
      const unsigned at = (address ^ (32 * tile % kSpan)) + 32 * tile / kSpan * kPanelBytes;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        ptx::st_shared_v2_f32(at + 8 * r * kSpan, of_pass[4 * tile + 2 * r] * factors[r],
                              of_pass[4 * tile + 2 * r + 1] * factors[r]);
    }
  } else {
    const unsigned address =
        swizzle_address(Swizzle::b128, panels + (lane / 8 % 2 * 8 + lane % 8) * kSpan + lane / 16 * 16);
#pragma unroll
    for (int i = 0; i < kColumns / 16; ++i) {
      unsigned packed[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        packed[j] = ptx::cvt_pack<C.facts.o_dtype>(of_pass[8 * i + 2 * j] * factors[j % 2],
                                                   of_pass[8 * i + 2 * j + 1] * factors[j % 2]);
      ptx::stmatrix_x4((address ^ (32 * i % kSpan)) + 32 * i / kSpan * kPanelBytes, packed[0], packed[1], packed[2],
                       packed[3]);
    }
  }
}

// Those of the tile's sequence. `first_row`: the warp's first, among the sequence's.
template <Config C>
__device__ __forceinline__ void store_rows(const Params& p, unsigned smem, int warp, const OutputRows<C>& outputs,
                                           const float (&factors)[2], const Tile<C>& tile, int first_row) {
  if (first_row >= tile.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (has_ragged_queries<C>()) {
    if (first_row + kRowsOfWarp > tile.rows) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first_row + lane / 4 + 8 * r;
        const long long at =
            (tile.queries.first + row) * p.o_stride_seqlen + static_cast<long long>(tile.head) * p.o_stride_head;
        char* const to = static_cast<char*>(p.o_rows) + o_bytes(C) * at;
        if constexpr (!stores_sums(C)) {
          store_row<C>(to, outputs, r, factors[r], row < tile.rows);
        } else if (row < tile.rows) {
          store_row_of_sums<C>(reinterpret_cast<float*>(to), outputs, r, factors[r]);
        }
      }
      return;
    }
  }
  constexpr SmemLayout kLayout = smem_layout(C);
  const unsigned panels = smem + kLayout.o.offset + warp * o_slot_bytes(C);
  const int sequence = has_ragged_queries<C>() ? 0 : tile.sequence;
#pragma unroll
  for (int pass = 0; pass < o_panels(C) / panels_of_pass(C); ++pass) {
    // What the last stores read; then all lanes' writes before these read.
    if (lane == 0) ptx::cp_async_bulk_wait_group_read<0>();
    __syncwarp();
    stage_pass<C>(panels, outputs, factors, pass);
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane != 0) continue;
#pragma unroll
    for (int panel = 0; panel < panels_of_pass(C); ++panel)
      ptx::tma_store_4d(*p.o, panels + panel * kPanelBytes, (pass * panels_of_pass(C) + panel) * o_span_elements(C),
                        tile.queries.first + first_row, tile.head, sequence);
    ptx::cp_async_bulk_commit_group();
  }
}

// Shared memory must not go before stores have read it.
__device__ __forceinline__ void finish_stores() {
  if (threadIdx.x % 32 == 0) ptx::cp_async_bulk_wait_group<0>();
}

}  // namespace tessera::fmha_nvfp4
