// Tensor maps that a kernel changes in global memory. PTX ISA, "Tensormap", "fence.proxy.tensormap".
//
// Tensor copies read a map through a proxy of their own. A change made with ordinary stores, tensormap.replace or
// tensormap.cp_fenceproxy reaches it only by a release of the changer (cp_fenceproxy has one) and, after it, an acquire
// of those 128 bytes by the copy's CTA. What an earlier launch wrote needs neither. Which thread of a CTA executes a
// fence is not looked at. Maps changed by ordinary stores are seen by the race detector's records, so only with it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace tessera::emulator {

class Warp;
struct Instruction;

class MapFences {
 public:
  /// How far a release reaches.
  enum class Reach : std::uint8_t { none, cta, all };

  void changed(const Warp& warp, std::uint64_t address, Reach released);
  void release(const Warp& warp, Reach reach);
  void acquire(const Warp& warp, std::uint64_t address);
  /// A tensor copy is about to read the map: a hazard when the fences are not there.
  void check(Warp& warp, const Instruction& in, int lane, std::uint64_t address) const;
  bool is_empty() const { return changes_.empty(); }

 private:
  struct Change {
    std::uint64_t at = 0;
    std::uint64_t cta = 0;
    std::int32_t line = 0;  ///< of the PTX
    Reach released = Reach::none;
    std::uint64_t released_at = 0;
  };
  std::uint64_t clock_ = 0;
  std::map<std::uint64_t, Change> changes_;                                    // the last one of an address
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> acquired_;  // CTA and address
};

}  // namespace tessera::emulator
