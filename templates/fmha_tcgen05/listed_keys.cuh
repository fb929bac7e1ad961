// Listed keys that are values too: where they lie is what fmha_latent's templates, of Hopper, say of the same problem.
#pragma once

#include "fmha_latent/gather.cuh"
#include "fmha_tcgen05/params.cuh"
#include "spec/fmha_latent.h"
#include "spec/fmha_tcgen05.h"

namespace tessera::fmha_tcgen05 {

// Of a CTA that shares its keys with no other one.
template <Config C>
inline constexpr fmha_latent::Config kGather{.facts = C.facts, .pack_gqa = 1};

__device__ __forceinline__ fmha_latent::Params params_of_gather(const Params& p) {
  return {.q = p.q,
          .k = p.q,
          .lse = nullptr,
          .batch = p.batch,
          .heads_q = p.heads_q,
          .heads_kv = p.heads_kv,
          .seqlen_q = p.seqlen_q,
          .seqlen_k = p.seqlen_k,
          .softmax_scale = p.softmax_scale,
          .k_keys = p.k_keys,
          .swa_k = p.swa_k_keys,
          .indices = p.indices,
          .topk_lens = p.topk_lens,
          .swa_lens = p.swa_lens,
          .swa_indices = p.swa_indices,
          .topk = p.topk,
          .seqlen_swa = p.seqlen_swa,
          .swa_rows = p.swa_rows,
          .k_stride_seqlen = p.k_stride_seqlen,
          .swa_k_stride_seqlen = p.swa_k_stride_seqlen,
          .k_stride_page = p.k_stride_page,
          .swa_k_stride_page = p.swa_k_stride_page,
          .swa_k_stride_batch = p.swa_k_stride_batch};
}

template <Config C>
__device__ __forceinline__ fmha_latent::ListedKeys<kGather<C>> listed_keys(const fmha_latent::Params& p, int batch,
                                                                           int query) {
  return {p, batch * p.seqlen_q + query};
}

}  // namespace tessera::fmha_tcgen05
