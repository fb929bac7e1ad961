// Which tiles a CTA takes, and which part of K.
//
// The grid is persistent and the order fixed, so every role walks the same tiles without a word to the others. Round r
// gives cluster c of the grid the item r * clusters + c. Items walk down `raster` tiles of clusters along D's rows
// before they go one further along its columns: CTAs that run at the same time form a block of D that is about square,
// and share the rows of A and B that it needs in the L2. Those that follow each other share the rows of B, of which a
// product of few rows has most: with swap_ab, where tiles went along M first, a product of 413 rows took a third
// longer.
//
// Groups have rows of their own number, which only the device's memory tells: items of one group come after those of
// another, and a walk adds up the groups' tiles on its way. Each role reads them for itself.
//
// Tiles of three warpgroups with a group's last rows take less time. Where a raster divides the grid, or the items of a
// group fill whole rounds, they came to the same CTAs again and again, and the others decided when all was done: from
// column to column a whole raster is walked from one tile further on, from group to group from five. Contiguous groups
// of 4,096 rows, 22 tiles, took 1 to 2 % less time so on an H200.
//
// With split_k the grid has a cluster for each item, so that there is one round.
#pragma once

#include "common/parts.cuh"
#include "gemm/group_rows.cuh"
#include "gemm/params.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// This CTA's place in its cluster.
template <Config C>
struct ClusterPlace {
  int rank;  // of the CTA
  int m;     // along M: B is shared with the others of this n and k
  int n;     // along N: A is shared with the others of this m and k
  int k;     // its part of K

  __device__ __forceinline__ ClusterPlace()
      : rank(cluster_size(C) == 1 ? 0 : static_cast<int>(blockIdx.x) % cluster_size(C)),
        m(rank / C.cluster_n % C.cluster_m),
        n(rank % C.cluster_n),
        k(rank / multicast_size(C)) {}

  // Among the CTAs that have the same part of K.
  __device__ __forceinline__ int rank_in_part() const { return rank - k * multicast_size(C); }
};

struct TileIndex {
  int row;      // first row of D
  int column;   // first column
  int batch;    // of A and D
  int b_batch;  // of B
  int row_end;  // of D: rows from here on are of another group, or of none

  // No instruction: the numbers are computed no later than here.
  __device__ __forceinline__ void hold() {
    asm volatile("" : "+r"(row), "+r"(column), "+r"(batch), "+r"(b_batch), "+r"(row_end));
  }
};

// Whether a raster of a group is walked from another tile on in each column.
TESSERA_HD constexpr bool turns_columns(const Config& c) {
  return is_grouped(c) && joins_factors(c) && consumer_warpgroups(c) == 3;
}

// Who walks: all threads of a warp know that they are in the same group.
enum class Walker { thread, warp };

template <Config C, Walker kWalker>
struct TileSchedule {
  const Params& p;
  const ClusterPlace<C> place;
  const int tiles_m;  // of clusters; of groups each has its own
  const int tiles_n;
  const int items;    // without groups
  const int k_begin;  // steps along K
  const int k_end;
  const int shared;  // steps behind these, of the CTA's own columns alone (shares_steps)
  // Where there are groups: that of the item which was asked for last, and the items of those before it.
  int group = 0;
  int before = 0;
  GroupRows rows{0, 0};

  __device__ __forceinline__ explicit TileSchedule(const Params& params)
      : p(params),
        tiles_m((p.m - 1) / (C.tile_m * C.cluster_m) + 1),
        tiles_n((p.n - 1) / (C.tile_n * C.cluster_n) + 1),
        items(tiles_m * tiles_n * p.l),
        k_begin(begin_of_part(p.k, place.k) + (place.k == 1 ? shared_steps_of(p.k) / 2 : 0)),
        k_end(max(part(p.k, place.k + 1), k_begin + 1) - (place.k == 0 ? shared_steps_of(p.k) / 2 : 0)),
        shared(shared_steps_of(p.k)) {
    // Without any group nothing stands behind the offset of its end.
    if constexpr (is_grouped(C))
      if (p.l > 0) read_group();
  }

  static __device__ __forceinline__ int steps_of(int k) { return k / tile_k(C) + (k % tile_k(C) != 0 ? 1 : 0); }
  static __device__ __forceinline__ int part(int k, int i) { return common::begin_of_part<C.split_k>(steps_of(k), i); }
  // A part without a step, and a K of 0, gets one behind the end of K: zeros, and no case of its own anywhere else.
  static __device__ __forceinline__ int begin_of_part(int k, int i) {
    return part(k, i) == part(k, i + 1) ? steps_of(k) + 1 : part(k, i);
  }

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / cluster_size(C); }
  __device__ __forceinline__ int stride() const { return static_cast<int>(gridDim.x) / cluster_size(C); }
  __device__ __forceinline__ int steps() const { return k_end - k_begin + (shares_steps(C) ? shared : 0); }
  // Where each part has a lap of the ring besides, which writes all of every slot.
  static __device__ __forceinline__ int shared_steps_of(int k) {
    return shares_steps(C) && steps_of(k) >= 2 * C.stages + kSharedSteps ? kSharedSteps : 0;
  }
  // The step behind one: the second part ends with those that the first one ends with.
  __device__ __forceinline__ int after(int step) const {
    const int next = step + 1;
    if constexpr (!shares_steps(C)) return next;
    return place.k == 1 && next == k_end ? k_begin - shared : next;
  }

  // Items that there are; of groups those up to the end of this one's group, to which the walk goes on, or all where no
  // group has it. Numbers ascend from call to call.
  __device__ __forceinline__ int items_up_to(int item) {
    if constexpr (is_grouped(C)) {
#pragma unroll 1
      while (group < p.l) {
        const int end = before + tiles_of_group() * tiles_n;
        if (item < end) return end;
        before = end;
        if (++group < p.l) read_group();
      }
      return before;
    } else {
      return items;
    }
  }

  // The tile of the item that was asked for last.
  __device__ __forceinline__ TileIndex at(int item) const {
    if constexpr (joins_factors(C) && !is_swapped(C)) return at_of_large(static_cast<unsigned>(item));
    const int of_m = is_grouped(C) ? tiles_of_group() : tiles_m;
    const int of_matrix = of_m * tiles_n;
    const int batch = is_grouped(C) ? group : item / of_matrix;
    const int within = is_grouped(C) ? item - before : item % of_matrix;
    // Along the rows of D, which are here M, or N with swap_ab; and across.
    const int tiles_along = is_swapped(C) ? tiles_n : of_m, tiles_across = is_swapped(C) ? of_m : tiles_n;
    const int raster = within / (C.raster * tiles_across), in_raster = within % (C.raster * tiles_across);
    const int height = min(tiles_along - raster * C.raster, C.raster);
    const int along = raster * C.raster + in_raster % height, across = in_raster / height;
    return index_of(is_swapped(C) ? across : along, is_swapped(C) ? along : across, batch);
  }

  // Of clusters; none of an empty group.
  __device__ __forceinline__ int tiles_of_group() const {
    constexpr int kRows = C.tile_m * C.cluster_m;
    return rows.count / kRows + (rows.count % kRows != 0 ? 1 : 0);
  }

 private:
  // The same of large tiles, which wait for it: without a sign, and without divisions that can be left out (150 cycles
  // each on an H200).
  __device__ __forceinline__ TileIndex at_of_large(unsigned item) const {
    static_assert(!is_swapped(C));
    const unsigned of_m = is_grouped(C) ? tiles_of_group() : tiles_m, columns = tiles_n;
    const unsigned batch = is_grouped(C) ? group : p.l == 1 ? 0 : item / (of_m * columns);
    const unsigned within = item - (is_grouped(C) ? before : batch * of_m * columns);
    const unsigned raster = within / (C.raster * columns), in_raster = within - raster * C.raster * columns;
    const unsigned height = min(of_m - raster * C.raster, static_cast<unsigned>(C.raster));
    unsigned n, in_column;
    if (height == C.raster) {
      n = in_raster / C.raster;
      in_column = in_raster - n * C.raster;
      if constexpr (turns_columns(C)) in_column = (in_column + n + 5 * batch) % C.raster;
    } else {
      n = in_raster / height;
      in_column = in_raster - n * height;
    }
    const unsigned m = raster * C.raster + in_column;
    return index_of(static_cast<int>(m), static_cast<int>(n), static_cast<int>(batch));
  }

  // `m`, `n`: of clusters' tiles, among those of a matrix or a group.
  __device__ __forceinline__ TileIndex index_of(int m, int n, int batch) const {
    const int row = (m * C.cluster_m + place.m) * C.tile_m, column = (n * C.cluster_n + place.n) * C.tile_n;
    if constexpr (!is_grouped(C)) return {row, column, batch, batch, p.m};
    return {rows.first + row, column, C.facts.grouping == Grouping::contiguous ? 0 : batch, batch,
            rows.first + rows.count};
  }

  __device__ __forceinline__ void read_group() {
    rows = group_rows<C.facts.grouping>(p.groups, group, p.m);
    if constexpr (kWalker == Walker::warp) {
      // The compiler keeps what follows in uniform registers, and branches on it do not part the warp.
      rows.first = __shfl_sync(0xffffffff, rows.first, 0);
      rows.count = __shfl_sync(0xffffffff, rows.count, 0);
    }
  }
};

}  // namespace tessera::gemm
