#include "emulator/memory/map_fence.h"

#include <fmt/format.h>

#include "emulator/findings/race.h"
#include "emulator/machine.h"

namespace tessera::emulator {
namespace {

std::uint64_t number_of(const Warp& warp) {
  const std::array<std::uint32_t, 3>& id = warp.cta->id;
  const LaunchShape& shape = warp.launch->shape;
  return id[0] + std::uint64_t{shape.grid[0]} * (id[1] + std::uint64_t{shape.grid[1]} * id[2]);
}

constexpr const char* kCause =
    "after a change: fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy) by the changer, then "
    "fence.proxy.tensormap::generic.acquire of the map's 128 bytes before the copy";

}  // namespace

void MapFences::changed(const Warp& warp, std::uint64_t address, Reach released) {
  ++clock_;
  changes_[address] = {clock_, number_of(warp), warp.code[warp.pc].line, released, clock_};
}

void MapFences::release(const Warp& warp, Reach reach) {
  ++clock_;
  for (auto& [address, change] : changes_) {
    if (change.cta != number_of(warp) || change.released >= reach) continue;
    change.released = reach;
    change.released_at = clock_;
  }
}

void MapFences::acquire(const Warp& warp, std::uint64_t address) { acquired_[{number_of(warp), address}] = ++clock_; }

void MapFences::check(Warp& warp, const Instruction& in, int lane, std::uint64_t address) const {
  const std::uint64_t cta = number_of(warp);
  const auto acquired = acquired_.find({cta, address});
  const auto change = changes_.find(address);
  std::string problem;
  if (change != changes_.end()) {
    const Change& c = change->second;
    if (c.released == Reach::none)
      problem = fmt::format("the map was changed at PTX line {}, and no release followed", c.line);
    else if (c.released == Reach::cta && c.cta != cta)
      problem = fmt::format("another CTA changed the map at PTX line {} and released it at CTA scope only", c.line);
    else if (acquired == acquired_.end() || acquired->second < c.released_at)
      problem = fmt::format("the map was changed at PTX line {}, and this CTA acquired nothing after it", c.line);
  } else if (acquired == acquired_.end() && warp.race && warp.launch->race->was_stored(address, 128)) {
    problem = "this launch stored into the map, and this CTA acquired nothing after it";
  }
  if (!problem.empty()) warp.hazard(in, "missing-tensormap-fence", lane, address, problem, kCause);
}

}  // namespace tessera::emulator
