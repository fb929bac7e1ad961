// A cover of pairs: of all choices, each a value of every dimension, so few that every two values which some choice has
// together stand together in one that is kept.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

namespace tessera::testing {

/// Indices of choices, each with a pair that none before it has; those that would add most first.
inline std::vector<std::size_t> pairwise(const std::vector<std::vector<std::size_t>>& choices) {
  using Pair = std::pair<std::size_t, std::size_t>;
  const auto pairs_of = [](const std::vector<std::size_t>& values) {
    std::set<Pair> pairs;
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t j = i + 1; j < values.size(); ++j) pairs.insert({i * 100 + values[i], j * 100 + values[j]});
    return pairs;
  };
  std::vector<std::size_t> cover;
  std::set<Pair> covered;
  while (true) {
    std::size_t best = 0, most = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      std::size_t fresh = 0;
      for (const Pair& pair : pairs_of(choices[i])) fresh += covered.count(pair) == 0 ? 1U : 0U;
      if (fresh > most) {
        most = fresh;
        best = i;
      }
    }
    if (most == 0) return cover;
    covered.merge(pairs_of(choices[best]));
    cover.push_back(best);
  }
}

}  // namespace tessera::testing
