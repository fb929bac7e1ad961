// Who touched which bytes, and what two accesses that nothing orders look like in words.
#include <fmt/format.h>

#include <bit>

#include "emulator/findings/race.h"

namespace tessera::emulator {
namespace {

bool is_write(const RaceRecord& r) { return (r.kind & kRaceWrite) != 0; }
bool is_async(const RaceRecord& r) { return (r.kind & kRaceAsync) != 0; }

std::uint8_t kind_bits(AccessKind kind) {
  return static_cast<std::uint8_t>((kind.is_write ? kRaceWrite : 0) | (kind.is_atomic ? kRaceAtomic : 0) |
                                   (kind.is_async ? kRaceAsync : 0) | (kind.is_narrow ? kRaceNarrow : 0));
}

}  // namespace

void RaceDetector::access(const Warp& warp, const Instruction& in, int lane, const Target& target, std::size_t bytes,
                          AccessKind kind) {
  RaceWarp& state = *warp.race;
  if (state.agent == 0) return;
  RaceRecord record;
  record.agent = kind.is_flag ? state.flag_agent : state.agent;
  record.clock = kind.is_flag ? state.flags : state.clock;
  record.pc = warp.pc;
  record.lane = static_cast<std::uint8_t>(lane);
  record.kind = kind_bits(kind);
  if (record.agent == 0) return;
  const Accessor accessor{&state.seen, &state.wide, nullptr, &warp, &in};
  if (target.cta != nullptr) {
    const std::uint64_t shown = target.cta->shared_address(target.offset);
    if (target.cta != warp.cta) check_peer(*target.cta, accessor, state.agent, state.clock, shown, lane);
    touch_range(target.cta->race->cells.data(), target.offset, bytes, record, accessor, shown, true);
    return;
  }
  const std::uint64_t address = launch_.memory.address_of(target.data);
  if (address != 0) touch_global(address, bytes, record, accessor);
}

void RaceDetector::access_granule(const Warp& warp, const Instruction& in, int lane, Cta* cta, std::uint64_t granule,
                                  std::uint16_t bytes, bool is_write_access) {
  RaceWarp& state = *warp.race;
  if (state.agent == 0) return;
  const RaceRecord record{state.agent,
                          state.clock,
                          warp.pc,
                          bytes,
                          static_cast<std::uint8_t>(lane),
                          is_write_access ? kRaceWrite : std::uint8_t{0}};
  const Accessor accessor{&state.seen, &state.wide, nullptr, &warp, &in};
  if (cta == nullptr) return touch(page_cells(granule)[(granule & 4095) / 16], record, accessor, granule, false);
  const std::uint64_t shown = cta->shared_address(static_cast<std::uint32_t>(granule));
  if (cta != warp.cta)
    check_peer(*cta, accessor, state.agent, state.clock, shown + static_cast<unsigned>(std::countr_zero(bytes)), lane);
  touch(cta->race->cells[granule / 16], record, accessor, shown, true);
}

void RaceDetector::access_lanes(const Warp& warp, const Instruction& in, const Target& first,
                                const std::array<std::uint32_t, kLanes>& delta, std::size_t bytes,
                                bool is_write_access) {
  const RaceWarp& state = *warp.race;
  const bool is_shared = first.cta != nullptr;
  const std::uint64_t base = is_shared ? first.offset : launch_.memory.address_of(first.data);
  if (state.agent == 0 || (!is_shared && base == 0)) return;
  const Accessor accessor{&state.seen, &state.wide, nullptr, &warp, &in};
  RaceRecord record{state.agent, state.clock, warp.pc, 0, 0, is_write_access ? kRaceWrite : std::uint8_t{0}};
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t address = base + delta[static_cast<std::size_t>(lane)];
    if (lane > 0 && delta[static_cast<std::size_t>(lane)] == delta[static_cast<std::size_t>(lane - 1)]) continue;
    record.lane = static_cast<std::uint8_t>(lane);
    record.bytes = static_cast<std::uint16_t>(((1u << bytes) - 1) << address % 16);
    const std::uint64_t granule = address / 16 * 16;
    if (!is_shared) {
      touch(page_cells(granule)[(granule & 4095) / 16], record, accessor, granule, false);
      continue;
    }
    const std::uint64_t shown = first.cta->shared_address(static_cast<std::uint32_t>(granule));
    if (first.cta != warp.cta) check_peer(*first.cta, accessor, state.agent, state.clock, shown + address % 16, lane);
    touch(first.cta->race->cells[granule / 16], record, accessor, shown, true);
  }
}

void LaneAccesses::add(int lane, const Target& target, std::size_t bytes) {
  if (target.shadow == nullptr) return;
  const std::uint64_t address = target.cta != nullptr ? target.offset : warp_.launch->memory.address_of(target.data);
  if (target.cta == nullptr && address == 0) return;  // local memory
  if (address % 16 + bytes > 16) return warp_.launch->race->access(warp_, in_, lane, target, bytes, {is_write_});
  const auto mask = static_cast<std::uint16_t>(((1u << bytes) - 1) << address % 16);
  if (bytes_ != 0 && (address / 16 * 16 != granule_ || target.cta != cta_ || bytes_ != mask)) flush();
  if (bytes_ == 0) lane_ = lane;
  cta_ = target.cta;
  granule_ = address / 16 * 16;
  bytes_ = mask;
}

void LaneAccesses::flush() {
  if (bytes_ != 0) warp_.launch->race->access_granule(warp_, in_, lane_, cta_, granule_, bytes_, is_write_);
  bytes_ = 0;
}

void RaceDetector::async_access(const RaceOperation& operation, const EmulatorFinding& place, Cta* cta,
                                std::uint64_t address, std::size_t bytes, bool is_write_access, bool is_atomic) {
  RaceRecord record;
  record.agent = is_write_access ? operation.write_agent : operation.read_agent;
  if (record.agent == 0) return;
  record.clock = is_write_access ? operation.write_clock : operation.read_clock;
  record.pc = operation.pc;
  record.lane = operation.lane;
  record.kind = kind_bits({is_write_access, is_atomic, true});
  const Accessor accessor{&operation.seen, nullptr, &place, nullptr, nullptr, cta == nullptr && !operation.is_generic};
  if (cta == nullptr) {
    touch_global(address, bytes, record, accessor);
    return;
  }
  const std::uint64_t shown = cta->shared_address(static_cast<std::uint32_t>(address));
  if (place.cta != cta->id) check_peer(*cta, accessor, operation.issuer, operation.issued, shown, operation.lane);
  touch_range(cta->race->cells.data(), address, bytes, record, accessor, shown, true);
}

RaceCell* RaceDetector::page_cells(std::uint64_t address) {
  const std::uint64_t page = address >> 12;
  if (page != last_page_number_) {
    std::unique_ptr<Page>& slot = pages_[page];
    if (!slot) slot = std::make_unique<Page>();
    last_page_ = slot.get();
    last_page_number_ = page;
  }
  return last_page_->cells.data();
}

void RaceDetector::touch_global(std::uint64_t address, std::size_t bytes, const RaceRecord& record,
                                const Accessor& accessor) {
  while (bytes > 0) {
    const std::size_t part = std::min<std::size_t>(bytes, 4096 - (address & 4095));
    touch_range(page_cells(address), address & 4095, part, record, accessor, address, false);
    address += part;
    bytes -= part;
  }
}

bool RaceDetector::was_stored(std::uint64_t address, std::size_t bytes) const {
  for (std::uint64_t at = address; at < address + bytes; at += 16) {
    const auto page = pages_.find(at >> 12);
    if (page == pages_.end()) continue;
    const RaceCell& cell = page->second->cells[(at & 4095) / 16];
    for (const RaceRecord& record : cell.records)
      if (record.agent != 0 && is_write(record) && !is_async(record)) return true;
  }
  return false;
}

void RaceDetector::touch_range(RaceCell* cells, std::uint64_t address, std::size_t bytes, RaceRecord record,
                               const Accessor& accessor, std::uint64_t shown_address, bool is_shared) {
  const std::uint64_t first = address / 16;
  const std::uint64_t last = (address + bytes - 1) / 16;
  for (std::uint64_t cell = first; cell <= last; ++cell) {
    std::uint32_t mask = 0xFFFF;
    if (cell == first) mask &= 0xFFFFu << (address % 16);
    if (cell == last) mask &= 0xFFFFu >> (15 - (address + bytes - 1) % 16);
    record.bytes = static_cast<std::uint16_t>(mask);
    touch(cells[cell], record, accessor, shown_address - address % 16 + (cell - first) * 16, is_shared);
  }
}

// Of two accesses with bytes in common: reports what is wrong with them. True when the record is of no use any more.
bool RaceDetector::is_spent(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                            std::uint64_t address, bool is_shared) {
  const bool is_ordered =
      (before.agent == now.agent && !is_async(now)) || before.clock <= accessor.seen->at(before.agent);
  const bool one_writes = is_write(before) || is_write(now);
  const bool are_atomic = (before.kind & now.kind & kRaceAtomic) != 0;
  if (accessor.needs_proxy_fence && one_writes && is_ordered && !is_write(now))
    check_proxy(before, now, accessor, address);
  if (one_writes && before.agent != now.agent && is_scope_too_narrow(before, now, accessor)) {
    report_scope(before, now, accessor, address);
    return true;
  }
  if (one_writes && !are_atomic && !is_ordered) {
    report(before, now, accessor,
           address + static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(before.bytes & now.bytes))),
           is_shared);
    return true;  // once is enough
  }
  return is_ordered && (before.bytes & ~now.bytes) == 0 && (is_write(now) || !is_write(before));
}

// Records that the new access makes needless are dropped: whoever comes later and is ordered after the new access is
// ordered after them too. A record is of one instruction, so that a report names the right one. The newest is the
// first: what comes next is most often of the same warp.
void RaceDetector::touch(RaceCell& cell, const RaceRecord& now, const Accessor& accessor, std::uint64_t address,
                         bool is_shared) {
  const RaceRecord& newest = cell.records[0];
  if (newest.agent == now.agent && newest.clock == now.clock && newest.kind == now.kind &&
      (now.bytes & ~newest.bytes) == 0)
    return;
  RaceRecord* free = nullptr;
  RaceRecord* read = nullptr;
  RaceRecord* same = nullptr;    // of the same instruction, with other bytes
  RaceRecord* beside = nullptr;  // of the same warp and time
  for (RaceRecord& before : cell.records) {
    if (before.agent == 0) {
      if (free == nullptr) free = &before;
      continue;
    }
    if (before.agent == now.agent && before.clock == now.clock) {
      const bool is_covered = (now.bytes & ~before.bytes) == 0;
      // A read of what the warp has just written adds nothing, nor does a read record below a write.
      if (is_covered && (before.kind == now.kind || (before.kind == kRaceWrite && now.kind == 0)))
        return std::swap(before, cell.records[0]);
      if (before.kind == 0 && now.kind == kRaceWrite && (before.bytes & ~now.bytes) == 0) {
        before.agent = 0;
        if (free == nullptr) free = &before;
        continue;
      }
      if (before.kind != now.kind) continue;
      if (before.pc == now.pc)
        same = &before;
      else if ((before.bytes & ~now.bytes) != 0)
        beside = &before;
      else if (before.agent = 0; free == nullptr)
        free = &before;
      continue;
    }
    if ((before.bytes & now.bytes) == 0) {
      if (!is_write(before)) read = &before;
      continue;
    }
    if (is_spent(before, now, accessor, address, is_shared)) {
      before.agent = 0;
      if (free == nullptr) free = &before;
    } else if (!is_write(before)) {
      read = &before;
    }
  }
  if (same == nullptr && free == nullptr) same = beside;
  if (same != nullptr) {
    same->bytes |= now.bytes;
    return;
  }
  if (free == nullptr) free = read != nullptr ? read : &cell.records[now.pc % RaceCell::kRecords];
  *free = cell.records[0];
  cell.records[0] = now;
}

// Shared memory has a check of its own (is_fenced), which needs no race detector. Lenient: any warp's fence counts that
// had seen the store.
void RaceDetector::check_proxy(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                               std::uint64_t address) {
  if (is_async(before) || before.clock <= proxy_fenced_.at(before.agent)) return;
  if (!reported_.insert({before.pc, now.pc, kRaceAsync}).second) return;
  EmulatorFinding finding =
      finding_of(accessor, "missing-proxy-fence", now.lane,
                 address + static_cast<unsigned>(std::countr_zero(static_cast<unsigned>(before.bytes & now.bytes))));
  finding.message = "an asynchronous read of global memory after the " + describe(before) +
                    ", without fence.proxy.async between them";
  finding.cause = "the writing threads must execute fence.proxy.async before the barrier that lets the copy start";
  launch_.findings.add(std::move(finding));
}

// Ordered, but by a release that does not reach this CTA; or atomic for its own CTA only.
bool RaceDetector::is_scope_too_narrow(const RaceRecord& before, const RaceRecord& now,
                                       const Accessor& accessor) const {
  if (accessor.wide == nullptr || is_async(before)) return false;
  if ((before.kind & now.kind & kRaceAtomic) != 0)
    return ((before.kind | now.kind) & kRaceNarrow) != 0 && is_other_cta(before.agent, now.agent);
  return is_write(before) && (before.kind & kRaceAtomic) == 0 && before.clock <= accessor.seen->at(before.agent) &&
         before.clock > accessor.wide->at(before.agent) && is_other_cta(before.agent, now.agent);
}

void RaceDetector::report_scope(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                                std::uint64_t address) {
  if (!reported_.insert({before.pc, now.pc, kRaceNarrow}).second) return;
  EmulatorFinding finding = finding_of(accessor, "scope-too-narrow", now.lane, address);
  const bool are_atomic = (before.kind & now.kind & kRaceAtomic) != 0;
  finding.message =
      are_atomic
          ? fmt::format("atomic, as is the {}, but one of the two only within its CTA", describe(before))
          : fmt::format("ordered after the {} only by a release or an acquire of .cta scope, which joins no two CTAs",
                        describe(before));
  finding.cause = "the release, acquire, fence or atomic needs .cluster scope for CTAs of one cluster, else .gpu";
  launch_.findings.add(std::move(finding));
}

std::string RaceDetector::describe(const RaceRecord& record) const {
  const Instruction& in = launch_.entry.code[record.pc];
  const AgentInfo& who = info(record.agent);
  std::string text =
      fmt::format("{} by {} of CTA ({}, {}, {}) warp {} lane {}, PTX line {} ({})", is_write(record) ? "write" : "read",
                  is_async(record) ? "an asynchronous operation" : "a thread", who.cta[0], who.cta[1], who.cta[2],
                  who.warp, record.lane, in.line, in.opcode);
  const std::string source = launch_.program.place_of(in);
  if (!source.empty()) text += ", " + source;
  return text;
}

EmulatorFinding RaceDetector::finding_of(const Accessor& accessor, const char* name, int lane,
                                         std::uint64_t address) const {
  EmulatorFinding finding =
      accessor.place != nullptr ? *accessor.place : accessor.warp->finding(*accessor.in, "", lane);
  finding.name = name;
  finding.is_failure = false;
  finding.address = address;
  finding.has_address = true;
  return finding;
}

void RaceDetector::report(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                          std::uint64_t address, bool is_shared) {
  const std::uint32_t what = static_cast<std::uint32_t>(before.kind) << 8 | now.kind;
  // As lanes of one warp are not told apart, neither are the stores that they start with one instruction.
  if (!is_shared && before.pc == now.pc && before.lane != now.lane && is_async(before) && is_async(now) &&
      info(before.agent).warp == info(now.agent).warp && info(before.agent).cta == info(now.agent).cta)
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
    cause = "the wait for the store's or the wgmma's group is missing before its source is written again";
  } else if (is_async(now) && !is_write(now)) {
    name = "async-read-too-early";
    cause = "the barrier between the writing threads and the one that starts the operation is missing";
  }
  EmulatorFinding finding = finding_of(accessor, name, now.lane, address);
  finding.message =
      fmt::format("{}, and nothing orders it after the {}", is_write(now) ? "write" : "read", describe(before));
  finding.cause = cause;
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
  const bool has_started =
      std::any_of(peer.warps.begin(), peer.warps.end(), [&](Agent warp) { return accessor.seen->at(warp) > 0; });
  if (!has_started) {
    EmulatorFinding finding = finding_of(accessor, "cluster-peer-not-started", lane, address);
    finding.message = "another CTA's shared memory is accessed, and nothing says that the CTA has started";
    finding.cause = "a cluster barrier before the first access to a peer is missing";
    launch_.findings.add(std::move(finding));
  }
  if (target.live_warps == 0) return report_exit(finding_of(accessor, "", lane, address));
  for (RaceCta::Remote& remote : peer.remote) {
    if (remote.agent != agent) continue;
    remote.clock = clock;
    remote.place = finding_of(accessor, "", lane, address);
    return;
  }
  peer.remote.push_back({agent, clock, finding_of(accessor, "", lane, address)});
}

}  // namespace tessera::emulator
