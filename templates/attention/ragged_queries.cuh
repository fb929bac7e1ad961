// Ragged queries: where those of a sequence lie among those of all. Whatever the numbers in memory are, none lies
// outside of q and o. One meaning for all families.
#pragma once

#include "ptx/global.cuh"
#include "spec/attention_facts.h"

namespace tessera::attention {

// The first query of a sequence, and how many it has. Dense ones have a place for each.
template <auto C, class Params>
__device__ __forceinline__ int first_query(const Params& p, int sequence) {
  if constexpr (!is_ragged(C.facts)) return 0;
  return min(max(static_cast<int>(ptx::ld_global_u32(p.cu_seqlens_q + sequence)), 0), p.seqlen_q);
}
template <auto C, class Params>
__device__ __forceinline__ int queries_of(const Params& p, int sequence) {
  if constexpr (!is_ragged(C.facts)) return p.seqlen_q;
  return max(first_query<C>(p, sequence + 1) - first_query<C>(p, sequence), 0);
}

}  // namespace tessera::attention
