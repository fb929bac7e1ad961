// What each lane of a warp has seen and done, and what it passes on. PTX ISA, "bar.warp.sync", "Memory Consistency
// Model".
#include <algorithm>
#include <bit>

#include "emulator/findings/race.h"

namespace tessera::emulator {

void RaceView::join(const RaceView& other) {
  seen.join(other.seen);
  fenced.join(other.fenced);
  relaxed.join(other.relaxed);
  wide.join(other.wide);
  fenced_wide.join(other.fenced_wide);
  relaxed_wide.join(other.relaxed_wide);
  own_fenced = std::min(own_fenced, other.own_fenced);
  own_fenced_wide = std::min(own_fenced_wide, other.own_fenced_wide);
  own_copies = std::min(own_copies, other.own_copies);
  has_fenced = has_fenced || other.has_fenced;
}

bool RaceView::is_like(const RaceView& other) const {
  const auto is_same = [](const VectorClock& a, const VectorClock& b) { return a.covers(b) && b.covers(a); };
  return own_fenced == other.own_fenced && own_fenced_wide == other.own_fenced_wide && own_copies == other.own_copies &&
         has_fenced == other.has_fenced && is_same(seen, other.seen) && is_same(fenced, other.fenced) &&
         is_same(relaxed, other.relaxed) && is_same(wide, other.wide) && is_same(fenced_wide, other.fenced_wide) &&
         is_same(relaxed_wide, other.relaxed_wide);
}

void RaceWarp::join_alike() {
  last_split.flag = nullptr;
  for (std::size_t i = 0; i < views.size(); ++i)
    for (std::size_t j = views.size() - 1; j > i; --j) {
      if (!views[i].is_like(views[j])) continue;
      views[i].lanes |= views[j].lanes;
      views.erase(views.begin() + static_cast<std::ptrdiff_t>(j));
    }
}

bool RaceDetector::is_transfer_over(const Warp& warp, const Warp& other, std::uint32_t clock) const {
  if (warp.race->has_seen(other.race->agent, clock)) return true;
  const LaneAgents* const lanes = info(other.race->agent).lanes.get();
  return lanes != nullptr && std::any_of(lanes->begin(), lanes->end(),
                                         [&](Agent lane) { return lane != 0 && warp.race->has_seen(lane, clock); });
}

Agent RaceDetector::lane_agent(Agent agent, int lane) {
  std::vector<AgentInfo>& agents = agents_[agent >> kAgentBits];
  const std::uint32_t index = agent & (kMaxAgents - 1);
  if (!agents[index].lanes) agents[index].lanes = std::make_shared<LaneAgents>();
  Agent& known = (*agents[index].lanes)[static_cast<std::size_t>(lane)];
  // Where there are no numbers left, the lane tells for its whole warp.
  if (known == 0 && agents.size() < kMaxAgents) {
    known = (agent & ~(kMaxAgents - 1)) | static_cast<Agent>(agents.size());
    AgentInfo of_lane = agents[index];
    of_lane.lanes = nullptr;
    agents.push_back(std::move(of_lane));
  }
  const Agent found = (*agents[index].lanes)[static_cast<std::size_t>(lane)];
  return found == 0 ? agent : found;
}

void RaceDetector::tell_own(const RaceWarp& state, const Warp& warp, Mask lanes, Agent agent,
                            std::uint32_t RaceView::*own, VectorClock& to) {
  if (agent == 0) return;
  std::uint32_t common = 0;
  if ((lanes & warp.alive) == warp.alive) {
    common = ~std::uint32_t{0};
    for (const RaceView& view : state.views)
      if (state.views.size() == 1 || (view.lanes & warp.alive) != 0) common = std::min(common, view.*own);
    if (common == ~std::uint32_t{0}) common = state.views.front().*own;
    if (common != 0) to.raise(agent, common);
  }
  for (const RaceView& view : state.views) {
    if (view.*own <= common) continue;
    for (Mask rest = view.lanes & lanes; rest != 0; rest &= rest - 1)
      to.raise(lane_agent(agent, std::countr_zero(rest)), view.*own);
  }
}

// That these lanes wait no more.
void RaceDetector::tell_waits(const RaceWarp& state, const Warp& warp, Mask lanes, VectorClock& to) {
  if (state.wait_agent == 0) return;
  if ((lanes & warp.alive) == warp.alive) return to.raise(state.wait_agent, state.waits);
  for (Mask rest = lanes; rest != 0; rest &= rest - 1)
    to.raise(lane_agent(state.wait_agent, std::countr_zero(rest)), state.waits);
}

// What the lanes themselves have done so far.
void RaceDetector::tell_done(const RaceWarp& state, const Warp& warp, Mask lanes, VectorClock& to) {
  if ((lanes & warp.alive) == warp.alive) {
    to.raise(state.agent, state.clock);
  } else {
    for (Mask rest = lanes; rest != 0; rest &= rest - 1)
      to.raise(lane_agent(state.agent, std::countr_zero(rest)), state.clock);
  }
  tell_own(state, warp, lanes, state.copy_agent, &RaceView::own_copies, to);
  tell_waits(state, warp, lanes, to);
  if (state.flag_agent != 0) to.raise(state.flag_agent, state.flags);
}

void RaceDetector::tell_fenced(const RaceWarp& state, const Warp& warp, Mask lanes, VectorClock& to, bool is_wide) {
  tell_own(state, warp, lanes, state.agent, is_wide ? &RaceView::own_fenced_wide : &RaceView::own_fenced, to);
}

// Lenient: who knows as much as one of them counts as one of them.
void RaceDetector::pass_waits(RaceWarp& state, const Warp& warp, Mask lanes) {
  if (!state.has_waited) return;
  for (RaceView& view : state.views)
    if ((view.lanes & lanes) != 0) tell_waits(state, warp, lanes, view.seen);
  ++state.waits;
  state.has_waited = (lanes & warp.alive) != warp.alive;
}

void RaceDetector::converge(Warp& warp, Mask lanes) {
  RaceWarp& state = *warp.race;
  if (state.has_waited && !std::has_single_bit(lanes & warp.alive)) pass_waits(state, warp, lanes);
  if (state.views.size() > 1 && (lanes & warp.alive) == warp.alive) state.join_alike();
}

void RaceDetector::meet(Warp& warp, Mask lanes) {
  RaceWarp& state = *warp.race;
  if (state.agent == 0) return;
  lanes &= warp.alive;
  const bool are_all = lanes == warp.alive;
  const bool are_together = state.views.size() == 1;
  if (are_together ? !state.is_dirty || std::has_single_bit(lanes) : !are_all && std::has_single_bit(lanes))
    return converge(warp, lanes);
  state.last_split.flag = nullptr;
  const auto tell_each_other = [&](RaceView& view) {
    tell_done(state, warp, lanes, view.seen);
    tell_done(state, warp, lanes, view.wide);
    tell_fenced(state, warp, lanes, view.fenced, false);
    tell_fenced(state, warp, lanes, view.fenced_wide, true);
  };
  if (are_together && are_all) {
    tell_each_other(state.views.front());
    state.next_time();
    state.is_dirty = state.has_waited = false;
    return;
  }
  RaceView together;
  bool is_first = true;
  for (const RaceView& view : state.views) {
    if ((view.lanes & lanes) == 0) continue;
    if (is_first)
      together = view;
    else
      together.join(view);
    is_first = false;
  }
  tell_each_other(together);
  state.next_time();
  if (are_all) {
    together.lanes = kAllLanes;
    state.views.clear();
    state.is_dirty = state.has_waited = false;
  } else {
    together.lanes = lanes;
    for (RaceView& view : state.views) view.lanes &= ~lanes;
    state.views.erase(
        std::remove_if(state.views.begin(), state.views.end(), [](const RaceView& view) { return view.lanes == 0; }),
        state.views.end());
  }
  state.views.push_back(std::move(together));
}

void RaceDetector::fence(Warp& warp, Mask lanes, bool is_narrow) {
  RaceWarp& state = *warp.race;
  state.for_views(lanes, [&](RaceView& view) {
    view.seen.join(view.relaxed);
    view.fenced.join(view.seen);
    view.own_fenced = state.clock;
    view.has_fenced = true;
    if (is_narrow) return;
    view.wide.join(view.relaxed_wide);
    view.fenced_wide.join(view.wide);
    view.own_fenced_wide = state.clock;
  });
  state.next_time();
}

void RaceDetector::proxy_fence(Warp& warp, Mask lanes) {
  RaceWarp& state = *warp.race;
  for (const RaceView& view : state.views)
    if ((view.lanes & lanes) != 0) proxy_fenced_.join(view.seen);
  tell_done(state, warp, lanes, proxy_fenced_);
  state.next_time();  // what the lanes store from here on is not covered
}

void RaceDetector::shared_proxy_fence(Warp& warp, Mask lanes) {
  if (lanes != ~Mask{0} || launch_.entry.reads_under_way.empty()) return;
  keep_arrival(*warp.race, kFence);
  warp.race->next_time();  // what the lanes read from here on is not over
}

void RaceDetector::keep_arrival(const RaceWarp& state, std::size_t pc) {
  constexpr std::size_t kKept = 64;  // more than a warp is ahead of the producer
  std::deque<Arrival>& kept = arrivals_[state.agent];
  // Lanes that arrive on barriers of several CTAs tell one after another.
  if (!kept.empty() && kept.back().pc == pc && kept.back().clock + 1 == state.clock) kept.pop_back();
  kept.push_back({state.clock, static_cast<std::uint32_t>(pc)});
  if (kept.size() > kKept) kept.pop_front();
}

void RaceDetector::arrive(Warp& warp, Mask lanes, std::shared_ptr<RaceSync>& sync, bool is_release, bool is_narrow) {
  RaceWarp& state = *warp.race;
  if (!sync) {
    sync = std::make_shared<RaceSync>();
    sync->pending = sync->done = sync->pending_fenced = sync->done_fenced = clock_of(*warp.cta);
    sync->pending_wide = sync->done_wide = sync->done_narrow = sync->done;
  }
  for (const RaceView& view : state.views) {
    if ((view.lanes & lanes) == 0) continue;
    sync->pending.join(is_release ? view.seen : view.fenced);
    sync->pending_fenced.join(view.fenced);
    if (!is_narrow) sync->pending_wide.join(is_release ? view.wide : view.fenced_wide);
  }
  tell_fenced(state, warp, lanes, sync->pending_fenced, false);
  if (!is_release) {
    tell_fenced(state, warp, lanes, sync->pending, false);
    if (!is_narrow) tell_fenced(state, warp, lanes, sync->pending_wide, true);
    return;
  }
  tell_done(state, warp, lanes, sync->pending);
  if (!is_narrow) tell_done(state, warp, lanes, sync->pending_wide);
  if (launch_.entry.reads_under_way.count(warp.pc) != 0) keep_arrival(state, warp.pc);
  state.next_time();
}

void RaceDetector::acquire(Warp& warp, Mask lanes, const std::shared_ptr<RaceSync>& sync, bool is_relaxed) {
  if (!sync) return;
  RaceWarp& state = *warp.race;
  if (is_relaxed)
    return state.for_views(lanes, [&](RaceView& view) {
      view.relaxed.join(sync->done);
      view.relaxed_wide.join(sync->done_wide);
    });
  // Lanes learn nothing apart that they know already.
  for (const RaceView& view : state.views)
    if ((view.lanes & ~lanes) != 0 && view.seen.covers(sync->done) && view.fenced.covers(sync->done_fenced) &&
        view.wide.covers(sync->done_wide))
      lanes &= ~view.lanes;
  state.for_views(lanes, [&](RaceView& view) {
    view.seen.join(sync->done);
    view.fenced.join(sync->done_fenced);
    view.wide.join(sync->done_wide);
  });
}

void RaceDetector::note_wait(Warp& warp, Mask lanes, RaceSync& sync) {
  constexpr std::size_t kMost = 64;  // waits of one phase that are followed
  RaceWarp& state = *warp.race;
  if (state.wait_agent == 0) state.wait_agent = make_agent(*warp.cta, warp.index, "a wait");
  if (state.wait_agent == 0) return;
  state.has_waited = true;
  for (RaceSync::Waiter& known : sync.waiters) {
    if (known.warp != &warp || known.time != state.waits || known.pc != warp.pc) continue;
    known.lanes |= lanes;
    return;
  }
  if (sync.waiters.size() < kMost) sync.waiters.push_back({&warp, state.waits, warp.pc, lanes});
}

// A wait names a parity. So a lane must look before the phase after the one that it waits for is over as well: else it
// waits on, for ever where its warp takes part in the next one. Who has arrived for the phase that ends now, or for
// what led to it, has waited itself; what of lanes of its warp that nothing has made it meet since? Warps are not
// compared: of a warpgroup that multiplies together one warp may arrive for all.
void RaceDetector::end_phase(RaceSync& sync) {
  for (const RaceSync::Waiter& waiter : sync.waiters) {
    const Agent agent = waiter.warp->race->wait_agent;
    if (agent == 0 || waiter.time <= sync.pending.at(agent) || !info(agent).lanes) continue;
    Mask behind = 0;
    for (Mask rest = waiter.lanes & waiter.warp->alive; rest != 0; rest &= rest - 1)
      if (!has_seen(sync.pending, agent, std::countr_zero(rest), waiter.time)) behind |= rest & (0 - rest);
    const Mask told = waiter.lanes & waiter.warp->alive & ~behind;
    if (behind == 0 || told == 0 || !reported_.insert({waiter.pc, agent, kLeftBehind}).second) continue;
    EmulatorFinding finding =
        waiter.warp->finding(launch_.entry.code[waiter.pc], "missing-warp-sync", std::countr_zero(behind));
    finding.message = "waits for a phase of an mbarrier beside lane " + std::to_string(std::countr_zero(told)) +
                      ", which has gone on and arrived without it: the next phase may be over as well before this lane "
                      "looks, and then the wait goes on";
    finding.cause =
        "__syncwarp (bar.warp.sync) is missing between the wait and the arrival of one lane, or the copy that it "
        "starts, for its warp";
    launch_.findings.add(std::move(finding));
  }
  sync.finish();
}

void RaceDetector::ignore_wait(const Warp& warp, const std::shared_ptr<RaceSync>& sync) {
  if (!sync) return;
  std::vector<IgnoredWait>& waits = ignored_waits_[warp.race->agent];
  for (const IgnoredWait& known : waits)
    if (known.sync == sync && known.pc == warp.pc) return;
  waits.push_back({sync, warp.pc});
}

std::shared_ptr<RaceOperation> RaceDetector::issue_copies(const Warp& warp, Mask lanes) {
  RaceWarp& state = *warp.race;
  if (state.copy_agent == 0) state.copy_agent = make_agent(*warp.cta, warp.index, "cp.async");
  auto operation = std::make_shared<RaceOperation>();
  operation->number = ++operations_;
  operation->seen = operation->wide = clock_of(*warp.cta);
  operation->own_copies = ~std::uint32_t{0};
  for (const RaceView& view : state.views) {
    if ((view.lanes & lanes) == 0) continue;
    operation->seen.join(view.seen);
    operation->wide.join(view.wide);
    operation->own_copies = std::min(operation->own_copies, view.own_copies);
  }
  operation->issuer = state.agent;
  operation->issued = state.clock;
  operation->issuer_copies = operation->read_agent = operation->write_agent = state.copy_agent;
  operation->pc = warp.pc;
  operation->is_generic = true;
  state.next_time();
  return operation;
}

void RaceDetector::wait_copies(Warp& warp, Mask lanes, std::uint64_t over) {
  RaceWarp& state = *warp.race;
  if (state.copy_agent == 0) return;
  const auto groups = static_cast<std::uint32_t>(over);
  for (const RaceView& view : state.views)
    if (view.own_copies >= groups) lanes &= ~view.lanes;
  state.for_views(lanes, [&](RaceView& view) { view.own_copies = groups; });
  state.is_dirty = true;
}

void RaceDetector::follow_copies(RaceOperation& operation, const Warp& warp, Mask lanes, std::uint64_t group) {
  const RaceWarp& state = *warp.race;
  if (state.copy_agent == 0) return;
  const auto clock = static_cast<std::uint32_t>(group) + 1;
  const auto raise = [&](Agent agent) {
    operation.seen.raise(agent, clock);
    operation.wide.raise(agent, clock);
  };
  if ((lanes & warp.alive) == warp.alive) return raise(state.copy_agent);
  for (Mask rest = lanes; rest != 0; rest &= rest - 1) raise(lane_agent(state.copy_agent, std::countr_zero(rest)));
}

// Lanes of a warp that read by volatile loads what several of them have stored by volatile stores: code from before
// lanes went their own ways. To PTX these are strong, and no race. A flag is the store of one lane.
bool RaceDetector::is_lockstep(const RaceRecord& before, const RaceRecord& now) const {
  if (before.agent != now.agent || !is_write(before) || is_write(now)) return false;
  Mask writers = 0;
  for (const Mask lanes : before.lanes.of) writers |= lanes;
  const auto is_volatile = [this](std::uint32_t pc) {
    return launch_.entry.code[pc].opcode.find(".volatile") != std::string_view::npos;
  };
  return std::popcount(writers) > 1 && is_volatile(before.pc) && is_volatile(now.pc);
}

}  // namespace tessera::emulator
