#include "emulator/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "emulator/findings/race.h"
#include "emulator/memory/weak_memory.h"
#include "emulator/tensor_cores/wgmma.h"

namespace tessera::emulator {
namespace {

constexpr std::uint32_t kNever = 0xFFFFFFFF;

bool is_parked_runnable(const Group& group) { return group.wait.kind == Wait::Kind::none; }

}  // namespace

void Warp::update_merge_pc() {
  merge_pc = kNever;
  if (launch->splits_warps) return;  // groups meet where they must, else by chance
  for (const Group& group : parked)
    if (is_parked_runnable(group) && !group.yielded) merge_pc = std::min(merge_pc, group.pc);
}

void Warp::keep(Mask active) {
  if (active == mask) return;
  Group rest;
  rest.mask = mask & ~active;
  rest.pc = pc + 1;
  mask = active;
  parked.push_back(rest);
  update_merge_pc();
}

void Warp::park_current(Wait what, bool yielded) {
  if (mask == 0) return;
  Group group;
  group.pc = pc;
  group.mask = mask;
  group.wait = what;
  group.yielded = yielded;
  // A slice may end before a group that was woken has executed its instruction again.
  if (what.kind == Wait::Kind::none) group.wake = wake;
  wake = Wake::none;
  parked.push_back(group);
  mask = 0;
}

bool Warp::resume(bool allow_yielded) {
  std::size_t best = parked.size();
  std::uint64_t choices = 0;
  for (std::size_t i = 0; i < parked.size(); ++i) {
    if (!is_parked_runnable(parked[i]) || (parked[i].yielded && !allow_yielded)) continue;
    if (launch->splits_warps ? launch->random.below(++choices) == 0
                             : best == parked.size() || parked[i].pc < parked[best].pc)
      best = i;
  }
  if (best == parked.size()) return false;
  const Group group = parked[best];
  parked.erase(parked.begin() + static_cast<std::ptrdiff_t>(best));
  pc = group.pc;
  mask = group.mask;
  wake = group.wake;
  update_merge_pc();
  if (wake == Wake::none) reconverge();
  return true;
}

// Called when the running group has come to merge_pc or past it.
void Warp::reconverge() {
  if (wake != Wake::none) return;  // other lanes here have not yet done what this group came back from
  if (launch->splits_warps && launch->random.below(4) != 0) return;
  for (std::size_t i = 0; i < parked.size();) {
    if (is_parked_runnable(parked[i]) && parked[i].pc == pc && parked[i].wake == Wake::none) {
      mask |= parked[i].mask;
      parked.erase(parked.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  update_merge_pc();
  if (merge_pc < pc) {
    park_current({}, false);
    resume(false);
  }
}

void Warp::split(std::vector<Group> groups) {
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.pc < b.pc; });
  pc = groups.front().pc;
  mask = groups.front().mask;
  parked.insert(parked.end(), groups.begin() + 1, groups.end());
  update_merge_pc();
}

bool Warp::converged(Mask wanted, Mask active, Step& out) {
  wanted &= alive;
  if ((active & wanted) == wanted) {
    if (race) [[unlikely]]
      launch->race->converge(*this, wanted);
    return true;
  }
  keep(active);
  for (std::size_t i = 0; i < parked.size();) {
    if (parked[i].pc == pc && parked[i].wait.kind == Wait::Kind::converge) {
      mask |= parked[i].mask;
      parked.erase(parked.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  if ((mask & wanted) == wanted) {
    // Executed again at once, with all lanes: parked ones included.
    out = Step::jumped;
    return false;
  }
  out = block({Wait::Kind::converge, 0, 0, wanted});
  return false;
}

Mask Warp::missing_at_barrier(Mask wanted, Mask here) const {
  for (const Group& group : parked)
    if (group.wait.kind == Wait::Kind::warp_barrier && group.wait.mask == wanted) here |= group.mask;
  return wanted & alive & ~here;
}

void Warp::release_barrier(Mask wanted) {
  if (race) launch->race->meet(*this, wanted);
  if (launch->weak) launch->weak->synchronise(*this, wanted);
  for (std::size_t i = 0; i < parked.size();) {
    Group& group = parked[i];
    if (group.wait.kind != Wait::Kind::warp_barrier || group.wait.mask != wanted) {
      ++i;
    } else if (mask != 0 && group.pc == pc) {
      mask |= group.mask;
      parked.erase(parked.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      group.wait = {};
      group.wake = Wake::ready;
      ++i;
    }
  }
  update_merge_pc();
}

bool Warp::exit_lanes(Mask active) {
  alive &= ~active;
  mask &= ~active;
  ++launch->progress;
  Cluster& cluster = *cta->cluster;
  cluster.live_threads -= static_cast<std::uint32_t>(std::popcount(active));
  // Nobody waits for these threads any more, so what they have arrived with must not count for others.
  if (cluster_generation == cluster.generation)
    cluster.arrived -= static_cast<std::uint32_t>(std::popcount(active & cluster_arrived));
  if (alive == 0) {
    if (race) launch->race->exit_warp(*this);
    cta->warp_exited();
  }
  cluster.check_barrier();
  return mask == 0;
}

EmulatorFinding InstructionPlace::finding(const char* name) const {
  EmulatorFinding finding;
  finding.name = name;
  finding.entry = launch->entry.name;
  finding.ptx_line = in->line;
  finding.instruction = std::string(in->opcode);
  finding.source_file = std::string(launch->program.source_file(in->source_file));
  finding.source_line = in->source_line;
  finding.source_place = launch->program.place_of(*in);
  finding.cta = cta;
  finding.warp = warp;
  finding.lane = lane;
  return finding;
}

InstructionPlace Warp::place(const Instruction& in, int lane) const { return {launch, &in, cta->id, index, lane}; }

EmulatorFinding Warp::finding(const Instruction& in, const char* name, int lane) const {
  return place(in, lane).finding(name);
}

Step Warp::fault(const Instruction& in, const char* name, std::string message, std::string cause, int lane) {
  EmulatorFinding f = finding(in, name, lane);
  f.is_failure = true;
  f.message = std::move(message);
  f.cause = std::move(cause);
  launch->findings.add(std::move(f));
  return Step::fault;
}

Step Warp::fault_at(const Instruction& in, const char* name, int lane, std::uint64_t address, std::string message,
                    std::string cause) {
  EmulatorFinding f = finding(in, name, lane);
  f.is_failure = true;
  f.address = address;
  f.has_address = true;
  f.message = std::move(message);
  f.cause = std::move(cause);
  launch->findings.add(std::move(f));
  return Step::fault;
}

void Warp::hazard(const Instruction& in, const char* name, int lane, std::uint64_t address, std::string message,
                  std::string cause) {
  EmulatorFinding f = finding(in, name, lane);
  f.address = address;
  f.has_address = address != 0;
  f.message = std::move(message);
  f.cause = std::move(cause);
  launch->findings.add(std::move(f));
}

Cta::Cta() = default;
Cta::~Cta() = default;

Mbarrier* Cta::find_mbarrier(std::uint32_t offset) {
  for (Mbarrier& barrier : mbarriers)
    if (barrier.offset == offset) return barrier.is_live ? &barrier : nullptr;
  return nullptr;
}

Mbarrier& Cta::make_mbarrier(std::uint32_t offset) {
  for (Mbarrier& barrier : mbarriers)
    if (barrier.offset == offset) return barrier;
  launch->has_mbarriers = true;
  mbarriers_begin = mbarriers.empty() ? offset : std::min(mbarriers_begin, offset);
  mbarriers_end = mbarriers.empty() ? offset + 8 : std::max(mbarriers_end, offset + 8);
  mbarriers.emplace_back();
  mbarriers.back().offset = offset;
  return mbarriers.back();
}

void Cta::overwrite_mbarriers(std::uint32_t offset, std::size_t bytes, const std::string& by) {
  for (Mbarrier& barrier : mbarriers) {
    if (!barrier.is_live || offset >= barrier.offset + 8 || offset + bytes <= barrier.offset) continue;
    barrier.is_live = false;
    barrier.overwritten_by = by;
  }
}

void Heard::raise(int warp, std::uint64_t time) {
  const auto index = static_cast<std::size_t>(warp);
  if (at.size() <= index) at.resize(index + 1);
  at[index] = std::max(at[index], time);
}

void Heard::join(const Heard& other) {
  if (at.size() < other.at.size()) at.resize(other.at.size());
  for (std::size_t i = 0; i < other.at.size(); ++i) at[i] = std::max(at[i], other.at[i]);
}

void Cta::check_barrier(CtaBarrier& barrier) {
  const std::uint32_t expected = barrier.counts_all ? live_warps * kLanes : barrier.expected;
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  barrier.last_popc = barrier.popc;
  barrier.last_all = barrier.all;
  barrier.last_any = barrier.any;
  barrier.popc = 0;
  barrier.all = true;
  barrier.any = false;
  barrier.arrived = 0;
  barrier.expected = 0;
  std::swap(barrier.heard, barrier.pending);
  barrier.pending.at.clear();
  if (barrier.race) barrier.race->finish();
  ++barrier.generation;
}

void Cta::warp_exited() {
  if (live_warps == 1 && tensor_memory && cluster->ctas.size() > 1) launch->async.tell_before_exit(*this, *launch);
  --live_warps;
  for (CtaBarrier& barrier : barriers)
    if (barrier.arrived > 0 && barrier.counts_all) check_barrier(barrier);
}

void Cluster::check_barrier() {
  if (arrived == 0 || arrived < live_threads) return;
  arrived = 0;
  if (race) race->finish();
  ++generation;
}

void settle(Mbarrier& barrier, Launch& launch) {
  if (barrier.pending != 0 || barrier.tx != 0) return;
  ++barrier.phase;
  if (barrier.race) launch.race->end_phase(*barrier.race);
  barrier.pending = barrier.expected;
  ++launch.progress;
}

}  // namespace tessera::emulator
