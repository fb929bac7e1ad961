// When nothing can go on, or nothing ends: every waiting group in words, and the mistake that its barriers show.
//
// The finding has the place of the wait that causes the hang. Waits for threads (a barrier's, a warp's lanes) are over
// when those threads come; where these wait for something themselves, that is the cause: an mbarrier that nobody
// completes, registers that nobody gives back. Threads that wait for each other only, in a circle, are one too.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "emulator/scheduler.h"

namespace tessera::emulator {

namespace {

std::string describe_mbarrier(const Warp& warp, const Wait& wait) {
  const Mbarrier* barrier = warp.cta->find_mbarrier(wait.index);
  const std::uint32_t address = warp.cta->shared_address(wait.index);
  if (barrier == nullptr) return fmt::format("waits on the mbarrier at 0x{:x}, which is not initialised", address);
  return fmt::format("waits for phase {} (parity {}) of the mbarrier at 0x{:x}: {} of {} arrivals missing, tx-count {}",
                     wait.generation, wait.generation & 1, address, barrier->pending, barrier->expected, barrier->tx);
}

std::string describe_kind(const Warp& warp, const Group& group) {
  const Wait& wait = group.wait;
  switch (wait.kind) {
    case Wait::Kind::none:
      return "can run";
    case Wait::Kind::cta_barrier: {
      const CtaBarrier& barrier = warp.cta->barriers[wait.index];
      const std::uint32_t expected = barrier.counts_all ? warp.cta->live_warps * kLanes : barrier.expected;
      return fmt::format("waits at barrier {}: {} of {} threads are there", wait.index, barrier.arrived, expected);
    }
    case Wait::Kind::cluster_barrier:
      return fmt::format("waits at the cluster barrier: {} of {} threads have arrived", warp.cta->cluster->arrived,
                         warp.cta->cluster->live_threads);
    case Wait::Kind::mbarrier:
      return describe_mbarrier(warp, wait);
    case Wait::Kind::converge:
      return fmt::format("lanes 0x{:08x} wait for lanes 0x{:08x} at one instruction", group.mask,
                         wait.mask & warp.alive & ~group.mask);
    case Wait::Kind::warp_barrier:
      return fmt::format("lanes 0x{:08x} wait for lanes 0x{:08x} in a bar.warp.sync of mask 0x{:08x}", group.mask,
                         warp.missing_at_barrier(wait.mask, 0), wait.mask);
    case Wait::Kind::bulk_groups:
      return fmt::format("waits until {} bulk groups are left", wait.generation);
    case Wait::Kind::copy_groups:
      return fmt::format("waits until {} cp.async groups are left", wait.generation);
    case Wait::Kind::wgmma_groups:
      return fmt::format("waits until {} wgmma groups are left; a warp of its warpgroup may not have issued its part",
                         wait.generation);
    case Wait::Kind::registers:
      return fmt::format("waits in setmaxnreg.inc for {} registers; the CTA has {} that nobody holds", wait.generation,
                         warp.cta->free_registers);
    case Wait::Kind::wgmma_issue:
      return "waits for the other warps of its warpgroup";
    case Wait::Kind::tensor_space:
      return fmt::format("waits for {} columns of Tensor Memory; {} are taken", wait.index,
                         warp.cta->tensor_memory->describe_blocks());
    case Wait::Kind::tensor_pair:
      return fmt::format("waits for the other CTA of its pair to execute the same allocation instruction (number {})",
                         wait.generation);
    case Wait::Kind::dependency:
      return "waits for something that never happens";
  }
  return {};
}

}  // namespace

std::string describe_wait(const Warp& warp, const Group& group) {
  const Instruction& in = warp.launch->entry.code[group.pc];
  const auto& id = warp.cta->id;
  std::string place = fmt::format("CTA ({}, {}, {}) warp {} at PTX line {}", id[0], id[1], id[2], warp.index, in.line);
  const std::string source = warp.launch->program.place_of(in);
  if (!source.empty()) place += " (" + source + ")";
  return place + " " + describe_kind(warp, group);
}

namespace {

using Kind = Wait::Kind;

struct Waiting {
  const Warp* warp = nullptr;
  const Group* group = nullptr;
  bool is_follower = false;  ///< waits for threads that wait for something themselves
  Kind kind() const { return group->wait.kind; }
};

bool meets_lanes(const Waiting& w) { return w.kind() == Kind::converge || w.kind() == Kind::warp_barrier; }

/// Whether `a` could go on if `b` did.
bool waits_for(const Waiting& a, const Waiting& b) {
  const Wait& wait = a.group->wait;
  const bool is_one_cta = a.warp->cta == b.warp->cta;
  switch (a.kind()) {
    case Kind::converge:
      return a.warp == b.warp && (b.group->mask & wait.mask & ~a.group->mask) != 0;
    case Kind::warp_barrier:
      return a.warp == b.warp && (b.group->mask & a.warp->missing_at_barrier(wait.mask, 0)) != 0;
    case Kind::cta_barrier:
      return is_one_cta && (b.kind() != Kind::cta_barrier || b.group->wait.index != wait.index);
    case Kind::cluster_barrier:
      return a.warp->cta->cluster == b.warp->cta->cluster && b.kind() != Kind::cluster_barrier;
    case Kind::wgmma_issue:
    case Kind::wgmma_groups:
      return is_one_cta && a.warp != b.warp && a.warp->index / 4 == b.warp->index / 4;
    case Kind::tensor_pair:
      return a.warp->cta->cluster == b.warp->cta->cluster && b.warp->cta->rank == (a.warp->cta->rank ^ 1);
    default:
      return false;
  }
}

/// A barrier with a count that is more than the threads that can still come.
bool is_beyond_reach(const Waiting& a, const std::vector<Waiting>& all) {
  if (a.kind() != Kind::cta_barrier) return false;
  const CtaBarrier& barrier = a.warp->cta->barriers[a.group->wait.index];
  std::uint32_t coming = barrier.arrived;
  for (const Waiting& b : all)
    if (waits_for(a, b)) coming += static_cast<std::uint32_t>(std::popcount(b.group->mask));
  return !barrier.counts_all && coming < barrier.expected;
}

bool is_mismatch(const Waiting& w) {
  if (w.kind() != Kind::mbarrier) return false;
  const Mbarrier* const barrier = w.warp->cta->find_mbarrier(w.group->wait.index);
  return barrier != nullptr && barrier->pending == 0 && barrier->tx != 0;
}

/// Whom to blame first, 0 before all. What cannot end whatever others do comes before what they might have completed.
int rank_of(const Waiting& w) {
  if (w.is_follower) return 6;
  if (meets_lanes(w)) return 0;
  if (is_mismatch(w)) return 1;
  if (w.kind() == Kind::registers) return 2;
  if (w.kind() == Kind::cta_barrier || w.kind() == Kind::cluster_barrier) return 3;
  return w.kind() == Kind::mbarrier ? 5 : 4;
}

/// Marks followers: those that wait for what ends by itself only, directly or through other threads.
void mark_followers(std::vector<Waiting>& all) {
  std::vector<bool> leads_to_cause(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    leads_to_cause[i] = is_beyond_reach(all[i], all) ||
                        std::none_of(all.begin(), all.end(), [&](const Waiting& b) { return waits_for(all[i], b); });
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (leads_to_cause[i]) continue;
      for (std::size_t j = 0; j < all.size() && !all[i].is_follower; ++j)
        all[i].is_follower = leads_to_cause[j] && waits_for(all[i], all[j]);
      changed = changed || all[i].is_follower;
      leads_to_cause[i] = all[i].is_follower;
    }
  }
}

/// Name and usual mistake of a hang that this wait causes.
void name_cause(const Waiting& w, EmulatorFinding& finding) {
  finding.name = "deadlock";
  finding.cause = "an arrival or a copy that never happens, a wrong byte count, a phase or parity off by one";
  if (meets_lanes(w)) {
    finding.name = "collective-divergence";
    finding.cause = "a .sync or .aligned instruction that only some lanes of the warp reach";
  } else if (w.kind() == Kind::registers) {
    finding.name = "setmaxnreg-budget";
    finding.cause = "the counts of all warps together exceed the registers that the CTA was launched with";
  } else if (is_mismatch(w)) {
    finding.name = "expect-tx-mismatch";
    finding.cause = "the bytes announced with expect_tx are not the box's (the whole box counts, also out of bounds)";
  } else if (w.kind() == Kind::cta_barrier || w.kind() == Kind::cluster_barrier) {
    finding.cause = "threads that the barrier counts have exited, wait at another barrier, or never arrive";
  }
}

}  // namespace

void Scheduler::report_deadlock() {
  std::vector<Waiting> all;
  for (const Warp* warp : warps_)
    for (const Group& group : warp->parked) all.push_back({warp, &group});
  mark_followers(all);
  std::stable_sort(all.begin(), all.end(), [](const Waiting& a, const Waiting& b) { return rank_of(a) < rank_of(b); });
  const Waiting& first = all.front();
  EmulatorFinding finding = first.warp->finding(launch_.entry.code[first.group->pc], "", -1);
  finding.is_failure = true;
  finding.message = "no warp can go on and nothing is on its way";
  name_cause(first, finding);
  constexpr std::size_t kListed = 40;
  for (std::size_t i = 0; i < std::min(all.size(), kListed); ++i)
    finding.message += "\n  " + describe_wait(*all[i].warp, *all[i].group);
  if (all.size() > kListed) finding.message += fmt::format("\n  and {} more", all.size() - kListed);
  launch_.findings.add(std::move(finding));
}

// Of a launch that is stopped: who still runs, and a few of those that wait, perhaps for them.
void Scheduler::name_running_group(EmulatorFinding& finding) const {
  constexpr int kListed = 8;
  int listed = 0;
  for (const Warp* warp : warps_) {
    for (const Group& group : warp->parked) {
      if (group.wait.kind != Wait::Kind::none) {
        if (++listed <= kListed) finding.message += "\n  " + describe_wait(*warp, group);
      } else if (finding.ptx_line == 0) {
        const Instruction& in = launch_.entry.code[group.pc];
        const EmulatorFinding place = warp->finding(in, "", std::countr_zero(group.mask));
        finding.ptx_line = place.ptx_line;
        finding.instruction = place.instruction;
        finding.source_file = place.source_file;
        finding.source_line = place.source_line;
        finding.source_place = place.source_place;
        finding.cta = place.cta;
        finding.warp = place.warp;
        finding.lane = place.lane;
      }
    }
  }
  if (listed > kListed) finding.message += fmt::format("\n  and {} more", listed - kListed);
}

}  // namespace tessera::emulator
