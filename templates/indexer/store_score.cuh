// A score at the place of its key.
#pragma once

#include "ptx/global.cuh"
#include "ptx/global_written.cuh"
#include "ptx/math.cuh"
#include "spec/indexer.h"

namespace tessera::indexer {

// row: where key 0's score would be.
template <Config C>
__device__ __forceinline__ void store_score(unsigned char* row, int key, float score) {
  if constexpr (C.score_dtype == DType::f32 && loaders(C) > 1) {
    ptx::st_global_u32_with_policy(row + static_cast<long long>(key) * 4, __float_as_uint(score), ptx::kEvictLast);
  } else if constexpr (C.score_dtype == DType::f32) {
    ptx::st_global_u32(row + static_cast<long long>(key) * 4, __float_as_uint(score));
  } else {
    *reinterpret_cast<unsigned short*>(row + static_cast<long long>(key) * 2) =
        static_cast<unsigned short>(ptx::cvt_pack<DType::bf16>(score, score));
  }
}

}  // namespace tessera::indexer
