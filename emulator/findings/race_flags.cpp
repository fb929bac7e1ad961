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

void RaceDetector::observe(RaceWarp& state, const Warp& warp, int lane, const RaceSync& flag, MemoryOrder order) {
  VectorClock RaceView::*const seen = order.acquires ? &RaceView::seen : &RaceView::relaxed;
  VectorClock RaceView::*const wide = order.acquires ? &RaceView::wide : &RaceView::relaxed_wide;
  // An acquire of .cta scope takes no more than what its own CTA released.
  const bool takes_wide = !order.is_narrow, takes_narrow = flag.narrow_cta == warp.cta;
  RaceView& own = state.view(lane);
  if ((own.*seen).covers(flag.done) && (!order.acquires || own.fenced.covers(flag.done_fenced)) &&
      (!takes_wide || (own.*wide).covers(flag.done_wide)) && (!takes_narrow || (own.*wide).covers(flag.done_narrow)))
    return;
  const Mask bit = Mask{1} << lane;
  const auto from = static_cast<std::size_t>(&own - state.views.data());
  RaceWarp::Split& last = state.last_split;
  if (last.flag == &flag && last.pc == warp.pc && last.from == from && own.lanes != bit) {
    own.lanes &= ~bit;
    state.views[last.to].lanes |= bit;
    return;
  }
  const std::size_t before = state.views.size();
  state.for_views(bit, [&](RaceView& view) {
    (view.*seen).join(flag.done);
    if (order.acquires) view.fenced.join(flag.done_fenced);
    if (takes_wide) (view.*wide).join(flag.done_wide);
    if (takes_narrow) (view.*wide).join(flag.done_narrow);
  });
  if (state.views.size() > before) last = {&flag, from, before, warp.pc};
}

void RaceDetector::publish_flag(RaceWarp& state, const Warp& warp, int lane, RaceSync& flag, MemoryOrder order) {
  const Mask bit = Mask{1} << lane;
  const RaceView& view = state.view(lane);
  const auto tell = [&](VectorClock& to, bool is_wide) {
    if (order.releases) {
      to.join(is_wide ? view.wide : view.seen);
      return tell_done(state, warp, bit, to);
    }
    to.join(is_wide ? view.fenced_wide : view.fenced);
    tell_fenced(state, warp, bit, to, is_wide);
    if (state.flag_agent != 0) to.raise(state.flag_agent, state.flags);
  };
  tell(flag.done, false);
  flag.done_fenced.join(view.fenced);
  tell_fenced(state, warp, bit, flag.done_fenced, false);
  if (!order.is_narrow) tell(flag.done_wide, true);
  // One CTA's own use of the flag needs no more than .cta scope. Of several CTAs' narrow ones nothing is said.
  if (flag.narrow_cta != nullptr && flag.narrow_cta != warp.cta) flag.done_wide.join(flag.done);
  flag.narrow_cta = warp.cta;
  tell(flag.done_narrow, order.releases);
}

void RaceDetector::strong_access(Warp& warp, const Instruction& in, int lane, const Target& target, std::size_t bytes,
                                 MemoryOrder order) {
  RaceWarp& state = *warp.race;
  const bool is_release = order.writes && (order.releases || state.view(lane).has_fenced);
  // Nobody has told anything by a flag, and this tells nothing.
  if (!is_release && flags_.empty() && (!order.acquires || launch_.prior_grids.empty()))
    return access(warp, in, Mask{1} << lane, target, bytes, {order.writes, true, false, order.is_narrow});
  const std::uint64_t key = flag_key(target);
  if (key == 0) return;
  const std::uint64_t first = key / 4, last = (key + bytes - 1) / 4;
  if (order.reads && !flags_.empty())
    for (std::uint64_t word = first; word <= last; ++word)
      if (const auto flag = flags_.find(word); flag != flags_.end()) observe(state, warp, lane, *flag->second, order);

  if (order.acquires && target.cta == nullptr && !launch_.prior_grids.empty()) acquire_prior(state, lane, key, bytes);
  AccessKind kind{order.writes, true, false, order.is_narrow};
  if (is_release && !order.releases) {
    if (state.flag_agent == 0) state.flag_agent = make_agent(*warp.cta, warp.index, "a flag");
    ++state.flags;
    state.is_dirty = true;
    kind.is_flag = true;
  }
  access(warp, in, Mask{1} << lane, target, bytes, kind);

  if (!order.writes || (!is_release && flags_.empty())) return;
  for (std::uint64_t word = first; word <= last; ++word) {
    auto flag = flags_.find(word);
    if (flag != flags_.end() && !order.reads && bytes >= 4) *flag->second = {};  // a store hides what was released
    if (!is_release) continue;
    if (flag == flags_.end()) flag = flags_.emplace(word, std::make_unique<RaceSync>()).first;
    publish_flag(state, warp, lane, *flag->second, order);
  }
  if (order.releases) state.next_time();
}

}  // namespace tessera::emulator
