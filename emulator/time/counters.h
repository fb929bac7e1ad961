// Counters in memory by which CTAs that stay take their next tile: an atomic addition whose result says which. Where
// some of a grid's clusters run by themselves each would take all tiles; so the others take theirs at the same time:
// between two of a cluster's every other one that is there has one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "emulator/machine.h"

namespace tessera::emulator {

/// What is known of a launch's counters; outlives the clusters that run by themselves.
class TileCounters {
 public:
  explicit TileCounters(std::uint64_t resident) : resident_(resident) {}

  /// An addition to 32 bits of global memory whose result somebody may read.
  static bool is_form(const Instruction& in);
  /// Runs it; what a counter gives is what it would be if all that are there took one each in turn.
  Step take(Warp& warp, const Instruction& in, Mask active);
  /// A run by itself begins.
  void begin() { taken_.clear(); }
  /// One was found since the last call: a run that did not know it is to be made again.
  bool found_one() { return std::exchange(is_new_, false); }
  bool has_found() const { return is_new_; }
  bool any() const { return !known_.empty(); }

 private:
  std::uint64_t resident_;  ///< clusters that are there at once
  std::set<const Instruction*> known_{};
  std::map<std::uint64_t, std::uint32_t> begins_{};                           ///< by address: before anybody took one
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> taken_{};  ///< by cluster and address
  bool is_new_ = false;
};

}  // namespace tessera::emulator
