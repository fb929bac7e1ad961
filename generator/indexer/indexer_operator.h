// indexer for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/indexer.h. wgmma and mma.sync have the same templates: what multiplies is a field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/indexer.h"
#include "tessera/plan.h"

namespace tessera::indexer {

/// wgmma.
struct IndexerOperator {
  using Problem = Indexer;
  using Config = indexer::Config;
  using Verdict = tessera::Verdict<indexer::Rule>;
  static constexpr std::string_view kName = "indexer";

  static bool serves(const Indexer& problem);
  static void require_facts(const Indexer& problem);
  static std::vector<Config> candidates(const Indexer& problem);
  static double score(const Config& config, const Indexer& problem);
  static std::string merit(const Config& config, const Indexer& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);

  /// The instruction by its operands: Configs by mma.sync have mma_f16 for all of them.
  static MmaKind kind_of(const Config& config);

  /// Those that a Problem may pin.
  template <class Visit>
  static void visit_pins(const Config& config, Visit&& visit) {
    visit_fields(config, [&](std::string_view name, const auto& value) {
      if (name != "mma_kind") visit(name, value);
    });
    visit("mma_kind", kind_of(config));
  }
  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [heads, head_dim, format, score_dtype, kv_layout, page_size, next_n, context_lengths, score_columns,
                 outside, mma_kind, operands, tile_q, consumers, stages] = config;
    visit("heads", heads);
    visit("head_dim", head_dim);
    visit("format", format);
    visit("score_dtype", score_dtype);
    visit("kv_layout", kv_layout);
    visit("page_size", page_size);
    visit("next_n", next_n);
    visit("context_lengths", context_lengths);
    visit("score_columns", score_columns);
    visit("outside", outside);
    visit("mma_kind", mma_kind);
    visit("operands", operands);
    visit("tile_q", tile_q);
    visit("consumers", consumers);
    visit("stages", stages);
  }
};

/// tcgen05: the same Configs, other templates.
struct IndexerTcgen05Operator : IndexerOperator {
  static constexpr std::string_view kTemplates = "indexer_tcgen05";

  static bool serves(const Indexer& problem);
  static void require_facts(const Indexer& problem);
  static std::vector<Config> candidates(const Indexer& problem);
  static std::string call(const Config& config);
};

/// mma.sync: on every target.
struct IndexerMmaOperator : IndexerOperator {
  static bool serves(const Indexer& problem);
  static void require_facts(const Indexer& problem);
  static std::vector<Config> candidates(const Indexer& problem);
};

}  // namespace tessera::indexer

namespace tessera {

using indexer::IndexerMmaOperator;
using indexer::IndexerOperator;
using indexer::IndexerTcgen05Operator;

}  // namespace tessera
