// NVFP4 attention of sequences that have lengths of their own, ragged or in pages: each sequence as a dense problem of
// one, which attention_quantize.h and fmha_nvfp4.h judge. Where blocks of sequences lie:
// templates/attention/nvfp4_sequences.cuh.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/attention_quantize.h"
#include "reference/fmha_nvfp4.h"

namespace tessera::reference {

/// As a launch has it. Of ragged queries seqlen_q are those of all.
struct Nvfp4Layout {
  std::int64_t batch = 0, seqlen_q = 0, seqlen_k = 0;
  std::int64_t tokens_k = 0;   ///< of ragged keys
  std::int64_t page_size = 0;  ///< of keys in pages
  std::optional<TensorView> cu_seqlens_q{}, cu_seqlens_k{}, seqused_q{}, seqused_k{}, block_table{};
};

/// Rows of a sequence and its first block of 128, among those of all.
struct SequencePlace {
  std::int64_t first = 0, rows = 0, block = 0;
  std::int64_t blocks() const { return (rows + 127) / 128; }
};
struct Nvfp4Sequence {
  SequencePlace q, k;
};
std::vector<Nvfp4Sequence> sequences_of(const Nvfp4Layout& layout);
/// Of all sequences, or as many as there may be.
std::int64_t query_blocks_of(const Nvfp4Layout& layout);
std::int64_t key_blocks_of(const Nvfp4Layout& layout);

/// What attention_quantize makes of q, k and v as they lie. What no sequence has is poison.
QuantizedAttention quantize_sequences(const AttentionTensors& x, const Nvfp4Layout& layout);
Comparison check_quantized_sequences(const AttentionTensors& x, const Nvfp4Layout& layout,
                                     const QuantizedAttention& found, int jobs = 0);
/// check.seqlen_k is not read; of ragged queries check.tree_mask is [queries of all, words]. Rows behind seqused_q must
/// be those of queries that see no key.
Comparison check_nvfp4_sequences(const Nvfp4Inputs& inputs, const Nvfp4Layout& layout, const Nvfp4Outputs& outputs,
                                 const Nvfp4Check& check);

}  // namespace tessera::reference
