// A tuning file: for single problems, sizes included, the candidate that was fastest on one device. Opt-in: with
// --tuning FILE a problem that the file knows, pins that were given included, gets the pins of that candidate, so the
// choice is part of the Problem from there on; any other problem stays the planner's.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/problem.h"

namespace tessera {

struct TunedChoice {
  std::vector<std::pair<std::string, std::string>> pins;  ///< key and text
  std::string kernel;
  double time_us = 0;
  double default_us = 0;  ///< of the planner's own choice, measured beside it
  int candidates = 0;     ///< measured
};

class Tuning {
 public:
  /// Throws Error{usage} with the place of what is wrong, Error{io}.
  static Tuning read(const std::string& file);
  /// Over the file, whose other problems stay; in one go, so that a reader sees the old text or the new one.
  void write(const std::string& file) const;

  /// The choice for a problem as it was given. The device is that of all choices.
  void set(const Problem& problem, TunedChoice choice) { choices_[problem] = std::move(choice); }
  /// Pins the problem where there is a choice for it; false, and nothing done, where there is none.
  bool apply(Problem& problem) const;
  std::size_t size() const { return choices_.size(); }

  std::string device;     ///< "NVIDIA H200"
  std::string predicted;  ///< how times were predicted, where no device measured them; empty: measured

 private:
  std::unordered_map<Problem, TunedChoice, ProblemHash> choices_;
};

/// "measured on NVIDIA H200", "predicted for B200".
std::string how_made(const Tuning& tuning);

}  // namespace tessera
