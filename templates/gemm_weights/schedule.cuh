// Which tiles a CTA takes, and which part of K. The grid is persistent and the order fixed: cluster c of it takes items
// c, c + clusters, ... Every role walks the same tiles without a word to the others: `raster` tiles down along M before
// the next one along N, so that those which run at the same time share activations and weights in the L2.
//
// Groups have rows of their own number, which only the device's memory tells: items of one group come after those of
// another. A warp finds the group of its first item by reading 32 groups at a time; from there on each lane for itself
// adds up the groups' tiles on its way. Groups are read once the launch before has ended: begin().
#pragma once

#include "common/parts.cuh"
#include "gemm/group_rows.cuh"
#include "gemm_weights/params.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

struct Tile {
  int row;      // first of d
  int column;   // first of d: of the weights' rows
  int batch;    // of a and d
  int b_batch;  // of the weights
  int row_end;  // of d: rows from here on are of another group, or of none
};

// Whether all lanes of a warp walk: the compiler is told that they are in the same group.
template <Config C, bool kIsOfWarp = false>
struct Schedule {
  const Params& p;
  const int rank;  // part of K
  const int tiles_m;
  const int tiles_n;
  const int items;    // without groups
  const int k_begin;  // steps
  const int k_end;
  // Where there are groups: that of the item which was asked for last, and the items of those before it.
  int group = 0;
  int before = 0;
  gemm::GroupRows rows{0, 0};

  __device__ __forceinline__ explicit Schedule(const Params& params)
      : p(params),
        rank(C.split_k == 1 ? 0 : static_cast<int>(blockIdx.x) % C.split_k),
        tiles_m((p.m - 1) / C.tile_m + 1),
        tiles_n((p.n - 1) / C.tile_n + 1),
        items(tiles_m * tiles_n * p.l),
        k_begin(common::begin_of_part<C.split_k>(steps_of(p.k), rank)),
        k_end(common::begin_of_part<C.split_k>(steps_of(p.k), rank + 1)) {}

  static __device__ __forceinline__ int steps_of(int k) { return k / step_depth(C) + (k % step_depth(C) != 0 ? 1 : 0); }
  // Slots of the ring that a tile takes: whole rounds of the groups that share them, of which the last may be empty.
  __device__ __forceinline__ int slots() const {
    constexpr int kGroups = k_groups(C);
    return (k_end - k_begin + kGroups - 1) / kGroups * kGroups;
  }
  // Whether the ring holds all activations that the CTA multiplies, for all its tiles: they are loaded once.
  __device__ __forceinline__ bool is_resident() const {
    return has_own_rings(C) && !is_grouped(C) && tiles_m == 1 && p.l == 1 && k_end - k_begin <= C.stages;
  }
  // Whether no other tile reads a tile's weights: of groups, those of the group that the walk has come to.
  __device__ __forceinline__ bool reads_weights_once() const {
    return is_grouped(C) ? rows.count <= C.tile_m : tiles_m == 1;
  }
  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / C.split_k; }
  __device__ __forceinline__ int stride() const { return static_cast<int>(gridDim.x) / C.split_k; }
  // No item has this number, nor a greater one.
  __device__ __forceinline__ int end() const { return is_grouped(C) ? 0x7fffffff : items; }

  // All lanes of a warp, before it asks for its first item, where there are groups.
  __device__ __forceinline__ void begin() {
    if constexpr (is_grouped(C)) {
      const int lane = static_cast<int>(threadIdx.x) % 32, item = first();
#pragma unroll 1
      for (int from = 0; from < p.l; from += 32) {
        const bool is_group = from + lane < p.l;
        const gemm::GroupRows mine =
            is_group ? gemm::group_rows<C.facts.grouping>(p.groups, from + lane, p.m) : gemm::GroupRows{0, 0};
        const int own = tiles_of(mine) * tiles_n;
        int sum = own;  // of the lanes up to this one
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
          const int other = __shfl_up_sync(0xffffffff, sum, i);
          if (lane >= i) sum += other;
        }
        const unsigned later = __ballot_sync(0xffffffff, before + sum > item);
        const int found = later != 0 ? __ffs(static_cast<int>(later)) - 1 : 31;
        const int up_to = __shfl_sync(0xffffffff, later != 0 ? sum - own : sum, found);
        rows.first = __shfl_sync(0xffffffff, mine.first, found);
        rows.count = __shfl_sync(0xffffffff, mine.count, found);
        before += up_to;
        group = from + found;
        if (later != 0) return;
      }
      group = p.l;
    }
  }

  // Whether there is such an item; of groups the walk goes on to its group. Numbers ascend from call to call.
  __device__ __forceinline__ bool has(int item) {
    if constexpr (is_grouped(C)) {
#pragma unroll 1
      while (group < p.l) {
        const int of_group = tiles_of(rows) * tiles_n;
        if (item - before < of_group) return true;
        before += of_group;
        if (++group < p.l) rows = gemm::group_rows<C.facts.grouping>(p.groups, group, p.m);
        if constexpr (kIsOfWarp) {
          rows.first = __shfl_sync(0xffffffff, rows.first, 0);
          rows.count = __shfl_sync(0xffffffff, rows.count, 0);
        }
      }
      return false;
    } else {
      return item < items;
    }
  }

  // The tile of the item that was asked for last.
  __device__ __forceinline__ Tile at(int item) const {
    const int of_m = is_grouped(C) ? tiles_of(rows) : tiles_m, of_matrix = of_m * tiles_n;
    const bool is_one_matrix = !is_grouped(C) && p.l == 1;
    const int batch = is_grouped(C) ? group : is_one_matrix ? 0 : item / of_matrix;
    const int within = is_grouped(C) ? item - before : is_one_matrix ? item : item % of_matrix;
    // Few rows are one tile of them: divisions would take longer than the warp that waits for their result has.
    if (of_m == 1) return tile_at(0, within * C.tile_n, batch);
    const int raster = within / (C.raster * tiles_n), in_raster = within % (C.raster * tiles_n);
    const int height = min(of_m - raster * C.raster, C.raster);
    const int row = (raster * C.raster + in_raster % height) * C.tile_m, column = in_raster / height * C.tile_n;
    return tile_at(row, column, batch);
  }

 private:
  __device__ __forceinline__ Tile tile_at(int row, int column, int batch) const {
    if constexpr (!is_grouped(C)) return {row, column, batch, batch, p.m};
    return {rows.first + row, column, C.facts.grouping == Grouping::contiguous ? 0 : batch, batch,
            rows.first + rows.count};
  }
  static __device__ __forceinline__ int tiles_of(const gemm::GroupRows& of) {
    return of.count / C.tile_m + (of.count % C.tile_m != 0 ? 1 : 0);
  }
};

}  // namespace tessera::gemm_weights
