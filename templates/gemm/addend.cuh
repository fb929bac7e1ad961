// beta * C of D's panels on Hopper (addend_reader.cuh): panels ahead in registers, where there are any to spare, and a
// tile's rows to the L2 beside the steps of its products, by the thread that loads.
//
// With loads of two bytes, each behind a bounds check, 4,096 x 7,168 x 2,048 took 375 us on an H200, and so 168.
#pragma once

#include "gemm/addend_reader.cuh"
#include "gemm/matmul.cuh"
#include "gemm/params.cuh"
#include "gemm/schedule.cuh"
#include "ptx/address.cuh"
#include "ptx/bulk.cuh"
#include "ptx/math.cuh"
#include "ptx/matrix.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// Whether C comes so: a slot holds a panel of it where its elements are as wide as those of D.
TESSERA_HD constexpr bool stages_addend(const Config& c) {
  return c.facts.c == Addend::matrix && dtype_bytes(c.facts.d_dtype) == dtype_bytes(c_dtype(c));
}
// Whether there are registers for it beside the sums, panels before it is needed.
TESSERA_HD constexpr bool loads_addend_ahead(const Config& c) {
  return stages_addend(c) && blocks(c) * c.tile_n / 2 <= 128;
}

// Whether its rows are brought to the L2 before. In turn the other warpgroup's products run beside the wait for memory,
// and the copies of the loading thread would come late: 4,096 x 4,096 x 1,024 then took 72.5 us in place of 62.3 on an
// H200. Elsewhere 1,024 x 7,168 x 2,048 takes 51.6 with it and 56.1 without.
TESSERA_HD constexpr bool prefetches_addend(const Config& c) {
  return stages_addend(c) && !is_ping_pong(c) && register_budget(c).producer >= 40;
}

// A consumer warp's part of the panels.
template <Config C, bool kIsStaged = stages_addend(C)>
struct AddendPanels {
  using Reader = AddendReader<c_dtype(C), d_span_bytes(C), d_swizzle(C), Params>;
  static constexpr int kWholePanels = stored_columns_of_d(C) / panel_columns(C);  // beside each other
  static constexpr int kPanels = blocks(C) * panels_across(C);
  static constexpr bool kHasSpare = loads_addend_ahead(C);                 // registers
  static constexpr int kAhead = kHasSpare ? 2 : 0;                         // panels that wait in them
  static constexpr int kUnits = panel_columns(C) / (2 * Reader::kOfUnit);  // of a whole panel, to a lane

  Reader reader;
  const int here = static_cast<int>(threadIdx.x) % 32;  // lane; addresses made of it are forgotten between panels
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32;
  unsigned words[kAhead > 0 ? kAhead : 1][kUnits][4];
  int row = 0;  // where the warpgroup's part of the tile begins, in D or in its transpose
  int column = 0;

  __device__ __forceinline__ explicit AddendPanels(const Params& params) : reader(params) {}

  // 16 rows of D and a panel's columns, or with swap_ab the other way round.
  __device__ __forceinline__ AddendPart part(int panel) const {
    const int across = panel % panels_across(C);
    const int count = rest_columns(C) == 0 || across < kWholePanels ? panel_columns(C) : rest_columns(C);
    const int m = row + panel / panels_across(C) * kBlockRows + warp * 16, n = column + across * panel_columns(C);
    return is_swapped(C) ? AddendPart{n, m, count, 16} : AddendPart{m, n, 16, count};
  }
  __device__ __forceinline__ unsigned begin_in(unsigned slot) const {
    return is_swapped(C) ? slot + warp * 32 : slot + warp * 16 * d_span_bytes(C);
  }

  // The first panels of a tile, whose rows and columns in D end there: the earlier the better.
  __device__ __forceinline__ void begin(int first_row, int first_column, int batch, int rows, int columns) {
    row = first_row, column = first_column;
    reader.batch = batch, reader.end_of_rows = rows, reader.end_of_columns = columns;
#pragma unroll
    for (int i = 0; i < kAhead && i < kPanels; ++i)
      reader.template load<kHasSpare>(words[i], ptx::forget(here), part(i));
  }

  // The next panel to its slot; its registers are for one that comes later.
  __device__ __forceinline__ void put(unsigned slot, int panel) {
    const AddendPart of = part(panel);
    const int lane = ptx::forget(here);
    if constexpr (kAhead == 0) reader.template load<kHasSpare>(words[0], lane, of);
    reader.template put<kHasSpare>(words[0], begin_in(slot), lane, of);
#pragma unroll
    for (int i = 0; i + 1 < kAhead; ++i) {
#pragma unroll
      for (int j = 0; j < kUnits; ++j) {
#pragma unroll
        for (int w = 0; w < 4; ++w) words[i][j][w] = words[i + 1][j][w];
      }
    }
    if constexpr (kAhead > 0)
      if (panel + kAhead < kPanels)
        reader.template load<kHasSpare>(words[kAhead - 1], ptx::forget(here), part(panel + kAhead));
    reader.put_elements(begin_in(slot), lane, of);
  }

  // The slot's panel, times beta, to one of sums; then the slot is free for the finished one. Addresses differ by
  // numbers that the compiler knows: slots begin on whole swizzle patterns.
  template <int kRegisters>
  __device__ __forceinline__ void add(float (&panel)[kRegisters], unsigned slot) const {
    const int lane = ptx::forget(here);
    const float beta = reader.p.beta;
    if constexpr (Reader::kBytes == 4) {
      const unsigned first = Reader::staged(begin_in(slot), lane / 4, lane % 4 * 8);
#pragma unroll
      for (int v = 0; v < kRegisters; v += 2) {
        float pair[2];
        ptx::ld_shared_v2_f32((first ^ v / 4 * 32) + v / 2 % 2 * 8 * d_span_bytes(C), pair);
        panel[v] += beta * pair[0];
        panel[v + 1] += beta * pair[1];
      }
    } else {
      const unsigned first = is_swapped(C) ? Reader::staged(begin_in(slot), lane / 16 * 8 + lane % 8, lane / 8 % 2 * 16)
                                           : Reader::staged(begin_in(slot), lane % 16, lane / 16 * 16);
#pragma unroll
      for (int i = 0; i < kRegisters / 8; ++i) {
        unsigned pairs[4];
        if constexpr (is_swapped(C)) {
          ptx::ldmatrix_x4_trans(first + i * 16 * d_span_bytes(C), pairs);
        } else {
          ptx::ldmatrix_x4(first ^ i * 32, pairs);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          panel[8 * i + 2 * j] += beta * ptx::cvt_f32<c_dtype(C)>(static_cast<unsigned short>(pairs[j]));
          panel[8 * i + 2 * j + 1] += beta * ptx::cvt_f32<c_dtype(C)>(static_cast<unsigned short>(pairs[j] >> 16));
        }
      }
      __syncwarp();
    }
  }
};
template <Config C>
struct AddendPanels<C, false> {
  __device__ __forceinline__ explicit AddendPanels(const Params&) {}
};

// Rows of a tile's C that are still to be brought to the L2, by the thread that loads.
template <Config C, bool kIsWanted = prefetches_addend(C)>
struct AddendPrefetch {
  static constexpr int kRowsAtOnce = 8;

  const Params& p;
  const bool is_in_units;
  const char* next = nullptr;
  int rows = 0;
  int bytes = 0;  // of a row

  __device__ __forceinline__ explicit AddendPrefetch(const Params& params)
      : p(params), is_in_units(reads_units_of_addend<c_dtype(C)>(params)) {}

  __device__ __forceinline__ void begin(const TileIndex& tile, int part_of_k) {
    const int n = tile.column + part_of_k * stored_columns(C);
    const int of_m = min(C.tile_m, tile.row_end - tile.row), of_n = min(stored_columns(C), p.n - n);
    rows = is_in_units ? is_swapped(C) ? of_n : of_m : 0;
    bytes = (is_swapped(C) ? of_m : of_n) * dtype_bytes(c_dtype(C)) / 16 * 16;
    if (bytes <= 0) rows = 0;
    next = place_in_addend<c_dtype(C)>(p, tile.batch, is_swapped(C) ? n : tile.row, is_swapped(C) ? tile.row : n);
  }
  __device__ __forceinline__ void step() {
#pragma unroll 1
    for (int end = max(rows - kRowsAtOnce, 0); rows > end; --rows) {
      ptx::bulk_prefetch(next, bytes);
      next += p.ldc * dtype_bytes(c_dtype(C));
    }
  }
};

template <Config C>
struct AddendPrefetch<C, false> {
  __device__ __forceinline__ explicit AddendPrefetch(const Params&) {}
  __device__ __forceinline__ void begin(const TileIndex&, int) {}
  __device__ __forceinline__ void step() {}
};

}  // namespace tessera::gemm
