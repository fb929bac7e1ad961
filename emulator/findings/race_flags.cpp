// Strong accesses: flags in memory, by which threads tell each other that data is there. PTX ISA, "Memory Consistency
// Model": release and acquire patterns, observation order, synchronization.
//
// A flag is kept for every 4 bytes that a release pattern has written: what its observers may rely on. An atomic adds
// to what is there, so that a chain of atomics passes on all of it; a store of whole words begins anew.
#include "emulator/findings/race.h"

namespace tessera::emulator {

std::uint64_t RaceDetector::flag_key(const Target& target) const {
  if (target.cta == nullptr) return launch_.memory.address_of(target.data);
  constexpr std::uint64_t kShared = std::uint64_t{1} << 63;
  return kShared | std::uint64_t{clusters_.at(target.cta->cluster)} << 32 | std::uint64_t{target.cta->rank} << 24 |
         target.offset;
}

void RaceDetector::observe(RaceWarp& state, const Warp& warp, const RaceSync& flag, MemoryOrder order) {
  if (order.acquires) {
    state.seen.join(flag.done);
    state.fenced.join(flag.done_fenced);
  } else {
    state.relaxed.join(flag.done);
  }
  // An acquire of .cta scope takes no more than what its own CTA released.
  VectorClock& wide = order.acquires ? state.wide : state.relaxed_wide;
  if (!order.is_narrow) wide.join(flag.done_wide);
  if (flag.narrow_cta == warp.cta) wide.join(flag.done_narrow);
}

void RaceDetector::publish_flag(RaceWarp& state, const Warp& warp, RaceSync& flag, MemoryOrder order) {
  flag.done.join(order.releases ? state.seen : state.fenced);
  if (state.flag_agent != 0 && !order.releases) flag.done.raise(state.flag_agent, state.flags);
  flag.done_fenced.join(state.fenced);
  const VectorClock& released = order.releases ? state.wide : state.fenced_wide;
  if (!order.is_narrow) flag.done_wide.join(released);
  // One CTA's own use of the flag needs no more than .cta scope. Of several CTAs' narrow ones nothing is said.
  if (flag.narrow_cta != nullptr && flag.narrow_cta != warp.cta) flag.done_wide.join(flag.done);
  flag.narrow_cta = warp.cta;
  flag.done_narrow.join(order.releases ? state.wide : state.fenced);
}

void RaceDetector::strong_access(Warp& warp, const Instruction& in, int lane, const Target& target, std::size_t bytes,
                                 MemoryOrder order) {
  const std::uint64_t key = flag_key(target);
  if (key == 0) return;
  RaceWarp& state = *warp.race;
  const bool has_fenced = state.fenced.at(state.agent) != 0;
  const bool is_release = order.writes && (order.releases || has_fenced);
  const std::uint64_t first = key / 4, last = (key + bytes - 1) / 4;
  if (order.reads && !flags_.empty())
    for (std::uint64_t word = first; word <= last; ++word)
      if (const auto flag = flags_.find(word); flag != flags_.end()) observe(state, warp, *flag->second, order);

  AccessKind kind{order.writes, true, false, order.is_narrow};
  if (is_release && !order.releases) {
    if (state.flag_agent == 0) state.flag_agent = make_agent(*warp.cta, warp.index, "a flag");
    state.seen.raise(state.flag_agent, ++state.flags);
    state.wide.raise(state.flag_agent, state.flags);
    kind.is_flag = true;
  }
  access(warp, in, lane, target, bytes, kind);

  if (!order.writes || (!is_release && flags_.empty())) return;
  for (std::uint64_t word = first; word <= last; ++word) {
    auto flag = flags_.find(word);
    if (flag != flags_.end() && !order.reads && bytes >= 4) *flag->second = {};  // a store hides what was released
    if (!is_release) continue;
    if (flag == flags_.end()) flag = flags_.emplace(word, std::make_unique<RaceSync>()).first;
    publish_flag(state, warp, *flag->second, order);
  }
  if (order.releases) publish(state);
}

}  // namespace tessera::emulator
