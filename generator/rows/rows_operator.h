// rows for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/rows.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/rows.h"
#include "tessera/plan.h"

namespace tessera {

/// A chain in generated code.
std::string to_initialiser(const RowChain& chain);

}  // namespace tessera

namespace tessera::rows {

/// Threads a row, in the order in which they are tried; and columns that a cluster holds.
inline constexpr int kThreadsOfRow[] = {128, 64, 32, 16, 8, 256, 512, 1024, 2048, 4096, 8192};
inline constexpr int kMostHeld = kMaxThreads * rows::kMaxCtas * rows::kMaxVectors * rows::kVector;

struct RowsOperator {
  using Problem = Rows;
  using Config = rows::Config;
  using Verdict = tessera::Verdict<rows::Rule>;
  static constexpr std::string_view kName = "rows";

  static void require_facts(const Rows& problem);
  static std::vector<Config> candidates(const Rows& problem);
  static double score(const Config& config, const Rows& problem);
  static std::string merit(const Config& config, const Rows& problem);
  static std::string subject(const Config& config);
  static std::string label(const Config& config);
  static std::string explain(const Config& config, const Verdict& verdict);
  static std::string kernel_name(Arch arch, const Config& config);
  static void describe(const Config& config, Plan& plan);
  static std::string launch_bounds();
  static std::string call(const Config& config);
  static std::vector<SourceFile> generated_headers(const Config& config);

  template <class Visit>
  static void visit_fields(const Config& config, Visit&& visit) {
    const auto& [dtype, columns, conversion, threads_of_row, rows_of_cta, ctas_of_row, turns_of_row, chain] = config;
    visit("dtype", dtype);
    visit("columns", columns);
    visit("conversion", conversion);
    visit("threads_of_row", threads_of_row);
    visit("rows_of_cta", rows_of_cta);
    visit("ctas_of_row", ctas_of_row);
    visit("turns_of_row", turns_of_row);
    visit("chain", chain);
  }
};

}  // namespace tessera::rows

namespace tessera {

using rows::RowsOperator;

}  // namespace tessera
