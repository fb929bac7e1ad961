// The two products of a consumer warpgroup: S = Q K^T from shared memory, O += P V with P in registers.
//
// Both only issue instructions and close the group; the caller waits. Fragment layout of S and O (row, column) of value
// v in thread t of the warpgroup: row 16 (t / 32) + t % 32 / 4 + 8 (v / 2 % 2), column 8 (v / 4) + 2 (t % 4) + v % 2.
// The A operand of a 16-column step has the same layout over its 8 values, so P needs no shuffles: it is S, packed in
// pairs. That of a 32-column step of 8 bits has four columns side by side; with V's keys in another order (see
// spec/fmha_transposed.h) it is S as well, packed in fours.
#pragma once

#include "fmha/registers.cuh"
#include "ptx/math.cuh"
#include "ptx/narrow.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha {

// One key block's scores; P as the A operands of all steps; O.
template <Config C>
using Scores = float[C.tile_n / 2];
template <Config C>
using Probabilities = unsigned[output_steps(C)][4];
template <Config C>
using Accumulator = float[v_columns(C) / 2];

// Where ways out are written in C++: `output`, or by wgmma a copy of the registers, in `copy`.
template <Config C>
__device__ __forceinline__ const Accumulator<C>& values_of(const Accumulator<C>& output, Accumulator<C>& copy) {
  if constexpr (uses_mma_sync(C)) {
    return output;
  } else {
    RegistersOf<C>::read_output(copy);
    return copy;
  }
}

// The low words of the descriptors of Q's and K's slots; all else of them is a constant.
template <Config C>
__device__ __forceinline__ void issue_scores(unsigned q_low, unsigned k_low) {
  RegistersOf<C>::multiply_keys(q_low, k_low);
  ptx::wgmma_commit_group();
}

template <Config C>
__device__ __forceinline__ void issue_output(unsigned v_slot, int accumulate) {
  constexpr Swizzle kSwizzle = is_8_bit(C.facts) ? transposed_swizzle(C) : C.swizzle;
  const unsigned long long v = reads_mn_major_v(C) ? mn_major_descriptor(v_slot, C.tile_n, kSwizzle)
                                                   : k_major_descriptor(v_slot, v_columns(C), kSwizzle);
  RegistersOf<C>::multiply_values(static_cast<unsigned>(v), accumulate);
  ptx::wgmma_commit_group();
}

template <Config C>
__device__ __forceinline__ void pack(Probabilities<C>& p, const Scores<C>& scores) {
#pragma unroll
  for (int i = 0; i < C.tile_n / 4; ++i) p[i / 4][i % 4] = ptx::cvt_pack<p_dtype(C)>(scores[2 * i], scores[2 * i + 1]);
}

}  // namespace tessera::fmha
