// The Problem of merge; what facts, pins and hints are: tessera/any_problem.h. What it computes: docs/operators.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/types.h"

namespace tessera {

/// Attention of the same queries over different keys, joined: parts (o, lse) to one (o, lse).
struct Merge {
  static constexpr std::string_view kOperator = "merge";

  Arch arch{};
  int head_dim_v = 128;
  DType dtype = DType::bf16;       ///< of the parts: f32, f16 or bf16
  std::optional<DType> o_dtype{};  ///< of o; auto: dtype
  Sink sink = Sink::none;
  std::optional<int> threads{};  ///< of a CTA
  std::optional<int> at_once{};  ///< parts that a thread loads at the same time
  Hint parts = kUnknownHint, batch = kUnknownHint, heads_q = kUnknownHint, seqlen_q = kUnknownHint;
  friend bool operator==(const Merge&, const Merge&) = default;
};

template <>
const OperatorType& operator_type<Merge>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> merge_fields();

}  // namespace tessera
