// The body of mHC's product. In and out, and who does what: see spec/mhc_product.h.
#pragma once

#include "common/illegal_config.cuh"
#include "common/ring.cuh"
#include "ptx/address.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/math.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "ptx/shared_words.cuh"
#include "ptx/tma.cuh"
#include "spec/mhc_product.h"

namespace tessera::mhc_product {

struct Params {
  const ptx::TensorMap& a;
  const ptx::TensorMap& b;
  float* d;
  long long d_stride_m;
  long long d_stride_split;
  float* sum_squares;
  long long sum_squares_stride_split;
  int m;
  int k;
};

inline constexpr int kTilesM = kRowsOfWarp / 16;

// A lane's sums: elements of mma's D, and squares of rows g and g + 8 of each 16.
template <Config C>
struct Sums {
  float d[kTilesM][C.n / kTileN][4];
  float squares[kTilesM][2];
};

// Where the CTA's part of k begins and ends.
struct Chunks {
  int begin, end;
};
template <Config C>
__device__ __forceinline__ Chunks chunks_of_cta(int k) {
  const int part = static_cast<int>(blockIdx.y) * C.ctas + static_cast<int>(blockIdx.x) % C.ctas;
  constexpr int kParts = C.splits * C.ctas;
  const long long chunks = k / kChunk;
  return {static_cast<int>(chunks * part / kParts), static_cast<int>(chunks * (part + 1) / kParts)};
}

template <Config C>
__device__ __forceinline__ int row_tile() {
  return static_cast<int>(blockIdx.x) / C.ctas;
}

template <Config C>
__device__ __forceinline__ unsigned first_barrier(unsigned smem) {
  return smem + smem_layout(C).barriers;
}

// One thread.
template <Config C>
__device__ __forceinline__ void load(const Params& p, unsigned smem, Chunks chunks) {
  constexpr int kSlots = C.stages;
  const int row = row_tile<C>() * rows_of_cta(C);
  common::RingPosition<kSlots> ring;
#pragma unroll 1
  for (int chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    const unsigned full = first_barrier<C>(smem) + 8 * ring.slot;
    ptx::mbarrier_wait_parity(common::empty_behind<kSlots>(full), ring.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, a_slot_bytes(C) + b_slot_bytes(C));
    // Of a everything is read once, b by all CTAs: a leaves the L2 first.
    ptx::tma_load_2d_with_policy(smem + ring.slot * a_slot_bytes(C), p.a, full, ptx::kEvictFirst, chunk * kChunk, row);
    ptx::tma_load_3d(smem + smem_layout(C).b + ring.slot * b_slot_bytes(C), p.b, full, 0, 0, chunk * kPanels);
    ring.advance();
  }
}

// x to bf16, rounded, and what that leaves over, as pairs.
__device__ __forceinline__ void split(unsigned low, unsigned high, unsigned& first, unsigned& second) {
  first = ptx::cvt_pack<DType::bf16>(__uint_as_float(low), __uint_as_float(high));
  second = ptx::cvt_pack<DType::bf16>(__uint_as_float(low) - __uint_as_float(first << 16),
                                      __uint_as_float(high) - __uint_as_float(first & 0xffff0000u));
}

__device__ __forceinline__ void add_squares(unsigned pair, float& sum) {
  const float low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
  sum = fmaf(low, low, sum);
  sum = fmaf(high, high, sum);
}

// A chunk. a: of the lane, its row and 16 bytes of the first step; b: of the lane, its first two columns of the first
// panel.
template <Config C>
__device__ __forceinline__ void multiply(unsigned a, unsigned b, Sums<C>& sums) {
  constexpr unsigned kPanelBytes = b_slot_bytes(C) / kPanels;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    unsigned elements[kTilesM][4];
#pragma unroll
    for (int tile = 0; tile < kTilesM; ++tile) {
      ptx::ldmatrix_x4((a ^ static_cast<unsigned>(32 * step)) + tile * 16 * kRowBytes, elements[tile]);
#pragma unroll
      for (int r = 0; r < 4; ++r) add_squares(elements[tile][r], sums.squares[tile][r % 2]);
    }
#pragma unroll
    for (int tile = 0; tile < C.n / kTileN; ++tile) {
      unsigned first[2], second[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned low, high;
        ptx::ld_shared_v2((b ^ static_cast<unsigned>(64 * (step % 2) + 32 * half)) +
                              static_cast<unsigned>(step / 2) * kPanelBytes + tile * kTileN * kRowBytes,
                          low, high);
        split(low, high, first[half], second[half]);
      }
#pragma unroll
      for (int of_m = 0; of_m < kTilesM; ++of_m)
        ptx::mma_m16n8k16<DType::bf16>(sums.d[of_m][tile], elements[of_m], first[0], first[1]);
#pragma unroll
      for (int of_m = 0; of_m < kTilesM; ++of_m)
        ptx::mma_m16n8k16<DType::bf16>(sums.d[of_m][tile], elements[of_m], second[0], second[1]);
    }
  }
}

template <Config C>
__device__ __forceinline__ void add_products(unsigned smem, Chunks chunks, int warp, Sums<C>& sums) {
  constexpr int kSlots = C.stages;
  const unsigned lane = threadIdx.x % kWarp, row = warp % C.warps_m * kRowsOfWarp + lane % 16;
  const unsigned of_a = row * kRowBytes + (lane / 16 ^ lane % 8) * 16;
  const unsigned of_b = smem_layout(C).b + lane / 4 * kRowBytes + ((lane % 4 / 2 ^ lane / 4) * 16 + lane % 2 * 8);
  const int turn = warp / C.warps_m;
  common::RingPosition<kSlots> ring;
  ring.advance(turn);
#pragma unroll 1
  for (int chunk = chunks.begin + turn; chunk < chunks.end; chunk += C.warps_k) {
    const unsigned full = first_barrier<C>(smem) + 8 * ring.slot;
    ptx::mbarrier_wait_parity(full, ring.parity);
    multiply<C>(smem + ring.slot * a_slot_bytes(C) + of_a, smem + ring.slot * b_slot_bytes(C) + of_b, sums);
    ptx::fence_proxy_async_shared();  // ends the reads before TMA's next write
    __syncwarp();
    if (ptx::elect_sync()) ptx::mbarrier_arrive(common::empty_behind<kSlots>(full));
    ring.advance(C.warps_k);
  }
}

// A warp's sums, row by row, to shared memory: of squares the four lanes of a group have a part each.
template <Config C>
__device__ __forceinline__ void store_part(int warp, const Sums<C>& sums, unsigned parts) {
  const int group = static_cast<int>(threadIdx.x) % kWarp / 4, member = static_cast<int>(threadIdx.x) % 4;
  const int first = warp / C.warps_m * rows_of_cta(C) + warp % C.warps_m * kRowsOfWarp;
#pragma unroll
  for (int tile = 0; tile < kTilesM; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned row = parts + 4 * row_floats(C) * (first + 16 * tile + 8 * i + group);
#pragma unroll
      for (int of_n = 0; of_n < C.n / kTileN; ++of_n)
        ptx::st_shared_v2_f32(row + 4 * (of_n * kTileN + 2 * member), sums.d[tile][of_n][2 * i],
                              sums.d[tile][of_n][2 * i + 1]);
      float squares = sums.squares[tile][i];
      squares += __shfl_xor_sync(0xffffffffu, squares, 1);
      squares += __shfl_xor_sync(0xffffffffu, squares, 2);
      if (member == 0) ptx::st_shared_v4_f32(row + 4 * C.n, squares, 0, 0, 0);
    }
  }
}

// Four columns of a row; of the last four the first is the squares'.
template <Config C>
__device__ __forceinline__ void store(const Params& p, int of_cta, int column, const float (&sum)[4]) {
  const int row = row_tile<C>() * rows_of_cta(C) + of_cta;
  if (row >= p.m) return;
  const long long split = blockIdx.y;
  if (column < C.n) {
    float* const to = p.d + split * p.d_stride_split + row * p.d_stride_m + column;
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = sum[i];
  } else {
    p.sum_squares[split * p.sum_squares_stride_split + row] = sum[0];
  }
}

// Four columns, of kParts rows that lie kDistance floats apart.
template <int kParts, int kDistance>
__device__ __forceinline__ void sum_of(unsigned from, float (&sum)[4]) {
  float part[kParts][4];
#pragma unroll
  for (int i = 0; i < kParts; ++i) ptx::ld_shared_v4_f32(from + 4 * kDistance * i, part[i]);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    sum[c] = part[0][c];
#pragma unroll
    for (int i = 1; i < kParts; ++i) sum[c] += part[i][c];
  }
}

// Parts of k are added up: the CTA's warps' first, then the cluster's CTAs', by the one that has the row.
template <Config C>
__device__ __forceinline__ void add_parts(const Params& p, unsigned parts) {
  constexpr int kVectors = C.n / 4 + 1, kRank = rows_of_rank(C);
  const unsigned gathered = parts + smem_layout(C).gathered;
  const int rank = static_cast<int>(blockIdx.x) % C.ctas;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < rows_of_cta(C) * kVectors; i += threads(C)) {
    const int row = i / kVectors, column = i % kVectors * 4;
    float sum[4];
    sum_of<C.warps_k, rows_of_cta(C) * row_floats(C)>(parts + 4 * (row * row_floats(C) + column), sum);
    if constexpr (C.ctas == 1) {
      store<C>(p, row, column, sum);
    } else {
      const unsigned to =
          ptx::mapa(gathered + 4 * ((rank * kRank + row % kRank) * row_floats(C) + column), row / kRank);
      ptx::st_cluster_v4_f32(to, sum);
    }
  }
  if constexpr (C.ctas > 1) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kRank * kVectors; i += threads(C)) {
      const int row = i / kVectors, column = i % kVectors * 4;
      float sum[4];
      sum_of<C.ctas, kRank * row_floats(C)>(gathered + 4 * (row * row_floats(C) + column), sum);
      store<C>(p, rank * kRank + row, column, sum);
    }
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned smem = ptx::shared_address(shared_memory);
  ptx::griddepcontrol_launch_dependents();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  constexpr int kLoader = product_warps(C);
  if (threadIdx.x == kWarp * kLoader) {
    ptx::prefetch_tensormap(p.a);
    ptx::prefetch_tensormap(p.b);
    common::init_ring<C.stages>(first_barrier<C>(smem), 1, C.warps_m);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if constexpr (C.ctas > 1) ptx::cluster_arrive_relaxed();
  ptx::griddepcontrol_wait();
  const Chunks chunks = chunks_of_cta<C>(p.k);
  if (warp == kLoader) {
    if (ptx::elect_sync()) load<C>(p, smem, chunks);
    __syncwarp();
  } else {
    Sums<C> sums = {};
    add_products<C>(smem, chunks, warp, sums);
    // The last slots may be read by others still.
    ptx::barrier_sync(1, kWarp * product_warps(C));
    store_part<C>(warp, sums, smem);
  }
  if constexpr (C.ctas > 1) ptx::cluster_wait();
  __syncthreads();
  add_parts<C>(p, smem);
}

}  // namespace tessera::mhc_product
