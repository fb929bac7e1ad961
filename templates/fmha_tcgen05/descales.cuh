// Factors of 8-bit operands: one for each sequence and key head.
#pragma once

#include "fmha_tcgen05/params.cuh"
#include "fmha_tcgen05/schedule.cuh"
#include "ptx/global.cuh"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

// A tile's of [batch, heads_kv]; null: 1. Times what widened codes are a part of.
template <Config C>
__device__ __forceinline__ float descale_of(const Params& p, const float* descale, long long stride_batch,
                                            long long stride_head, const TileIndex& tile) {
  if (descale == nullptr) return widened_unit(C.facts);
  const int head = is_packed(C) ? tile.head : quotient(tile.head, quotient(p.heads_q, p.heads_kv));
  return __uint_as_float(ptx::ld_global_u32(descale + tile.batch * stride_batch + head * stride_head)) *
         widened_unit(C.facts);
}

}  // namespace tessera::fmha_tcgen05
