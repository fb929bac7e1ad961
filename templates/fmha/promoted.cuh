// fp32 sums of O beside an accumulator of few fraction bits: see spec/fmha_transposed.h. Each thread keeps its own in
// shared memory, in the order of its registers, so that nobody waits for another. Behind a warpgroup's sums lies a
// factor of each of the thread's two rows, what references have moved since the sums were written; with a sign: there
// are no sums.
#pragma once

#include "fmha/matmul.cuh"
#include "ptx/shared.cuh"
#include "spec/fmha.h"

namespace tessera::fmha {

// Of the thread's first four sums, and of its factors.
template <Config C>
__device__ __forceinline__ unsigned promoted_address(unsigned smem, int warpgroup) {
  return smem + smem_layout(C).promoted.offset + warpgroup * promoted_slot_bytes(C) +
         static_cast<unsigned>(threadIdx.x) % kWarpgroupThreads * 16;
}
template <Config C>
__device__ __forceinline__ unsigned promoted_factors(unsigned smem, int warpgroup) {
  return smem + smem_layout(C).promoted.offset + warpgroup * promoted_slot_bytes(C) + promoted_sums_bytes(C) +
         static_cast<unsigned>(threadIdx.x) % kWarpgroupThreads * 8;
}

template <Config C>
__device__ __forceinline__ void forget_promoted(unsigned smem, int warpgroup) {
  ptx::st_shared_v2_f32(promoted_factors<C>(smem, warpgroup), -1.0f, -1.0f);
}

// References move.
template <Config C>
__device__ __forceinline__ void scale_promoted(unsigned smem, int warpgroup, const float (&factor)[2]) {
  const unsigned address = promoted_factors<C>(smem, warpgroup);
  ptx::st_shared_v2_f32(address, ptx::ld_shared_f32(address) * factor[0], ptx::ld_shared_f32(address + 4) * factor[1]);
}

// O becomes the whole sum.
template <Config C>
__device__ __forceinline__ void add_promoted(Accumulator<C>& output, unsigned smem, int warpgroup) {
  const unsigned factors = promoted_factors<C>(smem, warpgroup), address = promoted_address<C>(smem, warpgroup);
  const float factor[2] = {ptx::ld_shared_f32(factors), ptx::ld_shared_f32(factors + 4)};
  if (__float_as_int(factor[0]) < 0) return;
#pragma unroll
  for (int v = 0; v < v_columns(C) / 2; v += 4) {
    float sums[4];
    ptx::ld_shared_v4_f32(address + v / 4 * 16 * kWarpgroupThreads, sums);
#pragma unroll
    for (int i = 0; i < 4; ++i) output[v + i] = fmaf(sums[i], factor[i / 2], output[v + i]);
  }
}

// O goes to the sums, and may begin anew.
template <Config C>
__device__ __forceinline__ void promote(Accumulator<C>& output, unsigned smem, int warpgroup) {
  add_promoted<C>(output, smem, warpgroup);
  const unsigned address = promoted_address<C>(smem, warpgroup);
#pragma unroll
  for (int v = 0; v < v_columns(C) / 2; v += 4)
    ptx::st_shared_v4_f32(address + v / 4 * 16 * kWarpgroupThreads, output[v], output[v + 1], output[v + 2],
                          output[v + 3]);
  ptx::st_shared_v2_f32(promoted_factors<C>(smem, warpgroup), 1.0f, 1.0f);
}

}  // namespace tessera::fmha
