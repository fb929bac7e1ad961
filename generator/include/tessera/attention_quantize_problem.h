// The Problem of attention_quantize; what facts, pins and hints are: tessera/any_problem.h. What it computes:
// docs/operators.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera {

/// Q, K and V of attention to NVFP4, means out, in the layouts that fmha reads with dtype nvfp4.
struct AttentionQuantize {
  static constexpr std::string_view kOperator = "attention_quantize";

  Arch arch{};
  int head_dim = 128;                         ///< 64 or 128
  DType dtype = DType::bf16;                  ///< of q, k and v: bf16 or f16
  UsedLengths seqused = UsedLengths::none;    ///< valid lengths of each sequence, in memory
  QueryLayout q_layout = QueryLayout::dense;  ///< ragged: seqlen_q are the queries of all sequences
  KvLayout kv_layout = KvLayout::dense;       ///< how the keys of sequences lie in k and v
  std::optional<int> page_size{};             ///< keys of a page: with kv_layout paged
  Hint batch = kUnknownHint, heads_q = kUnknownHint, heads_kv = kUnknownHint;
  Hint seqlen_q = kUnknownHint, seqlen_k = kUnknownHint;
  Hint pages = kUnknownHint, max_pages = kUnknownHint, tokens_k = kUnknownHint;
  friend bool operator==(const AttentionQuantize&, const AttentionQuantize&) = default;
};

template <>
const OperatorType& operator_type<AttentionQuantize>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> attention_quantize_fields();

}  // namespace tessera
