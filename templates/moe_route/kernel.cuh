// The bodies of both steps of a router. In and out: see spec/moe_route.h.
#pragma once

#include "common/illegal_config.cuh"
#include "moe_route/lists.cuh"
#include "ptx/griddepcontrol.cuh"

namespace tessera::moe_route {

// A warp's tokens of the chunk; the next one's logits are on their way while one's experts are chosen.
template <Config C>
__device__ __forceinline__ void route_chunk(const Params& p, const Chunk& chunk, int* counts) {
  const int lane = lane_of_thread();
  int token = chunk.first + static_cast<int>(threadIdx.x) / kWarp;
  rows::Raw<C.dtype> next[vectors_of_lane(C)];
  load_logits<C>(p, token < chunk.end ? token : p.m, next);
#pragma unroll 1
  for (; token < chunk.end; token += kWarps) {
    rows::Raw<C.dtype> raw[vectors_of_lane(C)];
#pragma unroll
    for (int j = 0; j < vectors_of_lane(C); ++j) raw[j] = next[j];
    load_logits<C>(p, token + kWarps < chunk.end ? token + kWarps : p.m, next);
    const Chosen chosen = choose<C>(p, raw);
    if (lane >= C.top_k) continue;
    const long long at = static_cast<long long>(token) * C.top_k + lane;
    p.topk_experts[at] = chosen.expert;
    p.topk_weights[at] = chosen.weight;
    if constexpr (has_lists(C)) atomicAdd(counts + chosen.expert, 1);
  }
}

// Experts and weights of every token; of a single chunk the lists too, else the chunk's counts.
template <Config C>
__device__ __forceinline__ void route(const Params& p) {
  common::require_legal<why_invalid(C)>();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const Chunk chunk = chunk_of(p, static_cast<int>(blockIdx.x));
  if constexpr (!has_lists(C)) {
    route_chunk<C>(p, chunk, nullptr);
  } else {
    Shared<C>& shared = shared_lists<C>();
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < C.experts) {
      shared.total[thread] = shared.before[thread] = 0;
#pragma unroll
      for (int word = 0; word < kMaskWords; ++word) shared.masks[thread][word] = 0;
    }
    __syncthreads();
    route_chunk<C>(p, chunk, shared.total);
    __syncthreads();
    if (gridDim.x == 1) {
      write_lists<C>(p, chunk, shared);
    } else if (thread < C.experts) {
      p.workspace[static_cast<long long>(blockIdx.x) * C.experts + thread] = shared.total[thread];
    }
  }
}

// The lists, where tokens are several chunks.
template <Config C>
__device__ __forceinline__ void list(const Params& p) {
  ptx::griddepcontrol_launch_dependents();
  Shared<C>& shared = shared_lists<C>();
  if (static_cast<int>(threadIdx.x) < C.experts) {
#pragma unroll
    for (int word = 0; word < kMaskWords; ++word) shared.masks[threadIdx.x][word] = 0;
  }
  ptx::griddepcontrol_wait();
  add_counts<C>(p, shared);
  write_lists<C>(p, chunk_of(p, static_cast<int>(blockIdx.x)), shared);
}

}  // namespace tessera::moe_route
