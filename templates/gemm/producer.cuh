// The producer: one thread loads A and B of each step along K into the ring.
//
// Where CTAs of a cluster share an operand, each loads its part of it and multicasts that to all of them, so a slot is
// free only once the consumers of all of them have released it: each consumer warp says so to every CTA that writes
// into its shared memory. A slot's full barrier expects the whole of both operands, whoever loads them.
//
// Where a tile reaches behind the matrix, boxes that lie there are left out, once every slot has been written. Those
// that must come (see rows_of_part) are the matrix's last rows again: TMA fills rows behind an edge with zeros more
// slowly than it loads others. What a slot holds there meets only rows and columns of D that nobody stores. Of a dual
// gate's B and B2, which have half of a slot each, all boxes are loaded.
//
// With one row of tiles B is read once, with up to four by CTAs that keep step: its lines leave the L2 first, so that
// they do not drive out what others left there. On an H200 whose L2 was full of written lines that took up to 14 % off
// products of 64 rows, up to 13 % off those of 128 and 256, and up to 11 % off those of 288 to 384. What was written
// then stays for the whole launch, and lines that leave first may leave before they were used, so a B of 470 MB and
// more is slower by it, by 1 to 4 %. With swap_ab what B is there is here A. The steps exist twice, with that and
// without: a choice within took 1 % of short products. Of groups it is known how many rows they have on average, or may
// have.
#pragma once

#include "common/ring.cuh"
#include "gemm/addend.cuh"
#include "gemm/params.cuh"
#include "gemm/schedule.cuh"
#include "ptx/elect.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/tma_prefetch.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// One operand of one step: of the `kRows` rows of the tile this CTA loads the first `rows` of part `part` of `kParts`,
// box by box, for the CTAs of `ctas`. `slot`: where the operand begins. `begin`: the matrix's row where the part does.
template <Config C, Layout kLayout, int kRows, int kParts, int kBoxRows, bool kLeavesFirst>
__device__ __forceinline__ void load_operand(const ptx::TensorMap& map, unsigned slot, unsigned full, int part,
                                             unsigned short ctas, int step, int begin, int rows, int batch) {
  constexpr int kPartRows = kRows / kParts;
  const auto load = [&](unsigned destination, int c0, int c1) {
    if constexpr (kParts > 1 && kLeavesFirst) {
      ptx::tma_load_3d_multicast_with_policy(destination, map, full, ctas, ptx::kEvictFirst, c0, c1, batch);
    } else if constexpr (kParts > 1) {
      ptx::tma_load_3d_multicast(destination, map, full, ctas, c0, c1, batch);
    } else if constexpr (kLeavesFirst) {
      ptx::tma_load_3d_with_policy(destination, map, full, ptx::kEvictFirst, c0, c1, batch);
    } else {
      ptx::tma_load_3d(destination, map, full, c0, c1, batch);
    }
  };
  const int first = part * kPartRows;
  const int k = step * tile_k(C);
#pragma unroll
  for (int i = 0; i < kPartRows; i += kBoxRows) {
    if (i >= rows) break;
    // MN-major panels of one span along the rows have as many bytes as the K-major rows that they stand for.
    const unsigned destination = slot + (first + i) * kStepBytes;
    if constexpr (kLayout == Layout::k_major) {
      load(destination, k, begin + i);
    } else {
      load(destination, begin + i, k);
    }
  }
}

// Where a part begins in a matrix of `extent` rows, or what is loaded for one that lies behind it. MN-major, TMA wants
// a multiple of 16 bytes.
template <int kRows, int kParts, int kBoxRows>
__device__ __forceinline__ int row_of_part(int row, int part, int extent) {
  const int begin = row + part * (kRows / kParts);
  return kParts == 1 || begin < extent ? begin : max(extent - kBoxRows, 0) / 8 * 8;
}

// How many rows of a part to load, in whole boxes, where `left` rows of the tile lie within the matrix. A part that
// CTAs share has a box at least: its arrival is how they know that the CTA which loads it still keeps step.
template <int kRows, int kParts, int kBoxRows>
__device__ __forceinline__ int rows_of_part(int left, int part) {
  const int rows = (left - part * (kRows / kParts) + kBoxRows - 1) / kBoxRows * kBoxRows;
  return min(max(rows, kParts > 1 ? kBoxRows : 0), kRows / kParts);
}
// Of all parts.
template <int kRows, int kParts, int kBoxRows>
__device__ __forceinline__ int rows_of_parts(int left) {
  int rows = 0;
#pragma unroll
  for (int part = 0; part < kParts; ++part) rows += rows_of_part<kRows, kParts, kBoxRows>(left, part);
  return rows;
}

// B of a step with a dual gate: `begin` is the row of both matrices where the tile does.
template <Config C, bool kLeavesFirst>
__device__ __forceinline__ void load_dual(const Params& p, unsigned slot, unsigned full, int part, unsigned short ctas,
                                          int step, int begin, int batch) {
  constexpr int kRows = b_slot_rows(C), kHalf = kRows / 2, kParts = C.cluster_m;
  if constexpr (kParts == 1) {
    load_operand<C, b_layout(C), kHalf, 1, b_box_rows(C), kLeavesFirst>(p.b, slot, full, 0, ctas, step, begin, kHalf,
                                                                        batch);
    load_operand<C, b_layout(C), kHalf, 1, b_box_rows(C), kLeavesFirst>(*p.b2, slot + kHalf * kStepBytes, full, 0, ctas,
                                                                        step, begin, kHalf, batch);
  } else {
    const int first = part * (kRows / kParts);
    load_operand<C, b_layout(C), kRows, kParts, b_box_rows(C), kLeavesFirst>(
        first < kHalf ? p.b : *p.b2, slot, full, part, ctas, step, begin + first % kHalf, kRows / kParts, batch);
  }
}

// The product's b of the first steps of a tile, which begins at `row`, into the L2: no CTA sees what comes there, so
// the launch before may still run, and write it.
template <Config C>
__device__ __forceinline__ void prefetch_weights(const Params& p, int row, int batch, int first_step, int steps) {
  constexpr int kRows = is_swapped(C) ? C.tile_m / C.cluster_n : b_slot_rows(C) / C.cluster_m;
  constexpr int kBoxRows = is_swapped(C) ? a_box_rows(C) : b_box_rows(C);
#pragma unroll 1
  for (int step = first_step; step < first_step + min(steps, prefetched_steps(C)); ++step) {
#pragma unroll
    for (int i = 0; i < kRows; i += kBoxRows)
      ptx::tma_prefetch_3d(is_swapped(C) ? p.a : p.b, step * tile_k(C), row + i, batch);
  }
}

// Whether the next launch may start when this one's loads are on their way, not at once: where multiprocessors are idle
// its CTAs would come there in pairs, and leave others idle in their turn (8 x 7,168 x 2,048 on an H200: 6.1 us in
// place of 5.3). One for each finds its place beside one of this launch: 16 x 64 tiles of 8 x 24,576 x 1,536 then
// took 12.8 us in place of 11.1 if they came late.
template <Config C>
__device__ __forceinline__ bool lets_next_start_late() {
  return roles_wait(C) && gridDim.x < kCtasOfDevice;
}

template <Config C, bool kIsStreamed>
__device__ __forceinline__ void produce_tiles(const Params& p, unsigned smem,
                                              TileSchedule<C, Walker::thread>& schedule) {
  constexpr SmemLayout kLayout = smem_layout(C);
  constexpr int kHalf = C.tile_n / 2;  // of the columns, where CTAs share steps: a slot has the own ones first
  constexpr int kBytesOfA = is_gathered(C) ? 0 : a_slot_bytes(C);  // other warps copy rows by a list (gather.cuh)
  const Barriers barriers = barriers_at<C>(smem);
  const ClusterPlace<C>& place = schedule.place;
  // The ranks that share this CTA's A, and those that share its B.
  constexpr unsigned kRow = (1u << C.cluster_n) - 1;
  unsigned column = 0;
#pragma unroll
  for (int i = 0; i < C.cluster_m; ++i) column |= 1u << (i * C.cluster_n);
  const int first_rank = place.k * multicast_size(C);
  const auto a_ctas = static_cast<unsigned short>(kRow << (first_rank + place.m * C.cluster_n));
  const auto b_ctas = static_cast<unsigned short>(column << (first_rank + place.n));

  common::RingPosition<C.stages> ring;
  AddendPrefetch<C> addend(p);
  int unwritten = C.stages;  // slots: their first contents are the whole tile, zeros behind the matrix
#pragma unroll 1
  for (int item = schedule.first(); item < schedule.items_up_to(item); item += schedule.stride()) {
    TileIndex tile = schedule.at(item);
    if constexpr (roles_wait(C)) tile.hold();
    const int left_m = tile.row_end - tile.row, left_n = p.n - tile.column;
    const int bytes =
        ((is_gathered(C) ? 0 : rows_of_parts<C.tile_m, C.cluster_n, a_box_rows(C)>(left_m)) +
         (is_dual(C) ? b_slot_rows(C) : rows_of_parts<b_slot_rows(C), C.cluster_m, b_box_rows(C)>(left_n))) *
        kStepBytes;
    const int a_rows = rows_of_part<C.tile_m, C.cluster_n, a_box_rows(C)>(left_m, place.n);
    const int b_rows = rows_of_part<b_slot_rows(C), C.cluster_m, b_box_rows(C)>(left_n, place.m);
    const int a_begin = row_of_part<C.tile_m, C.cluster_n, a_box_rows(C)>(tile.row, place.n, p.m);
    const int b_begin = row_of_part<b_slot_rows(C), C.cluster_m, b_box_rows(C)>(tile.column, place.m, p.n);
    if constexpr (roles_wait(C)) {
      if (item == schedule.first()) {
        prefetch_weights<C>(p, is_swapped(C) ? a_begin : b_begin, is_swapped(C) ? tile.batch : tile.b_batch,
                            schedule.k_begin, schedule.steps());
        ptx::griddepcontrol_wait();
      }
    }
    addend.begin(tile, place.k);
#pragma unroll 1
    for (int step = schedule.k_begin, left = schedule.steps(); left > 0; step = schedule.after(step), --left) {
      const unsigned full = barriers.full[ring.slot];
      ptx::mbarrier_wait_parity(common::empty_behind<C.stages>(full), ring.parity ^ 1);
      const bool is_shared = shares_steps(C) && left <= schedule.shared;  // the own columns alone, in whole boxes
      int of_step = unwritten > 0 ? kBytesOfA + b_slot_bytes(C) : bytes;
      if constexpr (shares_steps(C))
        of_step = ((unwritten > 0 ? C.tile_m : a_rows) + (is_shared ? kHalf : 2 * kHalf)) * kStepBytes;
      ptx::mbarrier_arrive_expect_tx(full, of_step);
      if constexpr (!is_gathered(C))
        load_operand<C, a_layout(C), C.tile_m, C.cluster_n, a_box_rows(C), kIsStreamed && is_swapped(C)>(
            p.a, smem + kLayout.a.offset + ring.slot * a_slot_bytes(C), full, place.n, a_ctas, step, a_begin,
            unwritten > 0 ? C.tile_m : a_rows, tile.batch);
      const unsigned of_b = smem + kLayout.b.offset + ring.slot * b_slot_bytes(C);
      if constexpr (is_dual(C)) {
        load_dual<C, kIsStreamed>(p, of_b, full, place.m, b_ctas, step, tile.column / 2, tile.b_batch);
      } else if constexpr (shares_steps(C)) {
        const int own = tile.column + place.k * kHalf, others = tile.column + (1 - place.k) * kHalf;
        load_operand<C, b_layout(C), kHalf, 1, kHalf, kIsStreamed>(p.b, of_b, full, 0, 0, step, own, kHalf,
                                                                   tile.b_batch);
        if (!is_shared)
          load_operand<C, b_layout(C), kHalf, 1, kHalf, kIsStreamed>(p.b, of_b + kHalf * kStepBytes, full, 0, 0, step,
                                                                     others, kHalf, tile.b_batch);
      } else {
        load_operand<C, b_layout(C), b_slot_rows(C), C.cluster_m, b_box_rows(C), kIsStreamed && !is_swapped(C)>(
            p.b, of_b, full, place.m, b_ctas, step, b_begin, unwritten > 0 ? b_slot_rows(C) : b_rows, tile.b_batch);
      }
      addend.step();
      if (unwritten > 0) --unwritten;
      ring.advance();
    }
  }
  if constexpr (roles_wait(C))
    if (lets_next_start_late<C>()) ptx::griddepcontrol_launch_dependents();
  // The others' arrivals still come to this CTA's barriers: it stays until the last slots are back.
  if constexpr (multicast_size(C) > 1) {
#pragma unroll 1
    for (int i = 0; i < C.stages; ++i) {
      ptx::mbarrier_wait_parity(barriers.empty[ring.slot], ring.parity ^ 1);
      ring.advance();
    }
  }
}

template <Config C>
__device__ __forceinline__ void produce(const Params& p, unsigned smem) {
  TileSchedule<C, Walker::thread> schedule{p};
  const int rows_of_clusters = is_swapped(C)                              ? schedule.tiles_n
                               : C.facts.grouping == Grouping::contiguous ? schedule.tiles_m / max(p.l, 1) + 1
                                                                          : schedule.tiles_m;
  if (is_streamed(C, rows_of_clusters, is_swapped(C) ? p.m : p.n, p.k, p.l)) {
    produce_tiles<C, true>(p, smem, schedule);
  } else {
    produce_tiles<C, false>(p, smem, schedule);
  }
}

}  // namespace tessera::gemm
