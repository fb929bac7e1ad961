// The products of a consumer warpgroup. They only issue instructions and close the group; the caller waits. Fragment
// layouts: fmha/matmul.cuh.
#pragma once

#include "ptx/fence.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha_latent.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha_latent {

// A block's scores; P as the A operands of its steps; a warpgroup's half of O.
using Scores = float[kBlockKeys / 2];
using Probabilities = unsigned[kBlockKeys / 16][4];
using Accumulator = float[kHeadDimV / 4];

template <WgmmaShape kShape>
using MmaOf = ptx::Wgmma<kShape.n, kShape.dtype, kShape.a_in_registers, kShape.b_is_mn_major, kShape.steps>;
template <Config C>
using ScoreMma = MmaOf<score_wgmma(C)>;
template <Config C>
using OwnMma = MmaOf<own_wgmma(C)>;
template <Config C>
using OtherMma = MmaOf<other_wgmma(C)>;

// Panel by panel, as they come.
template <Config C>
__device__ __forceinline__ void issue_scores(Scores& scores, unsigned q, unsigned slot, const BarrierRow& full,
                                             unsigned parity) {
  constexpr int kSteps = score_wgmma(C).steps;
  const unsigned long long a = k_major_descriptor(q, kRows, C.swizzle);
  const unsigned long long b = k_major_descriptor(slot, kBlockKeys, C.swizzle);
#pragma unroll
  for (int panel = 0; panel < panels(C); ++panel) {
    unsigned long long a_steps[kSteps], b_steps[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      a_steps[i] = advance_descriptor(a, k_major_step_bytes(panel * kSteps + i, kRows, C.swizzle));
      b_steps[i] = advance_descriptor(b, k_major_step_bytes(panel * kSteps + i, kBlockKeys, C.swizzle));
    }
    if (panel == 0 || full_of_panel(C, panel) != full_of_panel(C, panel - 1)) {
      ptx::mbarrier_wait_parity(full[full_of_panel(C, panel)], parity);
      if constexpr (gathers(C)) ptx::fence_proxy_async_shared();  // threads wrote what is read
      ptx::wgmma_fence();                                         // behind each wait: ptxas would put one there
    }
    if (panel == 0) {
      ScoreMma<C>::begin(scores, a_steps, b_steps);
    } else {
      ScoreMma<C>::mma(scores, a_steps, b_steps, 1);
    }
  }
  ptx::wgmma_commit_group();
}

// `v`: the first of the warpgroup's panels.
__device__ __forceinline__ void value_steps(unsigned v, unsigned long long (&steps)[kBlockKeys / 16]) {
  const unsigned long long b = mn_major_descriptor(v, kBlockKeys, Swizzle::b128);
#pragma unroll
  for (int i = 0; i < kBlockKeys / 16; ++i) steps[i] = advance_descriptor(b, mn_major_step_bytes(i, Swizzle::b128));
}

template <Config C>
__device__ __forceinline__ void issue_own(Accumulator& output, const Probabilities& p, unsigned v, int accumulate) {
  unsigned long long b_steps[kBlockKeys / 16];
  value_steps(v, b_steps);
  ptx::wgmma_fence();
  OwnMma<C>::mma(output, p, b_steps, accumulate);
  ptx::wgmma_commit_group();
}

// `p`: the panel that the other warpgroup's P lies in.
template <Config C>
__device__ __forceinline__ void issue_other(Accumulator& output, unsigned p, unsigned v, int accumulate) {
  unsigned long long a_steps[kBlockKeys / 16], b_steps[kBlockKeys / 16];
  const unsigned long long a = k_major_descriptor(p, kRows, C.swizzle);
#pragma unroll
  for (int i = 0; i < kBlockKeys / 16; ++i) a_steps[i] = advance_descriptor(a, k_major_step_bytes(i, kRows, C.swizzle));
  value_steps(v, b_steps);
  ptx::wgmma_fence();
  OtherMma<C>::mma(output, a_steps, b_steps, accumulate);
  ptx::wgmma_commit_group();
}

template <Config C>
__device__ __forceinline__ void pack(Probabilities& p, const Scores& scores) {
#pragma unroll
  for (int i = 0; i < kBlockKeys / 4; ++i)
    p[i / 4][i % 4] = ptx::cvt_pack<C.facts.dtype>(scores[2 * i], scores[2 * i + 1]);
}

}  // namespace tessera::fmha_latent
