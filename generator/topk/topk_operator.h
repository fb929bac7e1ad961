// topk for the planner: see copy2d_operator.h for what each function says. The contract with the device code:
// spec/topk.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/topk.h"
#include "tessera/plan.h"

namespace tessera::topk {

struct TopkOperator {
  using Problem = Topk;
  using Config = topk::Config;
  using Verdict = tessera::Verdict<topk::Rule>;
  static constexpr std::string_view kName = "topk";

  static void require_facts(const Topk& problem);
  static std::vector<Config> candidates(const Topk& problem);
  static double score(const Config& config, const Topk& problem);
  static std::string merit(const Config& config, const Topk& problem);
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
    const auto& [dtype, k, ties, order, range, index_form, values, guesses, threads, ctas, elements, words] = config;
    visit("dtype", dtype);
    visit("k", k);
    visit("ties", ties);
    visit("order", order);
    visit("range", range);
    visit("index_form", index_form);
    visit("values", values);
    visit("guesses", guesses);
    visit("threads", threads);
    visit("ctas", ctas);
    visit("elements", elements);
    visit("words", words);
  }
};

}  // namespace tessera::topk

namespace tessera {

using topk::TopkOperator;

}  // namespace tessera
