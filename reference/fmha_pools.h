// Attention over two pools of keys in float64: those that each query lists, and those of a sliding window.
//
// q and o [batch, seqlen_q, heads_q, ..]; k [seqlen_k, head_dim], v [seqlen_k, head_dim_v]: rows of all sequences, of
// which query i of sequence b sees indices[b][i][..] (int32, outside of [0, seqlen_k): none); swa_k and swa_v [batch,
// seqlen_swa, 1, ..], of which it sees the first swa_lens[b], with the causal mask up to key i + swa_lens[b] -
// seqlen_q. With topk_lens [batch, seqlen_q] a list has so many places, clamped to [0, topk]. With swa_indices [batch,
// seqlen_q, places] what the query sees of swa_k are the rows at the first places of that list, as many as it would see
// of a window of `places` keys; outside of [0, rows of swa_k): none. The result is a softmax over all of them together,
// with exp(sink[head]) in the denominator; lse is without it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/fmha.h"

namespace tessera::reference {

struct FmhaPools {
  TensorView q, k, v, swa_k, swa_v, indices, swa_lens;
  std::optional<TensorView> topk_lens{}, swa_indices{};
};

/// Precondition: tensors of these shapes, of which q, indices and swa_lens are dense and columns lie side by side; v
/// and swa_v may be the first columns of k and swa_k (first_columns). check.sink as in fmha.h.
Comparison check_fmha_pools(const FmhaPools& inputs, const FmhaOutputs& outputs, const FmhaCheck& check);

/// The same of a few queries, whose numbers stand in `of`: batch * seqlen_q + query. Each by itself.
std::vector<Comparison> check_pool_queries(const FmhaPools& inputs, const FmhaOutputs& outputs, const FmhaCheck& check,
                                           const std::vector<std::int64_t>& of);

struct FmhaPoolTensors {
  Tensor q, k, v, swa_k, swa_v, indices, swa_lens, sink;
};
/// sizes.seqlen_k: rows of the pool. An eighth of the listed rows are none; no row is listed twice by a query where the
/// pool is large enough. The first sequence's window is full, others have any length.
FmhaPoolTensors make_pool_inputs(const FmhaSizes& sizes, std::int64_t topk, std::int64_t seqlen_swa, DType dtype,
                                 Fill fill, std::uint64_t seed);
/// A list of rows for each query, [batch, seqlen_q, places], drawn as those of make_pool_inputs().
Tensor make_row_lists(const FmhaSizes& sizes, std::int64_t places, std::int64_t rows, std::uint64_t seed,
                      std::uint64_t stream);
/// [batch, seqlen_q]: none, all, numbers between, and such that are clamped.
Tensor make_list_lengths(const FmhaSizes& sizes, std::int64_t places, std::uint64_t seed);

}  // namespace tessera::reference
