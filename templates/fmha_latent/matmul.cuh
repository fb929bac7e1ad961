// The products of a consumer warpgroup over 16-bit keys. They only issue instructions and close the group; the caller
// waits. What they read and write are registers that have names (registers.cuh), in the layouts of fmha/matmul.cuh.
#pragma once

#include "fmha_latent/registers.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"
#include "spec/fmha_latent.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha_latent {

// The low word of the descriptor of Q's rows or of a block's keys, panels of which lie `kPanelBytes` apart.
template <Config C>
__device__ __forceinline__ unsigned k_major_low(unsigned start) {
  return static_cast<unsigned>(k_major_descriptor(start, kRows, C.swizzle));
}
inline constexpr unsigned kPanelStep = kPanelBytes >> 4;
static_assert(kRows == kBlockKeys);

// S of a block, panel by panel, as they come.
template <Config C>
__device__ __forceinline__ void issue_scores(unsigned q, unsigned slot, const BarrierRow& full, unsigned parity) {
  const unsigned q_low = k_major_low<C>(q), k_low = k_major_low<C>(slot);
#pragma unroll
  for (int panel = 0; panel < panels(C); ++panel) {
    if (panel == 0 || full_of_panel(C, panel) != full_of_panel(C, panel - 1)) {
      ptx::mbarrier_wait_parity(full[full_of_panel(C, panel)], parity);
      if constexpr (gathers(C)) ptx::fence_proxy_async_shared();  // threads wrote what is read
      ptx::wgmma_fence();                                         // behind each wait: ptxas would put one there
    }
    if (panel == 0) {
      RegistersOf<C>::begin_scores(q_low, k_low);
    } else {
      RegistersOf<C>::add_scores(q_low + panel * kPanelStep, k_low + panel * kPanelStep);
    }
  }
  ptx::wgmma_commit_group();
}

// `v`: the first of the warpgroup's panels.
__device__ __forceinline__ unsigned values_low(unsigned v) {
  return static_cast<unsigned>(mn_major_descriptor(v, kBlockKeys, Swizzle::b128));
}

template <Config C>
__device__ __forceinline__ void issue_own(unsigned v, int accumulate) {
  ptx::wgmma_fence();
  RegistersOf<C>::multiply_own(values_low(v), accumulate);
  ptx::wgmma_commit_group();
}

// `p`: the panel that the other warpgroup's P lies in.
template <Config C>
__device__ __forceinline__ void issue_other(unsigned p, unsigned v, int accumulate) {
  ptx::wgmma_fence();
  RegistersOf<C>::multiply_other(k_major_low<C>(p), values_low(v), accumulate);
  ptx::wgmma_commit_group();
}

}  // namespace tessera::fmha_latent
