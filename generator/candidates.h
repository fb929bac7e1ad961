// How every operator chooses: a list of candidates, a verdict and a score for each, the best legal one wins.
//
// An operator is a struct of static functions (see copy2d_operator.h); nothing here depends on which one. The order of
// the candidates breaks ties, so the choice is a function of the Problem alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tessera/error.h"
#include "tessera/plan.h"

namespace tessera {

/// One Config that an operator considered. The score is meaningful when the verdict is ok; higher is better.
template <class Operator>
struct Candidate {
  typename Operator::Config config;
  typename Operator::Verdict verdict;
  double score = 0;
};

template <class Operator>
struct Choice {
  std::vector<Candidate<Operator>> candidates;  ///< each Config once, in the operator's order
  std::size_t best = 0;
};

/// "32x64x2"; "229,504".
std::string extents_text(const int* extents, int count);
std::string grouped(long long value);
/// "1 stage", "3 stages".
std::string counted(long long count, std::string_view noun);

/// A candidate and the rule that it breaks.
struct RefusedCandidate {
  std::string label, reason;
};
/// What follows a message that tells the first one's reason: "17 more candidates for the same reason", "tile 64x128 and
/// 3 more: stages 1, 2 to 16 allowed".
std::vector<std::string> refusal_notes(const std::vector<RefusedCandidate>& refused);

/// A candidate that was not chosen, as plans print it.
template <class Operator>
Rejection rejection(const Candidate<Operator>& candidate, double best_score) {
  const bool is_legal = candidate.verdict.ok();
  return {.candidate = Operator::label(candidate.config),
          .reason = is_legal ? fmt::format("legal; scored {:.2f} of the choice", candidate.score / best_score)
                             : Operator::explain(candidate.config, candidate.verdict),
          .is_legal = is_legal};
}

/// Throws Error{unsupported}: the first candidate's verdict as the message; as notes the others', each reason once,
/// with the first candidate that has it.
template <class Operator>
[[noreturn]] void refuse_all(const std::vector<Candidate<Operator>>& candidates) {
  std::vector<RefusedCandidate> refused;
  for (const Candidate<Operator>& candidate : candidates)
    refused.push_back({Operator::label(candidate.config), Operator::explain(candidate.config, candidate.verdict)});
  throw Error(ErrorKind::unsupported,
              fmt::format("{}: {}", Operator::subject(candidates.front().config), refused.front().reason),
              refusal_notes(refused));
}

template <class Operator>
Choice<Operator> choose(const typename Operator::Problem& problem) {
  Operator::require_facts(problem);
  Choice<Operator> choice;
  bool has_legal = false;
  for (const typename Operator::Config& config : Operator::candidates(problem)) {
    if constexpr (!requires { Operator::kCandidatesDiffer; }) {
      const bool is_known = std::any_of(choice.candidates.begin(), choice.candidates.end(),
                                        [&](const Candidate<Operator>& other) { return other.config == config; });
      if (is_known) continue;
    }
    Candidate<Operator> candidate{.config = config, .verdict = why_invalid(config)};
    if (candidate.verdict.ok()) {
      candidate.score = Operator::score(config, problem);
      if (!has_legal || candidate.score > choice.candidates[choice.best].score) choice.best = choice.candidates.size();
      has_legal = true;
    }
    choice.candidates.push_back(candidate);
  }
  if (!has_legal) refuse_all(choice.candidates);
  return choice;
}

/// The Config that is planned: for tests of an operator. Precondition: the Problem is that operator's.
template <class Operator>
typename Operator::Config chosen_config(const Problem& problem) {
  const Choice<Operator> choice = choose<Operator>(problem.as<typename Operator::Problem>());
  return choice.candidates[choice.best].config;
}

/// The best of candidates that are known to be legal: those are worked out whose bound says that they may be it.
template <class Operator>
std::size_t best_of_bounded(const std::vector<typename Operator::Config>& legal,
                            const typename Operator::Problem& problem) {
  std::vector<double> bounds;
  for (const typename Operator::Config& config : legal)
    bounds.push_back(Operator::most_score(config, problem) * (1 + 1e-9));  // rounding
  std::size_t best = static_cast<std::size_t>(std::max_element(bounds.begin(), bounds.end()) - bounds.begin());
  double score = Operator::score(legal[best], problem);
  for (std::size_t i = 0; i < legal.size(); ++i) {
    if (i == best || bounds[i] < score) continue;
    const double other = Operator::score(legal[i], problem);
    if (other < score || (other == score && i > best)) continue;
    best = i;
    score = other;
  }
  return best;
}

/// The best Config of choose() alone, without what choose() keeps of the others. Where an operator knows a bound of its
/// scores, those are worked out that may be the best.
template <class Operator>
typename Operator::Config best_config(const typename Operator::Problem& problem) {
  using ConfigType = typename Operator::Config;
  Operator::require_facts(problem);
  std::vector<ConfigType> legal = Operator::candidates(problem);
  std::erase_if(legal, [](const ConfigType& config) { return !why_invalid(config).ok(); });
  if (legal.empty()) {
    const Choice<Operator> choice = choose<Operator>(problem);  // says why
    return choice.candidates[choice.best].config;
  }
  if constexpr (requires(const ConfigType& config) { Operator::most_score(config, problem); }) {
    return legal[best_of_bounded<Operator>(legal, problem)];
  } else {
    std::size_t best = 0;
    double score = Operator::score(legal[0], problem);
    for (std::size_t i = 1; i < legal.size(); ++i) {
      const double other = Operator::score(legal[i], problem);
      if (other <= score) continue;
      best = i;
      score = other;
    }
    return legal[best];
  }
}

}  // namespace tessera
