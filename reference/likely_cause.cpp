#include "reference/likely_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::reference {

namespace {

constexpr std::size_t kFewest = 4;
constexpr std::size_t kLooked = 32;

/// Spread over all that were kept. NaNs tell nothing about numbers: they are left out unless all are.
std::vector<Mismatch> sample(const std::vector<Mismatch>& mismatches) {
  std::vector<Mismatch> numbers;
  for (const Mismatch& m : mismatches)
    if (!std::isnan(m.found)) numbers.push_back(m);
  const std::vector<Mismatch>& from = numbers.size() < kFewest ? mismatches : numbers;
  const std::size_t count = std::min(kLooked, from.size());
  std::vector<Mismatch> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(from[i * from.size() / count]);
  return chosen;
}

enum class Verdict { explains, contradicts, neither };

/// A guess explains an element if it is what was found; if it could as well be what is right, that tells nothing.
Verdict judge(const Guess& guess, const Mismatch& m) {
  const auto is_near = [&](double value) {
    return guess.value == value || std::fabs(guess.value - value) <= guess.slack ||
           (std::isnan(guess.value) && std::isnan(value));
  };
  if (!is_near(m.found)) return Verdict::contradicts;
  return is_near(m.expected) ? Verdict::neither : Verdict::explains;
}

}  // namespace

std::string likely_cause(const std::vector<Mismatch>& mismatches, const std::vector<Suspect>& suspects) {
  if (mismatches.size() < kFewest) return {};
  const std::vector<Mismatch> looked = sample(mismatches);
  const std::size_t allowed = looked.size() / 10, needed = std::max(kFewest, looked.size() / 3);
  for (const Suspect& suspect : suspects) {
    if (suspect.gives_nan != std::isnan(looked.front().found)) continue;
    std::size_t explained = 0, contradicted = 0;
    for (const Mismatch& m : looked) {
      const Verdict verdict = judge(suspect.guess(m.at), m);
      explained += verdict == Verdict::explains ? 1 : 0;
      contradicted += verdict == Verdict::contradicts ? 1 : 0;
      if (contradicted > allowed) break;
    }
    if (contradicted <= allowed && explained >= needed)
      return fmt::format("likely cause: {} (gives {} of {} wrong elements that were looked at)", suspect.cause,
                         looked.size() - contradicted, looked.size());
  }
  return {};
}

}  // namespace tessera::reference
