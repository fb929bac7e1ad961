// Which tiles a CTA takes, and which part of K. The grid is persistent and the order fixed: cluster c of it takes items
// c, c + clusters, ... Every role walks the same tiles without a word to the others: `raster` tiles down along M before
// the next one along N, so that those which run at the same time share activations and weights in the L2.
//
// Groups have rows of their own number, which only the device's memory tells: items of one group come after those of
// another. A warp reads 32 groups at a time, a lane one of them, and finds an item's among them at once; who walks
// alone or keeps no groups begins where its warp has found its first item, and adds up the groups' tiles on its way
// from there. Groups are read once the launch before has ended: begin().
#pragma once

#include "common/parts.cuh"
#include "gemm/group_rows.cuh"
#include "gemm_weights/params.cuh"
#include "ptx/shared_words.cuh"
#include "spec/gemm_weights.h"

namespace tessera::gemm_weights {

// With teams consumers do not walk groups, for which they have no registers: the warp that loads activations leaves
// each slot's tile beside it; a CTA without one has a round of slots that say so.
struct Tile {
  int row;               // first of d
  int column;            // first of d: of the weights' rows
  int batch;             // of a and d
  int b_batch;           // of the weights
  int row_end;           // of d: rows from here on are of another group, or of none
  bool is_last = false;  // of the CTA's, where a slot says it
};

// kIsOfWarp: all lanes of a warp walk, and the compiler is told that they are in the same group.
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
  // Whether a warp keeps the groups that its lanes have read. Those of mma.f16 have no registers for it.
  static constexpr bool kFinds = kIsOfWarp && !is_direct(C);
  // A lane's group, which is so far behind the first of those that were read last: its rows, and the items up to its
  // last.
  int first_read = 0;
  gemm::GroupRows rows_of_lane{0, 0};
  int end_of_lane = 0;

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
  // Where a slot says which tile it is of there is one at least.
  __device__ __forceinline__ int slots() const {
    constexpr int kGroups = k_groups(C);
    const int rounds = (k_end - k_begin + kGroups - 1) / kGroups;
    return (is_team(C) && is_grouped(C) ? max(rounds, 1) : rounds) * kGroups;
  }
  // Whether the ring holds all activations that the CTA multiplies, for all its tiles: they are loaded once.
  __device__ __forceinline__ bool is_resident() const {
    return has_own_rings(C) && !has_common_lap(C) && !is_grouped(C) && tiles_m == 1 && p.l == 1 &&
           k_end - k_begin <= C.stages;
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
      read_groups(0, 0);
      if constexpr (!kFinds) find(first());
    }
  }
  // This lane goes on from where its warp is.
  __device__ __forceinline__ void begin_at(const Schedule<C, true>& of_warp) {
    group = of_warp.group;
    before = of_warp.before;
    rows = of_warp.rows;
  }

  // Whether there is such an item; of groups the walk goes on to its group. Numbers ascend from call to call.
  __device__ __forceinline__ bool has(int item) {
    if constexpr (is_grouped(C) && kFinds) {
      return find(item);
    } else if constexpr (is_grouped(C)) {
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

  // As it lies in shared memory.
  static __device__ __forceinline__ void leave_tile(unsigned at, const Tile& tile) {
    ptx::st_shared_v4(at,
                      {static_cast<unsigned>(tile.row), static_cast<unsigned>(tile.column) | (tile.is_last ? kLast : 0),
                       static_cast<unsigned>(tile.b_batch), static_cast<unsigned>(tile.row_end)});
  }
  static __device__ __forceinline__ void leave_none(unsigned at) { ptx::st_shared_v4(at, {0, kNone, 0, 0}); }
  static __device__ __forceinline__ bool is_none(unsigned at) { return ptx::ld_shared_u32(at + 4) == kNone; }
  static __device__ __forceinline__ Tile read_tile(unsigned at) {
    const ptx::Words4 words = ptx::ld_shared_v4(at);
    const int group = static_cast<int>(words.z);
    return {static_cast<int>(words.x),
            static_cast<int>(words.y & ~kLast),
            C.facts.grouping == Grouping::contiguous ? 0 : group,
            group,
            static_cast<int>(words.w),
            (words.y & kLast) != 0};
  }

 private:
  // All lanes: the item's group among those that were read, or that come behind them.
  __device__ __forceinline__ bool find(int item) {
#pragma unroll 1
    while (true) {
      const unsigned later = __ballot_sync(0xffffffff, end_of_lane > item);
      if (later != 0) {
        const int found = __ffs(static_cast<int>(later)) - 1;
        group = first_read + found;
        rows.first = __shfl_sync(0xffffffff, rows_of_lane.first, found);
        rows.count = __shfl_sync(0xffffffff, rows_of_lane.count, found);
        before = __shfl_sync(0xffffffff, end_of_lane, found) - tiles_of(rows) * tiles_n;
        return true;
      }
      if (first_read + 32 >= p.l) break;
      read_groups(first_read + 32, __shfl_sync(0xffffffff, end_of_lane, 31));
    }
    group = p.l;
    return false;
  }
  static constexpr unsigned kLast = 1u << 31, kNone = 0xffffffff;
  // From `from` on, a lane one each; `up_to`: items of those before.
  __device__ __forceinline__ void read_groups(int from, int up_to) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    first_read = from;
    rows_of_lane =
        from + lane < p.l ? gemm::group_rows<C.facts.grouping>(p.groups, from + lane, p.m) : gemm::GroupRows{0, 0};
    int sum = tiles_of(rows_of_lane) * tiles_n;  // of the lanes up to this one
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const int other = __shfl_up_sync(0xffffffff, sum, i);
      if (lane >= i) sum += other;
    }
    end_of_lane = up_to + sum;
  }
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
