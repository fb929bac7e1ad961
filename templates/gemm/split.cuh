// Adding up the parts of K, in the order of the parts, so that the result does not depend on who was first. Each CTA
// stores some columns of the tile.
//
// Where there is room for them (sends_sums), every CTA sends the others the sums of their columns as soon as it has
// multiplied, and waits for as many bytes: one way through the cluster, and none of both has to stay for the other. Two
// CTAs hide that behind steps of which each multiplies its own columns alone (shares_steps).
// Elsewhere every CTA of a tile leaves its sums in its own shared memory, where the ring was, and after a barrier of
// the cluster each fetches those of its columns from all of them.
//
// Sums lie as the threads hold them: four values of a thread are 16 bytes, those of a warpgroup's threads side by side.
#pragma once

#include "gemm/matmul.cuh"
#include "gemm/schedule.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "spec/gemm.h"

namespace tessera::gemm {

// Of four values of this thread: those of columns 8 * group to 8 * group + 7 of a block.
template <Config C>
__device__ __forceinline__ unsigned partial_sums_address(unsigned smem, int block, int group) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  return smem + ((block * (C.tile_n / 8) + group) * kWarpgroupThreads + thread) * 16;
}
// From those of the first block and group to others: known when the kernel is compiled.
template <Config C>
__device__ __forceinline__ constexpr unsigned partial_sums_offset(int block, int group) {
  return static_cast<unsigned>((block * (C.tile_n / 8) + group) * kWarpgroupThreads * 16);
}

// The ring is free once all consumers have multiplied: its slots were filled and waited for, and no other loads follow.
template <Config C>
__device__ __forceinline__ void share_partial_sums(const Accumulators<C>& sums, unsigned smem, int first_block) {
  const unsigned to = partial_sums_address<C>(smem, first_block, 0);
#pragma unroll
  for (int i = 0; i < blocks(C); ++i) {
#pragma unroll
    for (int g = 0; g < C.tile_n / 8; ++g)
      ptx::st_shared_v4_f32(to + partial_sums_offset<C>(i, g), sums[i][4 * g], sums[i][4 * g + 1], sums[i][4 * g + 2],
                            sums[i][4 * g + 3]);
  }
}

// One arrival of each warp, at every CTA whose sums it has fetched. `fetched`: the barrier of this CTA.
template <Config C>
__device__ __forceinline__ void release_partial_sums(unsigned fetched, const ClusterPlace<C>& place) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
  if (lane < C.split_k)
    ptx::mbarrier_arrive_cluster(ptx::mapa(fetched, lane * multicast_size(C) + place.rank_in_part()));
}

// Where an epilogue finds the sums of its panels: the parts of all CTAs, added up. A panel and a few parts at a time,
// because the loads of all at once would ask for more registers than there are.
template <Config C>
struct PartialSums {
  static constexpr int kRegisters = panel_columns(C) / 2;

  const unsigned smem;
  const int first_block;
  const ClusterPlace<C>& place;

  __device__ __forceinline__ void operator()(float (&sums)[kRegisters], int block, int panel) const {
    const unsigned own = partial_sums_address<C>(smem, first_block, place.k * (stored_columns(C) / 8));
    const int rank_in_part = place.rank_in_part();
#pragma unroll
    for (int v = 0; v < kRegisters; ++v) sums[v] = 0.0f;
    constexpr int kPartsAtOnce = kRegisters >= 32 ? 2 : 4;
#pragma unroll kPartsAtOnce
    for (int part = 0; part < C.split_k; ++part) {
      const unsigned from = ptx::mapa(own, part * multicast_size(C) + rank_in_part);
#pragma unroll
      for (int g = 0; g < kRegisters / 4; ++g) {
        float values[4];
        ptx::ld_cluster_v4_f32(from + partial_sums_offset<C>(block, panel * (kRegisters / 4) + g), values);
#pragma unroll
        for (int v = 0; v < 4; ++v) sums[4 * g + v] += values[v];
      }
    }
  }
};

// Where this thread finds the first four sums of the first other part; the rest lies behind, part after part.
template <Config C>
__device__ __forceinline__ unsigned incoming_sums(unsigned smem, int warpgroup) {
  constexpr int kOffset = smem_layout(C).d.offset;
  return smem + kOffset + warpgroup * staging_bytes(C) + static_cast<int>(threadIdx.x) % kWarpgroupThreads * 16;
}

// `arrived`: the barrier at which bytes count, of this CTA as `incoming` is.
template <Config C>
__device__ __forceinline__ void send_partial_sums(const Accumulators<C>& sums, unsigned incoming, unsigned arrived,
                                                  const ClusterPlace<C>& place) {
  constexpr int kGroups = stored_columns(C) / 8;
#pragma unroll
  for (int part = 0; part < C.split_k; ++part) {
    if (part == place.k) continue;
    const int rank = part * multicast_size(C) + place.rank_in_part();
    const unsigned to = ptx::mapa(incoming, rank) + (place.k - (place.k > part)) * incoming_part_bytes(C);
    const unsigned barrier = ptx::mapa(arrived, rank);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int v = 4 * (part * kGroups + g);
      ptx::st_async_v4_f32(to + g * kWarpgroupThreads * 16, barrier, sums[0][v], sums[0][v + 1], sums[0][v + 2],
                           sums[0][v + 3]);
    }
  }
}

// The same of two parts that share steps: the own columns are the first half of the sums.
template <Config C>
__device__ __forceinline__ void send_other_half(const Accumulators<C>& sums, unsigned incoming, unsigned arrived,
                                                const ClusterPlace<C>& place) {
  constexpr int kGroups = stored_columns(C) / 8;
  const int rank = (1 - place.k) * multicast_size(C) + place.rank_in_part();
  const unsigned to = ptx::mapa(incoming, rank), barrier = ptx::mapa(arrived, rank);
#pragma unroll
  for (int g = kGroups; g < 2 * kGroups; ++g)
    ptx::st_async_v4_f32(to + (g - kGroups) * kWarpgroupThreads * 16, barrier, sums[0][4 * g], sums[0][4 * g + 1],
                         sums[0][4 * g + 2], sums[0][4 * g + 3]);
}

// Where an epilogue finds the sums of its panels: this CTA's own and those that have come, added up at once. The
// panels' memory is that of what came: each thread has read its part before the barrier in front of the first panel.
template <Config C>
struct ReceivedSums {
  static constexpr int kRegisters = panel_columns(C) / 2;

  float sums_of_columns[stored_columns(C) / 2];

  __device__ __forceinline__ ReceivedSums(const Accumulators<C>& own, unsigned incoming, int own_part) {
    if constexpr (shares_steps(C)) {
#pragma unroll
      for (int g = 0; g < stored_columns(C) / 8; ++g) {
        float values[4];
        ptx::ld_shared_v4_f32(incoming + g * kWarpgroupThreads * 16, values);
#pragma unroll
        for (int v = 0; v < 4; ++v) sums_of_columns[4 * g + v] = own[0][4 * g + v] + values[v];
      }
    } else {
      add_parts(own, incoming, own_part);
    }
  }

  __device__ __forceinline__ void operator()(float (&sums)[kRegisters], int, int panel) const {
#pragma unroll
    for (int v = 0; v < kRegisters; ++v) sums[v] = sums_of_columns[panel * kRegisters + v];
  }

 private:
  __device__ __forceinline__ void add_parts(const Accumulators<C>& own, unsigned incoming, int own_part) {
#pragma unroll
    for (float& sum : sums_of_columns) sum = 0.0f;
#pragma unroll
    for (int part = 0; part < C.split_k; ++part) {
      const unsigned from = incoming + (part - (part > own_part)) * incoming_part_bytes(C);
#pragma unroll
      for (int g = 0; g < stored_columns(C) / 8; ++g) {
        float values[4];
        if (part == own_part) {
#pragma unroll
          for (int v = 0; v < 4; ++v) values[v] = own[0][part * stored_columns(C) / 2 + 4 * g + v];
        } else {
          ptx::ld_shared_v4_f32(from + g * kWarpgroupThreads * 16, values);
        }
#pragma unroll
        for (int v = 0; v < 4; ++v) sums_of_columns[4 * g + v] += values[v];
      }
    }
  }
};

}  // namespace tessera::gemm
