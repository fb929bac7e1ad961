#include "generator/rows/rope_turns.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

namespace {

constexpr int kKeptBits = 48;

/// The pair, as a real number, that turns `turns` times within the positions of training.
double pair_of_turns(const RowStep& step, int columns, double turns) {
  return columns * std::log(step.trained / (turns * 2 * std::numbers::pi)) / (2 * std::log(step.base));
}

double stretched(const RowStep& step, int columns, int pair, double frequency) {
  const double slow = frequency / step.stretch;
  switch (step.scaling) {
    case RopeScaling::none:
      return frequency;
    case RopeScaling::linear:
      return slow;
    case RopeScaling::llama3: {
      const double waves = step.trained * frequency / (2 * std::numbers::pi);
      const double kept = std::clamp((waves - step.low) / (step.high - step.low), 0.0, 1.0);
      return kept * frequency + (1 - kept) * slow;
    }
    case RopeScaling::yarn: {
      const double first = std::max(std::floor(pair_of_turns(step, columns, step.high)), 0.0);
      const double last = std::min(std::ceil(pair_of_turns(step, columns, step.low)), columns - 1.0);
      const double share = std::clamp((pair - first) / std::max(last - first, 0.001), 0.0, 1.0);
      return (1 - share) * frequency + share * slow;
    }
  }
  return frequency;
}

}  // namespace

std::vector<std::uint64_t> rope_turns(const RowStep& step, int columns) {
  std::vector<std::uint64_t> turns;
  for (int pair = 0; pair < columns / 2; ++pair) {
    const double frequency = std::pow(static_cast<double>(step.base), -2.0 * pair / columns);
    const double of_turn = stretched(step, columns, pair, frequency) / (2 * std::numbers::pi);
    turns.push_back(static_cast<std::uint64_t>(std::llround(std::ldexp(of_turn, kKeptBits))) << (64 - kKeptBits));
  }
  return turns;
}

double rope_magnitude(const RowStep& step) {
  const double forward = step.magnitude == kYarnMagnitude ? 0.1 * std::log(step.stretch) + 1
                                                          : static_cast<double>(step.magnitude) / kOneMagnitude;
  return step.is_inverse ? 1 / forward : forward;
}

}  // namespace tessera
