// The lists of a chunk of tokens, by a whole CTA, from the experts that its tokens have.
#pragma once

#include "moe_route/choose.cuh"

namespace tessera::moe_route {

template <Config C>
struct Shared {
  int4 parts[2][kThreads];
  int total[C.experts];                   // pairs of an expert
  int before[C.experts];                  // of them, in chunks before this one
  int next[C.experts];                    // the row of the expert's next pair
  unsigned masks[C.experts][kMaskWords];  // tokens of a round that have the expert
  int sums[kWarps];
  int4 end;  // x: of all experts' rows
};

template <Config C>
__device__ __forceinline__ Shared<C>& shared_lists() {
  extern __shared__ __align__(16) unsigned char lists_of_chunk[];
  static_assert(sizeof(Shared<C>) == smem_bytes(C));
  return *reinterpret_cast<Shared<C>*>(lists_of_chunk);
}

struct Chunk {
  int first, end;  // tokens
};

__device__ __forceinline__ Chunk chunk_of(const Params& p, int chunk) {
  const int rounds = (p.m + kTokensOfRound - 1) / kTokensOfRound, chunks = static_cast<int>(gridDim.x);
  const long long tokens = static_cast<long long>((rounds + chunks - 1) / chunks) * kTokensOfRound;
  const long long first = chunk * tokens, end = first + tokens;
  return {static_cast<int>(first < p.m ? first : p.m), static_cast<int>(end < p.m ? end : p.m)};
}

// What all threads before this one have together. All threads; shared memory may be used again behind the next barrier.
__device__ __forceinline__ int sum_before(int mine, int (&sums)[kWarps]) {
  const int lane = lane_of_thread(), warp = static_cast<int>(threadIdx.x) / kWarp;
  int sum = mine;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == kWarp - 1) sums[warp] = sum;
  __syncthreads();
  for (int i = 0; i < warp; ++i) sum += sums[i];
  return sum - mine;
}

__device__ __forceinline__ void add(int4& sum, const ptx::Vector4& v) {
  sum.x += static_cast<int>(v.x);
  sum.y += static_cast<int>(v.y);
  sum.z += static_cast<int>(v.z);
  sum.w += static_cast<int>(v.w);
}

// Of all chunks' counts the sum of all, and of those before this one.
template <Config C>
__device__ __forceinline__ void add_counts(const Params& p, Shared<C>& shared) {
  constexpr int kVectors = C.experts / 4, kReaders = readers_of_count(C);
  const int vector = static_cast<int>(threadIdx.x) % kVectors, reader = static_cast<int>(threadIdx.x) / kVectors;
  const int chunks = static_cast<int>(gridDim.x), own = static_cast<int>(blockIdx.x);
  int4 total = {}, before = {};
  if (reader < kReaders) {
#pragma unroll 4
    for (int chunk = reader; chunk < chunks; chunk += kReaders) {
      const ptx::Vector4 counts =
          ptx::ld_global_v4_written(p.workspace + static_cast<long long>(chunk) * C.experts + 4 * vector);
      add(total, counts);
      if (chunk < own) add(before, counts);
    }
  }
  shared.parts[0][threadIdx.x] = total;
  shared.parts[1][threadIdx.x] = before;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * C.experts; i += kThreads) {
    const int which = i / C.experts, expert = i % C.experts;
    const int* const of_vector = reinterpret_cast<const int*>(shared.parts[which]) + expert;
    int sum = 0;
    for (int r = 0; r < kReaders; ++r) sum += of_vector[r * 4 * kVectors];
    (which == 0 ? shared.total : shared.before)[expert] = sum;
  }
  __syncthreads();
}

// Rows of no pair: of the experts that this CTA has a turn with, and those behind all experts.
__device__ __forceinline__ void pad(const Params& p, long long first, long long end, int thread, int threads) {
  for (long long row = first + thread; row < end; row += threads) {
    p.indices[row] = -1;
    p.row_weights[row] = 0.0f;
  }
}

// Where each expert's rows begin, for everybody; the lists of groups by the first CTA, padding by all.
template <Config C>
__device__ __forceinline__ void begin_groups(const Params& p, Shared<C>& shared) {
  const int expert = static_cast<int>(threadIdx.x), cta = static_cast<int>(blockIdx.x);
  const bool is_expert = expert < C.experts;
  const int total = is_expert ? shared.total[expert] : 0;
  if constexpr (C.grouping == Grouping::contiguous) {
    const int padded = (total + C.alignment - 1) / C.alignment * C.alignment;
    const int start = sum_before(padded, shared.sums);
    if (is_expert) shared.next[expert] = start + shared.before[expert];
    if (is_expert && cta == 0) {
      p.groups[expert] = start;
      p.counts[expert] = total;
      if (expert == C.experts - 1) p.groups[C.experts] = start + padded;
    }
    if (is_expert && C.alignment > 1 && expert % static_cast<int>(gridDim.x) == cta)
      pad(p, start + total, start + padded, 0, 1);
    if (expert == C.experts - 1) shared.end.x = start + padded;
    __syncthreads();
    const int threads = static_cast<int>(gridDim.x) * kThreads;
    pad(p, shared.end.x, p.rows, cta * kThreads + expert, threads);
  } else {
    if (is_expert) shared.next[expert] = shared.before[expert];
    if (is_expert && cta == 0) p.groups[expert] = min(total, p.rows);
    for (int e = cta; e < C.experts; e += static_cast<int>(gridDim.x)) {
      const long long start = static_cast<long long>(e) * p.rows;
      pad(p, start + min(shared.total[e], p.rows), start + p.rows, static_cast<int>(threadIdx.x), kThreads);
    }
  }
}

// The row of an expert's pair, given its number among all; -1 where there is none.
template <Config C>
__device__ __forceinline__ long long row_of(const Params& p, int expert, int number) {
  if constexpr (C.grouping == Grouping::contiguous) return number;
  return number < p.rows ? static_cast<long long>(expert) * p.rows + number : -1;
}

// Precondition: total and before are known, masks are 0. Of `chunk`.
template <Config C>
__device__ __forceinline__ void write_lists(const Params& p, const Chunk& chunk, Shared<C>& shared) {
  begin_groups<C>(p, shared);
  __syncthreads();
#pragma unroll 1
  for (int round = chunk.first; round < chunk.end; round += kTokensOfRound) {
    const int pairs = min(chunk.end - round, kTokensOfRound) * C.top_k;
    const long long first = static_cast<long long>(round) * C.top_k;
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kThreads) {
      const int token = i / C.top_k;
      atomicOr(&shared.masks[ptx::ld_global_s32_written(p.topk_experts + first + i)][token / 32], 1u << token % 32);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kThreads) {
      const int token = i / C.top_k, expert = ptx::ld_global_s32_written(p.topk_experts + first + i);
      int number = shared.next[expert] + __popc(shared.masks[expert][token / 32] & ((1u << token % 32) - 1));
#pragma unroll
      for (int word = 0; word < kMaskWords - 1; ++word)
        if (word < token / 32) number += __popc(shared.masks[expert][word]);
      const long long row = row_of<C>(p, expert, number);
      p.slots[first + i] = static_cast<int>(row);
      if (row < 0) continue;
      p.indices[row] = round + token;
      p.row_weights[row] = ptx::ld_global_f32_written(p.topk_weights + first + i);
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < C.experts) {
      unsigned(&mask)[kMaskWords] = shared.masks[threadIdx.x];
#pragma unroll
      for (int word = 0; word < kMaskWords; ++word) {
        shared.next[threadIdx.x] += __popc(mask[word]);
        mask[word] = 0;
      }
    }
    __syncthreads();
  }
}

}  // namespace tessera::moe_route
