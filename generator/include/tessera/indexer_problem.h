// The Problem of indexer; what facts, pins and hints are: tessera/any_problem.h. What it computes: docs/operators.md.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tessera/any_problem.h"
#include "tessera/spec/attention_types.h"
#include "tessera/spec/indexer_types.h"
#include "tessera/spec/types.h"

namespace tessera {

/// Scores by which sparse attention chooses keys: of each query's keys the sum over heads of weight times
/// max(q . k, 0), in e4m3 or in mxfp4.
struct Indexer {
  static constexpr std::string_view kOperator = "indexer";

  Arch arch{};
  int heads = 64;      ///< 8, 16, 32 or 64
  int head_dim = 128;  ///< 32, 64 or 128; mxfp4: 64 or 128
  IndexFormat format = IndexFormat::e4m3;
  DType score_dtype = DType::f32;         ///< f32 or bf16
  KvLayout kv_layout = KvLayout::ragged;  ///< ragged: keys one behind the other, each query with a range; or paged
  int page_size = 64;                     ///< paged: keys of a page, 8 to 256
  int next_n = 1;                         ///< paged: queries of a sequence, 1 to 4
  ContextLengths context_lengths = ContextLengths::sequence;
  ScoreColumns score_columns = ScoreColumns::keys;
  Outside outside = Outside::minus_inf;
  std::optional<MmaKind> mma_kind{};
  std::optional<int> tile_q{};
  std::optional<int> consumers{};
  std::optional<int> stages{};
  Hint m = kUnknownHint, n = kUnknownHint, batch = kUnknownHint, pages = kUnknownHint, max_pages = kUnknownHint,
       columns = kUnknownHint;
  friend bool operator==(const Indexer&, const Indexer&) = default;
};

template <>
const OperatorType& operator_type<Indexer>() noexcept;

/// A row for each field, in the order of the struct.
std::span<const Selector> indexer_fields();

}  // namespace tessera
