// Attention over two pools of keys in float64: those that each query lists, and those of a sliding window.
//
// q and o [batch, seqlen_q, heads_q, ..]; k [seqlen_k, head_dim], v [seqlen_k, head_dim_v]: rows of all sequences, of
// which query i of sequence b sees indices[b][i][..] (int32, outside of [0, seqlen_k): none); swa_k and swa_v [batch,
// seqlen_swa, 1, ..], of which it sees the first swa_lens[b], with the causal mask up to key i + swa_lens[b] -
// seqlen_q. The result is a softmax over all of them together, with exp(sink[head]) in the denominator; lse is without
// it.
#pragma once

#include "reference/fmha.h"

namespace tessera::reference {

struct FmhaPools {
  TensorView q, k, v, swa_k, swa_v, indices, swa_lens;
};

/// Precondition: tensors of these shapes, of which q, indices and swa_lens are dense and columns lie side by side; v
/// and swa_v may be the first columns of k and swa_k (first_columns). check.sink as in fmha.h.
Comparison check_fmha_pools(const FmhaPools& inputs, const FmhaOutputs& outputs, const FmhaCheck& check);

struct FmhaPoolTensors {
  Tensor q, k, v, swa_k, swa_v, indices, swa_lens, sink;
};
/// sizes.seqlen_k: rows of the pool. An eighth of the listed rows are none; no row is listed twice by a query where the
/// pool is large enough. The first sequence's window is full, others have any length.
FmhaPoolTensors make_pool_inputs(const FmhaSizes& sizes, std::int64_t topk, std::int64_t seqlen_swa, DType dtype,
                                 Fill fill, std::uint64_t seed);

}  // namespace tessera::reference
