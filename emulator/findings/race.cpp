// Happens-before: who has seen what. The accesses themselves are in race_access.cpp.
#include "emulator/findings/race.h"

#include <bit>

#include "emulator/tensor_cores/tensor_core.h"

namespace tessera::emulator {

void RaceDetector::start_cluster(Cluster& cluster) {
  clusters_[&cluster] = static_cast<std::uint32_t>(agents_.size());
  agents_.emplace_back(1);  // index 0 is nobody
  cluster.race = nullptr;
}

void RaceDetector::start_cta(Cta& cta) {
  cta.race = std::make_shared<RaceCta>(states_, static_cast<std::uint32_t>(cta.shared_bytes));
  cta.race->exited = clock_of(cta);
  for (Warp& warp : cta.warps) {
    warp.race = std::make_shared<RaceWarp>();
    RaceWarp& state = *warp.race;
    state.agent = make_agent(cta, warp.index, nullptr);
    RaceView& view = state.views.emplace_back();
    view.lanes = kAllLanes;
    view.seen = view.fenced = view.relaxed = view.wide = view.fenced_wide = view.relaxed_wide = clock_of(cta);
    view.seen.raise(state.agent, state.clock - 1);
    view.wide.raise(state.agent, state.clock - 1);
    cta.race->warps.push_back(state.agent);
  }
}

VectorClock RaceDetector::clock_of(const Cta& cta) { return VectorClock(cta.launch->race->clusters_.at(cta.cluster)); }

Agent RaceDetector::make_agent(const Cta& cta, int warp, const char* what) {
  const std::uint32_t cluster = clusters_.at(cta.cluster);
  std::vector<AgentInfo>& agents = agents_[cluster];
  // Beyond the limit, or beyond 2^20 clusters, accesses are not followed: nothing is reported that is not a race.
  if (agents.size() >= kMaxAgents || cluster >= 1u << (32 - kAgentBits)) return 0;
  agents.push_back({cta.id, warp, what});
  return cluster << kAgentBits | static_cast<Agent>(agents.size() - 1);
}

bool RaceDetector::has_seen(const VectorClock& seen, Agent agent, int lane, std::uint32_t clock) const {
  if (agent == 0 || clock <= seen.at(agent)) return true;
  const LaneAgents* const lanes = info(agent).lanes.get();
  return lanes != nullptr && clock <= seen.at((*lanes)[static_cast<std::size_t>(lane)]);
}

// Remote accesses must be over, for all that the CTA's warps know, before its last warp leaves: its memory goes.
void RaceDetector::exit_warp(Warp& warp) {
  RaceCta& cta = *warp.cta->race;
  for (const RaceView& view : warp.race->views) cta.exited.join(view.seen);
  cta.exited.raise(warp.race->agent, warp.race->clock);
  if (warp.cta->live_warps > 1) return;
  for (RaceCta::Remote& remote : cta.remote) {
    if (!has_seen(cta.exited, remote.agent, remote.lane, remote.clock)) report_exit(remote.place, remote.address);
  }
}

void RaceDetector::report_exit(const InstructionPlace& place, std::uint64_t address) {
  EmulatorFinding finding = place.finding("cluster-peer-may-exit");
  finding.address = address;
  finding.has_address = true;
  finding.message = "another CTA's shared memory is accessed, and nothing keeps that CTA from exiting before";
  finding.cause = "a cluster barrier at the end of the kernel is missing: all CTAs must stay until peers are done";
  launch_.findings.add(std::move(finding));
}

void RaceDetector::initialise(Warp& warp, int lane, Cta& owner, Mbarrier& barrier) {
  barrier.race = std::make_shared<RaceSync>();
  RaceSync& sync = *barrier.race;
  sync.pending = sync.done = sync.pending_fenced = sync.done_fenced = clock_of(owner);
  sync.pending_wide = sync.done_wide = sync.done_narrow = sync.done;
  sync.agent = make_agent(owner, warp.index, "a copy");
  sync.initialiser = warp.race->agent;
  sync.initialised = warp.race->clock;
  sync.initialiser_lane = lane;
  sync.initialised_pc = warp.pc;
  warp.race->is_dirty = true;
}

void RaceDetector::use(Warp& warp, const Instruction& in, int lane, Cta& owner, const Mbarrier& barrier) {
  if (!barrier.race) return;
  const RaceSync& sync = *barrier.race;
  const RaceWarp& state = *warp.race;
  const std::uint32_t address = owner.shared_address(barrier.offset);
  const Accessor accessor = accessor_of(warp, state.view(lane), in);
  if (&owner != warp.cta) check_peer(owner, accessor, state.agent, state.clock, address, lane);
  if (sync.initialiser == state.agent && sync.initialiser_lane == lane) return;
  if (has_seen(*accessor.seen, sync.initialiser, sync.initialiser_lane, sync.initialised)) return;
  EmulatorFinding finding = finding_of(accessor, "mbarrier-init-unordered", lane, address);
  finding.message = "nothing orders this use after the mbarrier's initialisation";
  const Instruction& init = launch_.entry.code[sync.initialised_pc];
  finding.message += " at PTX line " + std::to_string(init.line);
  finding.cause =
      "__syncthreads (in a cluster: fence.mbarrier_init and the cluster barrier) is missing after mbarrier.init";
  launch_.findings.add(std::move(finding));
}

std::shared_ptr<RaceOperation> RaceDetector::issue(const Warp& warp, const Instruction&, Mask lanes) {
  RaceWarp& state = *warp.race;
  auto operation = std::make_shared<RaceOperation>();
  operation->number = ++operations_;
  const RaceView& view = state.view(std::countr_zero(lanes));
  operation->seen = view.seen;
  operation->wide = view.wide;
  for (const RaceView& other : state.views) {
    if (&other == &view || (other.lanes & lanes) == 0) continue;
    operation->seen.join(other.seen);
    operation->wide.join(other.wide);
  }
  tell_done(state, warp, lanes, operation->seen);
  tell_done(state, warp, lanes, operation->wide);
  operation->issuer = state.agent;
  operation->issued = state.clock;
  operation->issuer_copies = state.copy_agent;
  operation->own_copies = view.own_copies;
  operation->pc = warp.pc;
  operation->lanes = lanes;
  state.next_time();
  return operation;
}

void RaceDetector::complete_on(RaceOperation& operation, Cta& owner, Mbarrier& barrier) {
  if (!barrier.race) return;
  RaceSync& sync = *barrier.race;
  sync.complete(operation);
  operation.read_agent = operation.write_agent = sync.agent;
  operation.read_clock = operation.write_clock = static_cast<std::uint32_t>(barrier.phase) + 1;
  sync.pending.raise(sync.agent, operation.write_clock);
  sync.pending_wide.raise(sync.agent, operation.write_clock);
  static_cast<void>(owner);
}

void RaceDetector::remember(const RaceOperation& operation, std::shared_ptr<WgmmaResult> result) {
  constexpr std::size_t kKept = 16;  // more than a ring has slots
  auto& kept = results_[{operation.read_agent, operation.pc}];
  if (!kept.empty() && kept.back().second == result) return;
  kept.emplace_back(operation.read_clock, std::move(result));
  if (kept.size() > kKept) kept.pop_front();
}

WgmmaResult* RaceDetector::result_of(const RaceRecord& record) {
  const auto found = results_.find({record.agent, record.pc});
  if (found == results_.end()) return nullptr;
  for (const auto& [clock, result] : found->second)
    if (clock == record.clock) return &result->last();
  return nullptr;
}

Agent RaceDetector::make_warpgroup(const Cta& cta, int first_warp) {
  const Agent made = make_agent(cta, first_warp, "wgmma");
  if (made == 0) return 0;
  std::array<Agent, 4> parts{};
  for (int i = 0; i < 4; ++i) parts[static_cast<std::size_t>(i)] = make_agent(cta, first_warp + i, "wgmma");
  agents_[made >> kAgentBits][made & (kMaxAgents - 1)].parts = parts;
  return made;
}

void RaceDetector::wait_wgmma(Warp& warp, Agent warpgroup, std::uint32_t groups) {
  const Agent part = info(warpgroup).parts[static_cast<std::size_t>(warp.index) % 4];
  for (RaceView& view : warp.race->views) {
    view.seen.raise(warpgroup, groups);
    if (part != 0) view.seen.raise(part, groups);
  }
}

void RaceDetector::use_tensor_memory(Cta& cta, const TmemRegion& region, const RaceOperation& product) {
  for (RaceCta::TensorUse& use : cta.race->tensor_uses) {
    const bool is_same = use.agent == product.read_agent && use.region.first == region.first &&
                         use.region.end == region.end && use.region.quarters == region.quarters;
    if (!is_same) continue;
    use.clock = product.read_clock;
    use.pc = product.pc;
    return;
  }
  constexpr std::size_t kMost = 64;  // more than a kernel has regions
  if (cta.race->tensor_uses.size() >= kMost) return;
  cta.race->tensor_uses.push_back({region, product.read_agent, product.read_clock, product.pc});
}

void RaceDetector::copy_to_tensor_memory(const Warp& warp, const Instruction& in, int lane, const Cta& cta,
                                         const TmemRegion& region) {
  const RaceView& view = warp.race->view(lane);
  for (const RaceCta::TensorUse& use : cta.race->tensor_uses) {
    if (!use.region.overlaps(region) || use.clock <= view.seen.at(use.agent)) continue;
    report_unordered_copy(warp, in, lane, region, launch_.entry.code[use.pc]);
    return;
  }
}

void RaceDetector::join_group(RaceOperation& operation, const Warp& warp, GroupList& groups) {
  if (groups.read_agent == 0) {
    groups.read_agent = make_agent(*warp.cta, warp.index, "a store");
    groups.written_agent = make_agent(*warp.cta, warp.index, "a store");
  }
  operation.read_agent = groups.read_agent;
  operation.write_agent = groups.written_agent;
  operation.read_clock = operation.write_clock = static_cast<std::uint32_t>(groups.closed) + 1;
}

void RaceDetector::wait_group(Warp& warp, int lane, const GroupList& groups, std::uint64_t allowed, bool only_reading) {
  if (groups.closed <= allowed || groups.read_agent == 0) return;
  const auto over = static_cast<std::uint32_t>(groups.closed - allowed);
  const VectorClock& seen = warp.race->view(lane).seen;
  if (seen.at(groups.read_agent) >= over && (only_reading || seen.at(groups.written_agent) >= over)) return;
  warp.race->for_views(Mask{1} << lane, [&](RaceView& view) {
    view.seen.raise(groups.read_agent, over);
    if (only_reading) return;
    view.seen.raise(groups.written_agent, over);
    view.wide.raise(groups.written_agent, over);
  });
}

}  // namespace tessera::emulator
