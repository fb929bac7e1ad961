// Sequences whose queries follow each other, q and o [queries of all, heads, ..] and statistics [heads, queries of
// all], as tensors of equal sequences: check_fmha() judges those.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/fmha.h"
#include "reference/tensor.h"

namespace tessera::reference {

/// Where each sequence's queries begin, and the end of the last: from the lengths.
std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lengths);
/// What kernels make of such numbers: none lies outside of [0, queries], no sequence has fewer than no queries.
struct QueryRange {
  std::int64_t begin = 0, end = 0;
};
std::vector<QueryRange> ranges_of(const TensorView& cu_seqlens_q, std::int64_t queries);

/// [batch, longest, heads, columns]; zeros behind a sequence's queries.
Tensor equal_sequences(const TensorView& packed, const std::vector<QueryRange>& ranges);
/// Statistics [batch, heads, longest]; `behind` behind a sequence's queries.
Tensor equal_statistics(const TensorView& packed, const std::vector<QueryRange>& ranges, double behind);

/// check_fmha() of q and outputs that are packed; k, v and seqused_k as they are.
Comparison check_ragged_fmha(const FmhaInputs& inputs, const TensorView& cu_seqlens_q, const FmhaOutputs& outputs,
                             const FmhaCheck& check);

}  // namespace tessera::reference
