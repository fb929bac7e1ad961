// The body of mHC's product. In and out: see spec/mhc_product.h.
#pragma once

#include "common/illegal_config.cuh"
#include "ptx/address.cuh"
#include "ptx/cluster.cuh"
#include "ptx/global_written.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/math.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_words.cuh"
#include "spec/mhc_product.h"

namespace tessera::mhc_product {

struct Params {
  const void* a;
  long long a_stride_m;
  const float* b;
  long long b_stride_n;
  float* d;
  long long d_stride_m;
  long long d_stride_split;
  float* sum_squares;
  long long sum_squares_stride_split;
  int m;
  int k;
};

inline constexpr int kTilesM = kRowsOfWarp / 16, kHalves = kChunk / kHalfChunk;

// A lane's sums: elements of mma's D, and squares of rows g and g + 8 of each 16.
template <Config C>
struct Sums {
  float d[kTilesM][C.n / kTileN][4];
  float squares[kTilesM][2];
};

// 8 elements of rows g and g + 8 of each 16, from two places of k.
struct Elements {
  ptx::Vector4 of[kHalves][kTilesM][2];
};

struct Place {
  int group;   // of 4 lanes: which row of 8
  int member;  // of the group: which 8 of 32 columns
  int row;     // the warp's first
  int turn;    // which of the CTA's warps_k chunks of a round is the warp's
  int chunk;   // where the CTA's part of k begins, and where it ends
  int end;
};

template <Config C>
__device__ __forceinline__ Place place_of_warp(const Params& p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int rank = static_cast<int>(blockIdx.x) % C.ctas, tile = static_cast<int>(blockIdx.x) / C.ctas;
  const int part = static_cast<int>(blockIdx.y) * C.ctas + rank;
  constexpr int kParts = C.splits * C.ctas;
  const long long chunks = p.k / kChunk;
  Place place;
  place.group = lane / 4;
  place.member = lane % 4;
  place.row = tile * rows_of_cta(C) + warp % C.warps_m * kRowsOfWarp;
  place.turn = warp / C.warps_m;
  place.chunk = static_cast<int>(chunks * part / kParts);
  place.end = static_cast<int>(chunks * (part + 1) / kParts);
  return place;
}

// 4 neighbours of a row of b for each of these: of the group of warps that have the same columns.
template <Config C>
struct Coefficients {
  static constexpr int kQuads = kChunk / 4, kThreads = kWarp * C.warps_m;
  static constexpr int kCount = (C.n * kQuads + kThreads - 1) / kThreads;
  ptx::Vector4 of[kCount];
};

// Of the chunk; behind the CTA's last one nothing.
template <Config C>
__device__ __forceinline__ void load_b(const Params& p, const Place& place, int chunk, Coefficients<C>& b) {
  using B = Coefficients<C>;
  if (chunk >= place.end) return;
#pragma unroll
  for (int i = 0; i < B::kCount; ++i) {
    const int at = i * B::kThreads + static_cast<int>(threadIdx.x) % B::kThreads;
    if (C.n * B::kQuads % B::kThreads == 0 || at < C.n * B::kQuads)
      b.of[i] = ptx::ld_global_v4_written(p.b + at / B::kQuads * p.b_stride_n + static_cast<long long>(chunk) * kChunk +
                                          4 * (at % B::kQuads));
  }
}

// x to bf16, rounded, and what that leaves over, as pairs.
__device__ __forceinline__ void split(float low, float high, unsigned& first, unsigned& second) {
  first = ptx::cvt_pack<DType::bf16>(low, high);
  second = ptx::cvt_pack<DType::bf16>(low - __uint_as_float(first << 16), high - __uint_as_float(first & 0xffff0000u));
}

// Quad q of row 8 tile + g: half q / 8, member q / 2 % 4, step q % 2 of the half.
template <Config C>
__device__ __forceinline__ void store_b(const Coefficients<C>& b, unsigned stage) {
  using B = Coefficients<C>;
#pragma unroll
  for (int i = 0; i < B::kCount; ++i) {
    const int at = i * B::kThreads + static_cast<int>(threadIdx.x) % B::kThreads;
    const int row = at / B::kQuads, quad = at % B::kQuads;
    const int step = quad / 8 * 2 + quad % 2, lane = row % kTileN * 4 + quad / 2 % 4;
    ptx::Words4 words;
    split(__uint_as_float(b.of[i].x), __uint_as_float(b.of[i].y), words.x, words.z);
    split(__uint_as_float(b.of[i].z), __uint_as_float(b.of[i].w), words.y, words.w);
    if (C.n * B::kQuads % B::kThreads == 0 || at < C.n * B::kQuads)
      ptx::st_shared_v4(stage + static_cast<unsigned>(((step * C.n / kTileN + row / kTileN) * kWarp + lane) * 16),
                        words);
  }
}

__device__ __forceinline__ void load_a(const Place& place, const char* const (&rows)[kTilesM][2], int chunk,
                                       Elements& a) {
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int at = chunk * kChunk + half * kHalfChunk + place.member * kVector;
#pragma unroll
    for (int tile = 0; tile < kTilesM; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) a.of[half][tile][i] = ptx::ld_global_v4_written(rows[tile][i] + 2LL * at);
    }
  }
}

__device__ __forceinline__ void add_squares(const ptx::Vector4& pairs, float& sum) {
  const unsigned words[4] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = __uint_as_float(words[i] << 16), high = __uint_as_float(words[i] & 0xffff0000u);
    sum = fmaf(low, low, sum);
    sum = fmaf(high, high, sum);
  }
}

// A chunk. stage: of the warp's lane.
template <Config C>
__device__ __forceinline__ void multiply(unsigned stage, const Elements& a, Sums<C>& sums) {
  constexpr int kTilesN = C.n / kTileN;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const ptx::Vector4(&of_half)[kTilesM][2] = a.of[step / 2];
    unsigned elements[kTilesM][4];
#pragma unroll
    for (int tile = 0; tile < kTilesM; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        elements[tile][i] = step % 2 == 0 ? of_half[tile][i].x : of_half[tile][i].z;
        elements[tile][2 + i] = step % 2 == 0 ? of_half[tile][i].y : of_half[tile][i].w;
        if (step % 2 == 0) add_squares(of_half[tile][i], sums.squares[tile][i]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTilesN; ++tile) {
      const ptx::Words4 b = ptx::ld_shared_v4(stage + static_cast<unsigned>((step * kTilesN + tile) * kWarp * 16));
#pragma unroll
      for (int of_m = 0; of_m < kTilesM; ++of_m) {
        ptx::mma_m16n8k16<DType::bf16>(sums.d[of_m][tile], elements[of_m], b.x, b.y);
        ptx::mma_m16n8k16<DType::bf16>(sums.d[of_m][tile], elements[of_m], b.z, b.w);
      }
    }
  }
}

// A warp's sums, row by row, to shared memory: of squares the four lanes of a group have a part each.
template <Config C>
__device__ __forceinline__ void store_part(const Place& place, Sums<C>& sums, float* parts) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* const part = parts + (warp / C.warps_m * rows_of_cta(C) + warp % C.warps_m * kRowsOfWarp) * row_floats(C);
#pragma unroll
  for (int tile = 0; tile < kTilesM; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* const row = part + (16 * tile + 8 * i + place.group) * row_floats(C);
#pragma unroll
      for (int of_n = 0; of_n < C.n / kTileN; ++of_n) {
        row[of_n * kTileN + 2 * place.member] = sums.d[tile][of_n][2 * i];
        row[of_n * kTileN + 2 * place.member + 1] = sums.d[tile][of_n][2 * i + 1];
      }
      float squares = sums.squares[tile][i];
      squares += __shfl_xor_sync(0xffffffffu, squares, 1);
      squares += __shfl_xor_sync(0xffffffffu, squares, 2);
      if (place.member == 0) row[C.n] = squares;
    }
  }
}

template <Config C>
__device__ __forceinline__ void store(const Params& p, int row, int column, float sum) {
  if (row >= p.m) return;
  const long long split = blockIdx.y;
  if (column < C.n) {
    p.d[split * p.d_stride_split + row * p.d_stride_m + column] = sum;
  } else {
    p.sum_squares[split * p.sum_squares_stride_split + row] = sum;
  }
}

// Parts of k are added up: the CTA's warps' first, then the cluster's CTAs', by the one that has the row.
template <Config C>
__device__ __forceinline__ void add_parts(const Params& p, float* parts) {
  constexpr int kColumns = C.n + 1, kRank = rows_of_rank(C);
  float* const gathered = parts + ring_bytes(C) / 4;
  const int first = static_cast<int>(blockIdx.x) / C.ctas * rows_of_cta(C);
  const int rank = static_cast<int>(blockIdx.x) % C.ctas;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < rows_of_cta(C) * kColumns; i += threads(C)) {
    const int row = i / kColumns, column = i % kColumns;
    float sum = parts[row * row_floats(C) + column];
#pragma unroll
    for (int warp = 1; warp < C.warps_k; ++warp) sum += parts[(warp * rows_of_cta(C) + row) * row_floats(C) + column];
    if constexpr (C.ctas == 1) {
      store<C>(p, first + row, column, sum);
    } else {
      float* const to = gathered + (rank * kRank + row % kRank) * row_floats(C) + column;
      ptx::st_cluster_f32(ptx::mapa(ptx::shared_address(to), row / kRank), sum);
    }
  }
  if constexpr (C.ctas > 1) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kRank * kColumns; i += threads(C)) {
      const int row = i / kColumns, column = i % kColumns;
      float sum = gathered[row * row_floats(C) + column];
#pragma unroll
      for (int from = 1; from < C.ctas; ++from) sum += gathered[(from * kRank + row) * row_floats(C) + column];
      store<C>(p, first + rank * kRank + row, column, sum);
    }
  }
}

template <Config C>
__device__ __forceinline__ void kernel(const Params& p) {
  common::require_legal<why_invalid(C)>();
  extern __shared__ __align__(16) float shared_sums[];
  ptx::griddepcontrol_launch_dependents();
  if constexpr (C.ctas > 1) ptx::cluster_arrive_relaxed();
  ptx::griddepcontrol_wait();
  const Place place = place_of_warp<C>(p);
  const char* rows[kTilesM][2];  // behind the last one the last again: nobody stores its sums
#pragma unroll
  for (int tile = 0; tile < kTilesM; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = min(place.row + 16 * tile + 8 * i + place.group, p.m - 1);
      rows[tile][i] = static_cast<const char*>(p.a) + 2 * row * p.a_stride_m;
    }
  }
  const unsigned own = ptx::shared_address(shared_sums) + static_cast<unsigned>(place.turn * chunk_bytes(C));
  const unsigned lane = threadIdx.x % kWarp * 16;
  const int rounds = (place.end - place.chunk + C.warps_k - 1) / C.warps_k, first = place.chunk + place.turn;
  Sums<C> sums = {};
  if (rounds > 0) {
    const int last = place.end - 1;
    Coefficients<C> b = {};
    Elements even, odd;
    load_b<C>(p, place, first, b);
    load_a(place, rows, min(first, last), even);
    store_b<C>(b, own);
    load_b<C>(p, place, first + C.warps_k, b);
    // Of the last chunk a is loaded again, and b stored again: nobody reads them.
    const auto round = [&](int number, const Elements& a, Elements& next) {
      const int chunk = first + number * C.warps_k;
      __syncthreads();
      load_a(place, rows, min(chunk + C.warps_k, last), next);
      store_b<C>(b, own + static_cast<unsigned>((number + 1) % kStages * stage_bytes(C)));
      load_b<C>(p, place, chunk + 2 * C.warps_k, b);
      if (chunk < place.end)
        multiply<C>(own + lane + static_cast<unsigned>(number % kStages * stage_bytes(C)), a, sums);
    };
#pragma unroll 1
    for (int number = 0; number < rounds; number += 2) {
      round(number, even, odd);
      if (number + 1 < rounds) round(number + 1, odd, even);
    }
  }
  __syncthreads();
  store_part<C>(place, sums, shared_sums);
  if constexpr (C.ctas > 1) ptx::cluster_wait();
  __syncthreads();
  add_parts<C>(p, shared_sums);
}

}  // namespace tessera::mhc_product
