// Accesses that nothing orders, in words: the names, the lanes, the causes.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "emulator/findings/race.h"

namespace tessera::emulator {

// Shared memory has a check of its own (is_fenced), which needs no race detector. Lenient: any lane's fence counts that
// had seen the store.
void RaceDetector::check_proxy(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                               std::uint64_t address) {
  if (is_async(before)) return;
  const std::uint16_t loose = unordered(before, now, proxy_fenced_, nullptr);
  if (loose == 0 || !reported_.insert({before.pc, now.pc, kRaceAsync}).second) return;
  const int byte = std::countr_zero(static_cast<unsigned>(loose));
  EmulatorFinding finding =
      finding_of(accessor, "missing-proxy-fence", lane_at(now, byte), address + static_cast<unsigned>(byte));
  finding.message = "an asynchronous read of global memory after the " + describe(before, byte) +
                    ", without fence.proxy.async between them";
  finding.cause = "the writing threads must execute fence.proxy.async before the barrier that lets the copy start";
  launch_.findings.add(std::move(finding));
}

// The arrival that alone orders a writer behind a read and may have overtaken the load, or null. The writer has seen
// nothing later of that warp; lenient: what it has seen of one lane counts for all. An arrival that comes a second time
// is behind another round of the loop, in which the value was needed; and no read is under way behind its warp's fence.
const Instruction* RaceDetector::overtaking_arrival(const RaceRecord& before, const VectorClock& seen) const {
  const auto known = arrivals_.find(before.agent);
  if (known == arrivals_.end()) return nullptr;
  std::uint32_t last = seen.at(before.agent);
  if (const LaneAgents* const lanes = info(before.agent).lanes.get(); lanes != nullptr)
    for (const Agent lane : *lanes)
      if (lane != 0) last = std::max(last, seen.at(lane));
  std::vector<std::uint32_t> met;
  for (const Arrival& at : known->second) {
    if (at.clock < before.clock) continue;
    if (at.pc == kFence) return nullptr;
    if (std::find(met.begin(), met.end(), at.pc) != met.end()) return nullptr;
    met.push_back(at.pc);
    const std::vector<std::uint32_t>& loads = launch_.entry.reads_under_way.at(at.pc);
    if (last <= at.clock && std::find(loads.begin(), loads.end(), before.pc) != loads.end())
      return &launch_.entry.code[at.pc];
  }
  return nullptr;
}

// TMA's write of shared memory behind a thread's read.
void RaceDetector::check_under_way(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                                   std::uint64_t address) {
  const Instruction* const arrival = overtaking_arrival(before, *accessor.seen);
  if (arrival == nullptr || unordered(before, now, *accessor.seen, &accessor) != 0) return;
  if (!reported_.insert({before.pc, now.pc, kUnderWay}).second) return;
  const int byte = std::countr_zero(static_cast<unsigned>(before.bytes & now.bytes));
  const std::string source = launch_.program.place_of(*arrival);
  EmulatorFinding finding =
      finding_of(accessor, "missing-proxy-fence", lane_at(now, byte), address + static_cast<unsigned>(byte));
  finding.message = fmt::format(
      "an asynchronous write after the {}, which may still be under way: nothing has needed its value before the "
      "arrival at PTX line {}{}{}",
      describe(before, byte), arrival->line, source.empty() ? "" : ", ", source);
  finding.cause =
      "arithmetic can be moved behind an arrival, which waits for no load: before it every lane must execute "
      "fence.proxy.async";
  launch_.findings.add(std::move(finding));
}

// Ordered, but by a release that does not reach this CTA; or atomic for its own CTA only.
bool RaceDetector::is_scope_too_narrow(const RaceRecord& before, const RaceRecord& now,
                                       const Accessor& accessor) const {
  if (!is_async(before) && (before.kind & now.kind & kRaceAtomic) != 0)
    return ((before.kind | now.kind) & kRaceNarrow) != 0 && is_other_cta(before.agent, now.agent);
  return is_write(before) && (before.kind & kRaceAtomic) == 0 && is_other_cta(before.agent, now.agent) &&
         unordered(before, now, *accessor.seen, nullptr) == 0 && unordered(before, now, *accessor.wide, nullptr) != 0;
}

void RaceDetector::report_scope(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                                std::uint64_t address, int byte) {
  if (!reported_.insert({before.pc, now.pc, kRaceNarrow}).second) return;
  EmulatorFinding finding = finding_of(accessor, "scope-too-narrow", lane_at(now, byte), address);
  const bool are_atomic = (before.kind & now.kind & kRaceAtomic) != 0;
  finding.message =
      are_atomic
          ? fmt::format("atomic, as is the {}, but one of the two only within its CTA", describe(before, byte))
          : fmt::format("ordered after the {} only by a release or an acquire of .cta scope, which joins no two CTAs",
                        describe(before, byte));
  finding.cause = "the release, acquire, fence or atomic needs .cluster scope for CTAs of one cluster, else .gpu";
  launch_.findings.add(std::move(finding));
}

int RaceDetector::lane_at(const RaceRecord& record, int byte) const {
  const Mask lanes = record.lanes.of[static_cast<std::size_t>(byte / 4)];
  return lanes == 0 ? -1 : std::countr_zero(lanes);
}

std::string RaceDetector::describe(const RaceRecord& record, int byte) const {
  const Instruction& in = launch_.entry.code[record.pc];
  const AgentInfo& who = info(record.agent);
  const bool has_parts = who.parts[3] != 0;
  const Mask lanes = has_parts ? 0 : record.lanes.of[static_cast<std::size_t>(byte / 4)];
  const int first = lanes == 0 ? 0 : std::countr_zero(lanes), last = 31 - std::countl_zero(lanes);
  std::string text = fmt::format("{} by {} of CTA ({}, {}, {}) warp {}", is_write(record) ? "write" : "read",
                                 is_async(record) ? "an asynchronous operation" : "a thread", who.cta[0], who.cta[1],
                                 who.cta[2], who.warp);
  if (first == last)
    text += fmt::format(" lane {}", first);
  else if (lanes != 0 && last - first + 1 == std::popcount(lanes))
    text += fmt::format(" lanes {} to {}", first, last);
  else if (lanes != 0)
    text += fmt::format(" lanes 0x{:08x}", lanes);
  text += fmt::format(", PTX line {} ({})", in.line, in.opcode);
  const std::string source = launch_.program.place_of(in);
  if (!source.empty()) text += ", " + source;
  return text;
}

InstructionPlace RaceDetector::place_of(const Accessor& accessor, int lane) {
  if (accessor.place == nullptr) return accessor.warp->place(*accessor.in, lane);
  InstructionPlace place = *accessor.place;
  if (place.lane >= 0 && lane >= 0) place.lane = lane;
  return place;
}

EmulatorFinding RaceDetector::finding_of(const Accessor& accessor, const char* name, int lane,
                                         std::uint64_t address) const {
  EmulatorFinding finding = place_of(accessor, lane).finding(name);
  finding.address = address;
  finding.has_address = true;
  return finding;
}

// Where lanes of one warp should have met: the cause in words; null where that is not what is missing.
const char* RaceDetector::missing_warp_sync(const RaceRecord& before, const RaceRecord& now,
                                            const Accessor& accessor) const {
  if (accessor.own != 0 && !is_async(before) && is_one_warp(before.agent, accessor.own) &&
      (!is_async(now) || before.clock <= accessor.own_until))
    return is_async(now) ? "one lane starts the operation for others of its warp: __syncwarp (bar.warp.sync) before it "
                           "is missing, or leaves them out"
                         : "lanes of one warp: __syncwarp (bar.warp.sync) between the two is missing, or leaves them "
                           "out: other .sync instructions order no memory";
  if (const auto* const lanes = info(before.agent).lanes.get(); lanes != nullptr)
    for (const Agent lane : *lanes)
      if (lane != 0 && before.clock <= accessor.seen->at(lane))
        return "another lane of that warp arrived or released without it: __syncwarp (bar.warp.sync) is missing before "
               "that";
  if (accessor.warp == nullptr) return nullptr;
  for (const RaceView& view : accessor.warp->race->views) {
    const bool has_waited = before.agent == accessor.copies && before.clock <= view.own_copies;
    if (has_waited || unordered(before, now, view.seen, nullptr) == 0)
      return "another lane of this warp has waited for it: __syncwarp (bar.warp.sync) after the wait is missing";
  }
  return nullptr;
}

// A wait of the second access's warp that would have ordered the two, had somebody looked at its answer; or one of the
// first access's warp, for the copy that comes too late for it.
const Instruction* RaceDetector::ignored_wait(const RaceRecord& before, const RaceRecord& now,
                                              const Accessor& accessor) const {
  if (ignored_waits_.empty()) return nullptr;
  if (const auto found = ignored_waits_.find(accessor.own); found != ignored_waits_.end())
    for (const IgnoredWait& wait : found->second)
      if (unordered(before, now, wait.sync->done, nullptr) == 0 || before.agent == wait.sync->agent)
        return &launch_.entry.code[wait.pc];
  if (const auto found = ignored_waits_.find(before.agent); found != ignored_waits_.end() && is_async(now))
    for (const IgnoredWait& wait : found->second)
      if (is_write(now) && now.agent == wait.sync->agent) return &launch_.entry.code[wait.pc];
  return nullptr;
}

void RaceDetector::report(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                          std::uint64_t address, int byte, bool is_shared) {
  // Ordered after the own warp's part of a wgmma, not after the others'.
  const bool is_other_part = is_async(before) && unordered(before, now, *accessor.seen, &accessor) == 0;
  const char* const lanes = is_other_part ? nullptr : missing_warp_sync(before, now, accessor);
  const std::uint32_t what =
      static_cast<std::uint32_t>(before.kind) << 8 | now.kind | (lanes != nullptr ? 1u << 16 : 0u);
  // What the lanes of a warp start with one instruction mostly stores the same, as their own stores do.
  if (!is_shared && before.pc == now.pc && before.lanes != now.lanes && is_async(before) && is_async(now) &&
      is_one_warp(before.agent, now.agent))
    return;
  // A wgmma's early read, or what overwrites its operand, may turn out not to matter.
  WgmmaResult* const reader = is_async(before) && !is_write(before) ? result_of(before) : nullptr;
  const bool may_not_matter = reader != nullptr && !reader->is_used;
  if (may_not_matter && reader->warps_left == 0) return;
  if (launch_.findings.is_capturing() || may_not_matter) {
    if (reported_.count({before.pc, now.pc, what}) != 0) return;
  } else if (!reported_.insert({before.pc, now.pc, what}).second) {
    return;
  }
  const char* name = is_shared ? "smem-race" : "global-race";
  const bool is_one_cta = info(before.agent).cta == info(now.agent).cta;
  const char* cause = is_shared || is_one_cta
                          ? "a barrier between the two is missing, or does not include both warps"
                          : "CTAs of one grid run in any order: give each its own memory, or order them by "
                            "release and acquire";
  if (is_async(before) && is_write(before) && !is_write(now)) {
    name = "async-write-not-waited-for";
    cause = "the wait for the copy's mbarrier or group is missing, waits for another phase, or for another barrier";
  } else if (is_async(now) && is_write(now) && (is_async(before) || !is_write(before))) {
    name = "overwritten-before-release";
    cause =
        "the copy starts before the readers have arrived on the slot's empty barrier, or they arrive before they are "
        "done";
  } else if (is_async(before) && !is_write(before)) {
    name = "async-read-not-waited-for";
    cause =
        is_other_part
            ? "wgmma.wait_group waits for the own warp's part: a barrier of the warpgroup must come before one warp "
              "stores over what the others' parts read"
            : "the wait for the store's or the wgmma's group is missing before its source is written again";
  } else if (is_async(now) && !is_write(now)) {
    name = "async-read-too-early";
    cause = "the barrier between the writing threads and the one that starts the operation is missing";
  }
  const Instruction* const ignored = ignored_wait(before, now, accessor);
  if (ignored != nullptr) {
    name = "mbarrier-wait-ignored";
    cause = "try_wait and test_wait may say \"not yet\" at any time: ask again until they say yes";
  } else if (lanes != nullptr) {
    name = "missing-warp-sync";
    cause = lanes;
  }
  EmulatorFinding finding = finding_of(accessor, name, lane_at(now, byte), address + static_cast<unsigned>(byte));
  finding.message =
      fmt::format("{}, and nothing orders it after the {}", is_write(now) ? "write" : "read", describe(before, byte));
  if (ignored != nullptr)
    finding.message += fmt::format("; the answer of the wait at PTX line {} is not looked at", ignored->line);
  finding.cause = cause;
  ++told_;
  if (may_not_matter && !reader->findings.empty() && reader->findings.back().name == finding.name)
    ++reader->findings.back().count;
  else if (may_not_matter)
    reader->findings.push_back(std::move(finding));
  else
    launch_.findings.add(std::move(finding));
}

// Another CTA of the cluster: it must have started, and must not exit before the access.
void RaceDetector::check_peer(Cta& target, const Accessor& accessor, Agent agent, std::uint32_t clock,
                              std::uint64_t address, int lane) {
  RaceCta& peer = *target.race;
  // A cluster barrier that is over says so whatever its arrivals order.
  const bool has_met = accessor.warp != nullptr && accessor.warp->cluster_waited > 0;
  const bool has_started = has_met || std::any_of(peer.warps.begin(), peer.warps.end(),
                                                  [&](Agent warp) { return accessor.seen->at(warp) > 0; });
  if (!has_started) {
    EmulatorFinding finding = finding_of(accessor, "cluster-peer-not-started", lane, address);
    finding.message = "another CTA's shared memory is accessed, and nothing says that the CTA has started";
    finding.cause = "a cluster barrier before the first access to a peer is missing";
    launch_.findings.add(std::move(finding));
  }
  if (target.live_warps == 0) return report_exit(place_of(accessor, lane), address);
  for (RaceCta::Remote& remote : peer.remote) {
    if (remote.agent != agent || remote.lane != lane) continue;
    remote.clock = clock;
    remote.place = place_of(accessor, lane);
    remote.address = address;
    return;
  }
  peer.remote.push_back({agent, lane, clock, place_of(accessor, lane), address});
}

}  // namespace tessera::emulator
