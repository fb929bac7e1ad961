// Who touched which bytes, and which accesses nothing orders. What they look like in words: race_report.cpp.
#include <bit>

#include "emulator/findings/race.h"

namespace tessera::emulator {
namespace {

std::uint8_t kind_bits(AccessKind kind) {
  return static_cast<std::uint8_t>((kind.is_write ? kRaceWrite : 0) | (kind.is_atomic ? kRaceAtomic : 0) |
                                   (kind.is_async ? kRaceAsync : 0) | (kind.is_narrow ? kRaceNarrow : 0));
}

}  // namespace

RaceDetector::Accessor RaceDetector::accessor_of(const Warp& warp, const RaceView& view, const Instruction& in) {
  const RaceWarp& state = *warp.race;
  Accessor accessor{&view.seen, &view.wide, nullptr, &warp, &in};
  accessor.own = state.agent;
  accessor.own_until = ~std::uint32_t{0};
  accessor.copies = state.copy_agent;
  accessor.copies_until = view.own_copies;
  accessor.flags = state.flag_agent;
  return accessor;
}

void RaceDetector::access(const Warp& warp, const Instruction& in, Mask lanes, const Target& target, std::size_t bytes,
                          AccessKind kind) {
  RaceWarp& state = *warp.race;
  if (state.agent == 0) return;
  if (state.views.size() > 1 && (lanes & warp.alive & ~state.view(std::countr_zero(lanes)).lanes) != 0) [[unlikely]] {
    for (const RaceView& view : state.views)
      if ((view.lanes & lanes) != 0) access(warp, in, view.lanes & lanes, target, bytes, kind);
    return;
  }
  RaceRecord record;
  record.agent = kind.is_flag ? state.flag_agent : state.agent;
  record.clock = kind.is_flag ? state.flags : state.clock;
  record.pc = warp.pc;
  record.lanes = all_words(lanes);
  record.kind = kind_bits(kind);
  if (record.agent == 0) return;
  state.is_dirty = true;
  const int lane = std::countr_zero(lanes);
  const Accessor accessor = accessor_of(warp, state.view(lane), in);
  if (target.cta != nullptr) {
    const std::uint64_t shown = target.cta->shared_address(target.offset);
    if (target.cta != warp.cta) check_peer(*target.cta, accessor, state.agent, state.clock, shown, lane);
    touch_range(target.cta->race->cells, target.offset, bytes, record, accessor, shown, true, nullptr);
    return;
  }
  const std::uint64_t address = launch_.memory.address_of(target.data);
  if (address != 0) touch_global(address, bytes, record, accessor, nullptr);
}

// What touch() does where earlier accesses are ordered before a thread's, or read as it does, and it needs a record of
// its own. False: nothing has been said and not all has been done.
[[gnu::always_inline]] inline bool RaceDetector::touch_plainly(RaceCell& cell, const RaceRecord& now,
                                                               const VectorClock& seen) const {
  const unsigned sharing = cell.sharing(now.bytes), beside = cell.of_time(now.agent, now.clock);
  if ((sharing & beside) != 0) return false;
  unsigned free = ~cell.used() & RaceCell::kAll;
  for (unsigned rest = sharing; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    const std::uint8_t kind = cell.kind(i);
    const bool is_ordered = cell.clocks[i] <= seen.at(cell.agents[i]);
    if ((kind & kRaceAsync) != 0) return false;
    if (!is_ordered && ((kind | now.kind) & kRaceWrite) == 0 && cell.agents[i] != now.agent) continue;
    if (!is_ordered || is_other_cta(cell.agents[i], now.agent)) return false;
    if ((cell.bytes[i] & ~now.bytes) == 0 && (is_write(now) || (kind & kRaceWrite) == 0)) {
      cell.drop(i);
      free |= 1u << i;
    }
  }
  for (unsigned rest = beside; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    if (cell.pcs[i] == now.pc && cell.kind(i) == now.kind) return false;
  }
  if (free == 0) return false;
  cell.set(static_cast<unsigned>(std::countr_zero(free)), now);
  return true;
}

void RaceDetector::access_granule(const Warp& warp, const Instruction& in, int lane, Cta* cta, std::uint64_t granule,
                                  std::uint16_t bytes, const WordLanes& lanes, std::uint8_t split,
                                  bool is_write_access) {
  RaceWarp& state = *warp.race;
  if (state.agent == 0) return;
  state.is_dirty = true;
  const RaceRecord record{
      lanes, state.agent, state.clock, warp.pc, bytes, is_write_access ? kRaceWrite : std::uint8_t{0}, split};
  const Accessor accessor = accessor_of(warp, state.view(lane), in);
  const std::uint64_t shown = cta == nullptr ? granule : cta->shared_address(static_cast<std::uint32_t>(granule));
  if (cta != nullptr && cta != warp.cta)
    check_peer(*cta, accessor, state.agent, state.clock, shown + static_cast<unsigned>(std::countr_zero(bytes)), lane);
  RaceCell& cell = cta == nullptr ? page_cells(granule).own((granule & 4095) / 16) : cta->race->cells.own(granule / 16);
  const bool is_plain = cta != nullptr || launch_.prior_grids.empty();
  if (!is_plain || !touch_plainly(cell, record, *accessor.seen)) touch(cell, record, accessor, shown, cta != nullptr);
}

// Neighbouring lanes of one granule are one access, as LaneAccesses has it.
void RaceDetector::access_lanes(const Warp& warp, const Instruction& in, const Target& first,
                                const std::uint32_t* delta, std::size_t bytes, bool is_write_access) {
  RaceWarp& state = *warp.race;
  const bool is_shared = first.cta != nullptr;
  const std::uint64_t begin = is_shared ? first.offset : launch_.memory.address_of(first.data);
  if (state.agent == 0 || first.shadow == nullptr || (!is_shared && begin == 0)) return;
  state.is_dirty = true;
  const Accessor accessor = accessor_of(warp, state.views.front(), in);
  RaceRecord record{{}, state.agent, state.clock, warp.pc, 0, is_write_access ? kRaceWrite : std::uint8_t{0}, 0};
  const std::uint64_t shown = is_shared ? first.cta->shared_address(0) : 0;
  RaceCells* const shared = is_shared ? &first.cta->race->cells : nullptr;
  std::uint64_t granule = ~std::uint64_t{0};
  unsigned each = 0;  // of the bytes, those that every lane touched
  const VectorClock& seen = *accessor.seen;
  const bool is_plain = is_shared || launch_.prior_grids.empty();
  const auto flush = [&] {
    if (record.bytes == 0) return;
    if (const unsigned some = words_of(record.bytes & ~each); some != 0) [[unlikely]]
      for (unsigned word = 0; word < 4; ++word)
        record.split = static_cast<std::uint8_t>(record.split | (some >> (4 * word) & 1u) << word);
    RaceCell& cell = is_shared ? shared->own(granule / 16) : page_cells(granule).own((granule & 4095) / 16);
    if (!is_plain || !touch_plainly(cell, record, seen)) touch(cell, record, accessor, shown + granule, is_shared);
    record.lanes = {};
    record.bytes = 0;
    record.split = 0;
  };
  const auto add_all = [&](auto add) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t address = begin + delta[lane];
      const auto at = static_cast<unsigned>(address % 16);
      if (address - at != granule) {
        flush();
        granule = address - at;
        each = 0xFFFF;
      }
      add(at, Mask{1} << lane);
    }
    flush();
  };
  if (bytes == 4)
    return add_all([&](unsigned at, Mask lane) {
      record.lanes.of[at / 4] |= lane;
      record.bytes = static_cast<std::uint16_t>(record.bytes | 0xFu << at);
    });
  const unsigned ones = (1u << bytes) - 1;
  add_all([&](unsigned at, Mask lane) {
    const unsigned mask = ones << at;
    for (unsigned word = at / 4; word <= (at + static_cast<unsigned>(bytes) - 1) / 4; ++word) {
      each &= mask | ~(0xFu << (4 * word));
      record.lanes.of[word] |= lane;
    }
    record.bytes = static_cast<std::uint16_t>(record.bytes | mask);
  });
}

void LaneAccesses::add(int lane, const Target& target, std::size_t bytes) {
  if (target.shadow == nullptr) return;
  const std::uint64_t address = target.cta != nullptr ? target.offset : warp_.launch->memory.address_of(target.data);
  if (target.cta == nullptr && address == 0) return;  // local memory
  const auto first = static_cast<unsigned>(address % 16);
  if (first + bytes > 16) return warp_.launch->race->access(warp_, in_, Mask{1} << lane, target, bytes, {is_write_});
  if (bytes_ != 0 && (address - first != granule_ || target.cta != cta_ || !is_together(lane))) flush();
  if (bytes_ == 0) lane_ = lane;
  cta_ = target.cta;
  granule_ = address - first;
  const auto mask = static_cast<std::uint16_t>(((1u << bytes) - 1) << first);
  for (std::size_t word = first / 4; word <= (first + bytes - 1) / 4; ++word) {
    const std::uint16_t of_word = static_cast<std::uint16_t>(0xF << (4 * word));
    if (lanes_.of[word] == 0)
      each_ = static_cast<std::uint16_t>(each_ | (mask & of_word));
    else
      each_ = static_cast<std::uint16_t>(each_ & (mask | ~of_word));
    lanes_.of[word] |= Mask{1} << lane;
  }
  bytes_ |= mask;
}

bool LaneAccesses::is_together(int lane) const {
  const RaceWarp& state = *warp_.race;
  return state.views.size() == 1 || &state.view(lane) == &state.view(lane_);
}

void LaneAccesses::flush() {
  if (bytes_ == 0) return;
  std::uint8_t split = 0;
  for (unsigned word = 0; word < 4; ++word)
    if (((bytes_ ^ each_) >> (4 * word) & 15) != 0) split = static_cast<std::uint8_t>(split | 1u << word);
  warp_.launch->race->access_granule(warp_, in_, lane_, cta_, granule_, bytes_, lanes_, split, is_write_);
  lanes_ = {};
  bytes_ = each_ = 0;
}

void RaceDetector::async_access(const RaceOperation& operation, const InstructionPlace& place, Cta* cta,
                                std::uint64_t address, std::size_t bytes, bool is_write_access, bool is_atomic) {
  RaceRecord record;
  record.agent = is_write_access ? operation.write_agent : operation.read_agent;
  if (record.agent == 0) return;
  record.clock = is_write_access ? operation.write_clock : operation.read_clock;
  record.pc = operation.pc;
  record.lanes = all_words(operation.lanes);
  record.kind = kind_bits({is_write_access, is_atomic, true});
  Accessor accessor{&operation.seen, &operation.wide, &place,
                    nullptr,         nullptr,         cta == nullptr && !operation.is_generic};
  accessor.is_generic = operation.is_generic;
  accessor.own = operation.issuer;
  accessor.own_until = operation.issued;
  accessor.copies = operation.issuer_copies;
  accessor.copies_until = operation.own_copies;
  // What the grids before did is asked by address.
  RaceSteps* const steps = cta == nullptr && !launch_.prior_grids.empty() ? nullptr : &steps_of(operation, record, cta);
  if (cta == nullptr) {
    touch_global(address, bytes, record, accessor, steps);
    return;
  }
  const std::uint64_t shown = cta->shared_address(static_cast<std::uint32_t>(address));
  if (place.cta != cta->id)
    check_peer(*cta, accessor, operation.issuer, operation.issued, shown, std::countr_zero(operation.lanes));
  touch_range(cta->race->cells, address, bytes, record, accessor, shown, true, steps);
}

// Whether a lane that did both did them in this order: only the records' lanes are left to be compared.
bool RaceDetector::is_own(const RaceRecord& before, const Accessor& accessor) const {
  return (before.agent == accessor.own && before.clock <= accessor.own_until) ||
         (before.agent == accessor.copies && before.clock <= accessor.copies_until) || before.agent == accessor.flags;
}

bool RaceDetector::is_word_ordered(const RaceRecord& before, const RaceRecord& now, int word, const VectorClock& seen,
                                   bool is_own) const {
  const auto at = static_cast<std::size_t>(word);
  const Mask by = before.lanes.of[at], by_now = now.lanes.of[at];
  const bool is_split = (before.split >> word & 1) != 0, is_split_now = (now.split >> word & 1) != 0;
  Mask loose = by;
  if (is_own && std::has_single_bit(by_now)) loose &= ~by_now;
  if (const LaneAgents* const agents = info(before.agent).lanes.get(); agents != nullptr)
    for (Mask rest = loose; rest != 0; rest &= rest - 1)
      if (before.clock <= seen.at((*agents)[static_cast<std::size_t>(std::countr_zero(rest))]))
        loose &= ~(rest & (0 - rest));
  if (loose == 0) return true;
  // Each lane touched some bytes of the word, and nobody knows which.
  if (is_own && is_split_now && (by & by_now) != 0) return true;
  if (!is_split) return false;
  const unsigned bytes = before.bytes >> (4 * word) & 15u;
  return (bytes & ~(now.bytes >> (4 * word) & 15u)) != 0 && loose != by;
}

// Of the bytes that two accesses share: those for which `seen` does not hold the first one. accessor: whose program
// order counts too, or null.
std::uint16_t RaceDetector::unordered(const RaceRecord& before, const RaceRecord& now, const VectorClock& seen,
                                      const Accessor* accessor) const {
  if (before.clock <= seen.at(before.agent)) return 0;
  const bool own = accessor != nullptr && is_own(before, *accessor);
  const auto common = static_cast<std::uint16_t>(before.bytes & now.bytes);
  if (!own && info(before.agent).lanes == nullptr) return common;
  unsigned loose = 0;
  for (int word = 0; word < 4; ++word) {
    const unsigned bytes = common & (0xFu << (4 * word));
    if (bytes != 0 && !is_word_ordered(before, now, word, seen, own)) loose |= bytes;
  }
  return static_cast<std::uint16_t>(loose);
}

// Of bytes that a warpgroup's wgmma reads: those that parts of other warps read for which nobody has waited.
std::uint16_t RaceDetector::unread_parts(const RaceRecord& before, const RaceRecord& now,
                                         const Accessor& accessor) const {
  const std::array<Agent, 4>& parts = info(before.agent).parts;
  if (parts[3] == 0) return 0;
  const auto common = static_cast<std::uint16_t>(before.bytes & now.bytes);
  unsigned loose = 0;
  for (int word = 0; word < 4; ++word) {
    const unsigned bytes = common & (0xFu << (4 * word));
    if (bytes == 0) continue;
    const Mask readers = before.lanes.of[static_cast<std::size_t>(word)];
    for (std::size_t i = 0; i < parts.size(); ++i)
      if ((readers >> i & 1) != 0 && before.clock > accessor.seen->at(parts[i])) loose |= bytes;
  }
  return static_cast<std::uint16_t>(loose);
}

// Every lane that touched a word of `inner` touched it in `outer` too, of the words that both have.
bool RaceDetector::covers_lanes(const RaceRecord& outer, const RaceRecord& inner) {
  const unsigned words = words_of(static_cast<unsigned>(outer.bytes & inner.bytes));
  Mask more = 0;
  for (unsigned word = 0; word < 4; ++word)
    more |= inner.lanes.of[word] & ~outer.lanes.of[word] & (0 - (words >> (4 * word) & 1u));
  if (more != 0) return false;
  if (outer.split == 0) [[likely]]
    return true;
  for (unsigned word = 0; word < 4; ++word) {
    if ((words >> (4 * word) & 1u) == 0 || (outer.split >> word & 1u) == 0) continue;
    if (outer.lanes.of[word] != inner.lanes.of[word] || (inner.split >> word & 1u) == 0) return false;
  }
  return true;
}

void RaceDetector::merge(RaceRecord& into, const RaceRecord& now) {
  for (unsigned word = 0; word < 4; ++word) {
    const unsigned bytes = unsigned{into.bytes} >> (4 * word) & 15u, more = unsigned{now.bytes} >> (4 * word) & 15u;
    if (more == 0) continue;
    const Mask by = into.lanes.of[word];
    const auto bit = static_cast<std::uint8_t>(1u << word);
    if (bytes == 0) {
      into.lanes.of[word] = now.lanes.of[word];
      into.split = static_cast<std::uint8_t>((into.split & ~bit) | (now.split & bit));
      continue;
    }
    const bool is_one_lane = by == now.lanes.of[word] && std::has_single_bit(by);
    into.lanes.of[word] = by | now.lanes.of[word];
    into.split = static_cast<std::uint8_t>(into.split | (now.split & bit) | (bytes != more && !is_one_lane ? bit : 0));
  }
  into.bytes |= now.bytes;
}

// A store of what is the same in a whole warp; of several of one time a cell may remember the last one's place alone.
static bool is_of_all_lanes(const RaceRecord& record) {
  for (unsigned word = 0; word < 4; ++word)
    if ((record.bytes >> (4 * word) & 15) != 0 && record.lanes.of[word] != kAllLanes) return false;
  return true;
}

// Of two accesses with bytes in common: reports what is wrong with them. True when the record is of no use any more.
bool RaceDetector::is_spent(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                            std::uint64_t address, bool is_shared) {
  if (!arrivals_.empty() && is_shared && !accessor.is_generic && is_write(now) && !is_write(before) &&
      !is_async(before)) [[unlikely]]
    check_under_way(before, now, accessor, address);
  const bool is_covered = (before.bytes & ~now.bytes) == 0 && (is_write(now) || !is_write(before));
  // Ordered by all that the lanes have seen, and in one CTA: nothing to report.
  if (before.clock <= accessor.seen->at(before.agent) && !is_async(before) && !accessor.needs_proxy_fence &&
      !is_other_cta(before.agent, now.agent)) [[likely]]
    return is_covered;
  const bool one_writes = is_write(before) || is_write(now);
  const bool are_atomic = (before.kind & now.kind & kRaceAtomic) != 0 && !(is_shared && is_lockstep(before, now));
  const bool is_harmless = !one_writes || (are_atomic && ((before.kind | now.kind) & kRaceNarrow) == 0);
  if (is_harmless && !is_covered && !accessor.needs_proxy_fence) return false;
  std::uint16_t loose = unordered(before, now, *accessor.seen, &accessor);
  if (loose == 0 && is_async(before) && !is_write(before) && is_write(now) && !is_async(now))
    loose = unread_parts(before, now, accessor);
  if (accessor.needs_proxy_fence && one_writes && loose == 0 && !is_write(now))
    check_proxy(before, now, accessor, address);
  if (one_writes && before.agent != now.agent && is_scope_too_narrow(before, now, accessor)) {
    report_scope(before, now, accessor, address, std::countr_zero(static_cast<unsigned>(before.bytes & now.bytes)));
    return true;
  }
  // What lanes of one instruction store to the same bytes is mostly the same.
  const bool is_one_store = before.agent == now.agent && before.clock == now.clock && before.pc == now.pc;
  if (stores_same && is_shared && before.kind == kRaceWrite && now.kind == kRaceWrite &&
      (before.pc == now.pc || (is_of_all_lanes(before) && is_of_all_lanes(now))))
    return false;
  if (one_writes && !are_atomic && loose != 0 && !is_one_store) {
    report(before, now, accessor, address, std::countr_zero(static_cast<unsigned>(loose)), is_shared);
    return true;  // once is enough
  }
  return is_covered && (loose == 0 || (is_own(before, accessor) && covers_lanes(now, before)));
}

// A record of another warp or time that shares bytes with the new access: is_spent(), and before it what needs no look
// at lanes and no report.
inline bool RaceDetector::is_done_with(const RaceCell& cell, unsigned index, const RaceRecord& now,
                                       const Accessor& accessor, std::uint64_t address, bool is_shared) {
  const std::uint8_t kind = cell.kind(index);
  if (accessor.is_generic && !accessor.needs_proxy_fence && (kind & kRaceAsync) == 0) {
    const bool is_covered = (cell.bytes[index] & ~now.bytes) == 0 && (is_write(now) || (kind & kRaceWrite) == 0);
    const bool is_ordered = cell.clocks[index] <= accessor.seen->at(cell.agents[index]);
    if (is_ordered && !is_other_cta(cell.agents[index], now.agent)) return is_covered;
    // Neither two reads nor two atomics race. Of lanes of the own warp one may have done both.
    const bool is_harmless = ((kind | now.kind) & kRaceWrite) == 0 ||
                             ((kind & now.kind & kRaceAtomic) != 0 && ((kind | now.kind) & kRaceNarrow) == 0);
    if (is_harmless && (!is_covered || (!is_ordered && cell.agents[index] != accessor.own))) return false;
  }
  return is_spent(cell.record(index), now, accessor, address, is_shared);
}

// Records that the new access makes needless are dropped: whoever comes later and is ordered after the new access is
// ordered after them too. A record is of one instruction, so that a report names the right one.
void RaceDetector::touch(RaceCell& cell, const RaceRecord& now, const Accessor& accessor, std::uint64_t address,
                         bool is_shared) {
  if (!is_shared && !launch_.prior_grids.empty()) [[unlikely]]
    check_prior(now, accessor, address);
  const unsigned sharing = cell.sharing(now.bytes);
  unsigned free = ~cell.used() & RaceCell::kAll;
  const auto drop = [&](unsigned i) {
    cell.drop(i);
    free |= 1u << i;
  };
  const unsigned beside = cell.of_time(now.agent, now.clock);  // of the same warp and time
  for (unsigned rest = sharing & ~beside; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    if (is_done_with(cell, i, now, accessor, address, is_shared)) drop(i);
  }
  unsigned same = RaceCell::kRecords;   // of the same instruction, with other bytes
  unsigned other = RaceCell::kRecords;  // of another one
  for (unsigned rest = beside; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    if ((sharing >> i & 1) == 0) {
      if (cell.kind(i) == now.kind) (cell.pcs[i] == now.pc ? same : other) = i;
      continue;
    }
    const RaceRecord before = cell.record(i);
    const bool is_within = (now.bytes & ~before.bytes) == 0 && covers_lanes(before, now);
    if (is_within && before.kind == now.kind && (before.pc == now.pc || !is_write(now))) return;
    // Nothing to report: both read, or each lane meets what it did itself.
    if (!is_async(now) && ((before.kind | now.kind) & kRaceWrite) != 0 &&
        is_spent(before, now, accessor, address, is_shared)) {
      drop(i);
      continue;
    }
    // A read of what a lane has just written adds nothing, nor does a read record below a write.
    if (is_within && (before.kind == now.kind || (before.kind == kRaceWrite && now.kind == 0))) return;
    const bool is_below = (before.bytes & ~now.bytes) == 0;
    if (is_below && before.kind == 0 && now.kind == kRaceWrite) {
      drop(i);
    } else if (before.kind == now.kind) {
      if (before.pc == now.pc)
        same = i;
      else if (!is_below || !covers_lanes(now, before))
        other = i;
      else
        drop(i);
    }
  }
  if (same == RaceCell::kRecords && free == 0) same = other;
  if (same != RaceCell::kRecords) {
    RaceRecord both = cell.record(same);
    merge(both, now);
    return cell.set(same, both);
  }
  auto at = static_cast<unsigned>(std::countr_zero(free));
  if (free == 0) {
    at = now.pc % RaceCell::kRecords;
    for (unsigned i = 0; i < RaceCell::kRecords; ++i)
      if ((cell.kind(i) & kRaceWrite) == 0) at = i;
  }
  cell.set(at, now);
}

}  // namespace tessera::emulator
