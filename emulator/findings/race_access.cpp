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
  RaceRecord record;
  record.agent = kind.is_flag ? state.flag_agent : state.agent;
  record.clock = kind.is_flag ? state.flags : state.clock;
  record.pc = warp.pc;
  record.lanes = all_words(lane_sets.code(lanes));
  record.kind = kind_bits(kind);
  if (record.agent == 0) return;
  state.is_dirty = true;
  const int lane = std::countr_zero(lanes);
  const Accessor accessor = accessor_of(warp, state.view(lane), in);
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
                                  std::uint16_t bytes, LaneCodes lanes, bool is_write_access) {
  RaceWarp& state = *warp.race;
  if (state.agent == 0) return;
  state.is_dirty = true;
  const RaceRecord record{state.agent, state.clock, warp.pc,
                          lanes,       bytes,       is_write_access ? kRaceWrite : std::uint8_t{0}};
  const Accessor accessor = accessor_of(warp, state.view(lane), in);
  if (cta == nullptr) return touch(page_cells(granule)[(granule & 4095) / 16], record, accessor, granule, false);
  const std::uint64_t shown = cta->shared_address(static_cast<std::uint32_t>(granule));
  if (cta != warp.cta)
    check_peer(*cta, accessor, state.agent, state.clock, shown + static_cast<unsigned>(std::countr_zero(bytes)), lane);
  touch(cta->race->cells[granule / 16], record, accessor, shown, true);
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
    if (lanes_[word] == 0)
      each_ = static_cast<std::uint16_t>(each_ | (mask & of_word));
    else
      each_ = static_cast<std::uint16_t>(each_ & (mask | ~of_word));
    lanes_[word] |= Mask{1} << lane;
  }
  bytes_ |= mask;
}

bool LaneAccesses::is_together(int lane) const {
  const RaceWarp& state = *warp_.race;
  return state.views.size() == 1 || &state.view(lane) == &state.view(lane_);
}

void LaneAccesses::flush() {
  if (bytes_ == 0) return;
  RaceDetector& race = *warp_.launch->race;
  LaneCodes codes = 0;
  for (std::size_t word = 0; word < lanes_.size(); ++word) {
    if (lanes_[word] == 0) continue;
    const bool is_split = ((bytes_ ^ each_) >> (4 * word) & 15) != 0;
    codes |= LaneCodes{race.lane_sets.code(lanes_[word], is_split)} << (16 * word);
  }
  race.access_granule(warp_, in_, lane_, cta_, granule_, bytes_, codes, is_write_);
  lanes_ = {};
  bytes_ = each_ = 0;
}

void RaceDetector::async_access(const RaceOperation& operation, const EmulatorFinding& place, Cta* cta,
                                std::uint64_t address, std::size_t bytes, bool is_write_access, bool is_atomic) {
  RaceRecord record;
  record.agent = is_write_access ? operation.write_agent : operation.read_agent;
  if (record.agent == 0) return;
  record.clock = is_write_access ? operation.write_clock : operation.read_clock;
  record.pc = operation.pc;
  record.lanes = all_words(lane_sets.code(operation.lanes));
  record.kind = kind_bits({is_write_access, is_atomic, true});
  Accessor accessor{&operation.seen, &operation.wide, &place,
                    nullptr,         nullptr,         cta == nullptr && !operation.is_generic};
  accessor.is_generic = operation.is_generic;
  accessor.own = operation.issuer;
  accessor.own_until = operation.issued;
  accessor.copies = operation.issuer_copies;
  accessor.copies_until = operation.own_copies;
  if (cta == nullptr) {
    touch_global(address, bytes, record, accessor);
    return;
  }
  const std::uint64_t shown = cta->shared_address(static_cast<std::uint32_t>(address));
  if (place.cta != cta->id)
    check_peer(*cta, accessor, operation.issuer, operation.issued, shown, std::countr_zero(operation.lanes));
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

// Whether a lane that did both did them in this order: only the records' lanes are left to be compared.
bool RaceDetector::is_own(const RaceRecord& before, const Accessor& accessor) const {
  return (before.agent == accessor.own && before.clock <= accessor.own_until) ||
         (before.agent == accessor.copies && before.clock <= accessor.copies_until) || before.agent == accessor.flags;
}

bool RaceDetector::is_word_ordered(const RaceRecord& before, const RaceRecord& now, int word, const VectorClock& seen,
                                   bool is_own) const {
  const LaneCode code = code_of_word(before.lanes, word), code_now = code_of_word(now.lanes, word);
  if (is_own && code == code_now && code < kLaneSets) return true;
  if (code == kUnknownLanes || code_now == kUnknownLanes) return true;
  const LaneSet by = lane_sets.set(code), by_now = lane_sets.set(code_now);
  const LaneAgents* const agents = info(before.agent).lanes.get();
  Mask loose = 0;
  for (Mask rest = by.lanes; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (is_own && by_now.lanes == Mask{1} << lane) continue;
    if (agents != nullptr && before.clock <= seen.at((*agents)[static_cast<std::size_t>(lane)])) continue;
    loose |= Mask{1} << lane;
  }
  if (loose == 0) return true;
  if (!by.is_split) return is_own && by_now.is_split && (by.lanes & by_now.lanes) != 0;
  // Each lane touched some bytes of the word, and nobody knows which.
  if (is_own && by_now.is_split && (by.lanes & by_now.lanes) != 0) return true;
  const unsigned bytes = before.bytes >> (4 * word) & 15u;
  return (bytes & ~(now.bytes >> (4 * word) & 15u)) != 0 && loose != by.lanes;
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
    const LaneCode code = code_of_word(before.lanes, word);
    if (code == kUnknownLanes) continue;
    const Mask readers = lane_sets.set(code).lanes;
    for (std::size_t i = 0; i < parts.size(); ++i)
      if ((readers >> i & 1) != 0 && before.clock > accessor.seen->at(parts[i])) loose |= bytes;
  }
  return static_cast<std::uint16_t>(loose);
}

// Every lane that touched a word of `inner` touched it in `outer` too, of the words that both have.
bool RaceDetector::covers_lanes(const RaceRecord& outer, const RaceRecord& inner) const {
  const auto common = static_cast<std::uint16_t>(outer.bytes & inner.bytes);
  if (((outer.lanes ^ inner.lanes) & words_of(common)) == 0) return true;
  for (int word = 0; word < 4; ++word) {
    if ((common >> (4 * word) & 15) == 0) continue;
    const LaneCode a = code_of_word(outer.lanes, word), b = code_of_word(inner.lanes, word);
    if (a == b) continue;
    if (a < kLaneSets || a == kUnknownLanes || b == kUnknownLanes) return false;
    const LaneSet wide = lane_sets.set(a);
    if (wide.is_split || (lane_sets.set(b).lanes & ~wide.lanes) != 0) return false;
  }
  return true;
}

void RaceDetector::merge(RaceRecord& into, const RaceRecord& now) {
  LaneCodes codes = 0;
  for (int word = 0; word < 4; ++word)
    codes |= LaneCodes{lane_sets.join(code_of_word(into.lanes, word), into.bytes >> (4 * word) & 15u,
                                      code_of_word(now.lanes, word), now.bytes >> (4 * word) & 15u)}
             << (16 * word);
  into.lanes = codes;
  into.bytes |= now.bytes;
}

// Of two accesses with bytes in common: reports what is wrong with them. True when the record is of no use any more.
bool RaceDetector::is_spent(const RaceRecord& before, const RaceRecord& now, const Accessor& accessor,
                            std::uint64_t address, bool is_shared) {
  if (!arrivals_.empty() && is_shared && !accessor.is_generic && is_write(now) && !is_write(before) &&
      !is_async(before)) [[unlikely]]
    check_under_way(before, now, accessor, address);
  // Ordered by all that the lanes have seen, and in one CTA: nothing to report.
  if (before.clock <= accessor.seen->at(before.agent) && !is_async(before) && !accessor.needs_proxy_fence &&
      !is_other_cta(before.agent, now.agent)) [[likely]]
    return (before.bytes & ~now.bytes) == 0 && (is_write(now) || !is_write(before));
  std::uint16_t loose = unordered(before, now, *accessor.seen, &accessor);
  if (loose == 0 && is_async(before) && !is_write(before) && is_write(now) && !is_async(now))
    loose = unread_parts(before, now, accessor);
  const bool one_writes = is_write(before) || is_write(now);
  const bool are_atomic = (before.kind & now.kind & kRaceAtomic) != 0;
  if (accessor.needs_proxy_fence && one_writes && loose == 0 && !is_write(now))
    check_proxy(before, now, accessor, address);
  if (one_writes && before.agent != now.agent && is_scope_too_narrow(before, now, accessor)) {
    report_scope(before, now, accessor, address, std::countr_zero(static_cast<unsigned>(before.bytes & now.bytes)));
    return true;
  }
  // What lanes of one instruction store to the same bytes is mostly the same.
  const bool is_one_store = before.agent == now.agent && before.clock == now.clock && before.pc == now.pc;
  if (one_writes && !are_atomic && loose != 0 && !is_one_store) {
    report(before, now, accessor, address, std::countr_zero(static_cast<unsigned>(loose)), is_shared);
    return true;  // once is enough
  }
  return (loose == 0 || (is_own(before, accessor) && covers_lanes(now, before))) && (before.bytes & ~now.bytes) == 0 &&
         (is_write(now) || !is_write(before));
}

// Records that the new access makes needless are dropped: whoever comes later and is ordered after the new access is
// ordered after them too. A record is of one instruction, so that a report names the right one. The newest is the
// first: what comes next is most often of the same warp.
void RaceDetector::touch(RaceCell& cell, const RaceRecord& now, const Accessor& accessor, std::uint64_t address,
                         bool is_shared) {
  const RaceRecord& newest = cell.records[0];
  if (newest.agent == now.agent && newest.clock == now.clock && newest.kind == now.kind &&
      (now.bytes & ~newest.bytes) == 0 && (newest.lanes == now.lanes || covers_lanes(newest, now)) &&
      (newest.pc == now.pc || !is_write(now)))
    return;
  if (!is_shared && !launch_.prior_grids.empty()) [[unlikely]]
    check_prior(now, accessor, address);
  RaceRecord* free = nullptr;
  RaceRecord* read = nullptr;
  RaceRecord* same = nullptr;    // of the same instruction, with other bytes
  RaceRecord* beside = nullptr;  // of the same warp and time
  const auto drop = [&](RaceRecord& record) {
    record.agent = 0;
    if (free == nullptr) free = &record;
  };
  for (RaceRecord& before : cell.records) {
    if (before.agent == 0) {
      if (free == nullptr) free = &before;
      continue;
    }
    const bool shares = (before.bytes & now.bytes) != 0;
    if (before.agent == now.agent && before.clock == now.clock) {
      // Nothing to report: both read, or each lane meets what it did itself.
      if (shares && !is_async(now) && ((before.kind | now.kind) & kRaceWrite) != 0 &&
          is_spent(before, now, accessor, address, is_shared)) {
        drop(before);
        continue;
      }
      const bool is_covered = (now.bytes & ~before.bytes) == 0 && covers_lanes(before, now);
      // A read of what a lane has just written adds nothing, nor does a read record below a write.
      if (is_covered && (before.kind == now.kind || (before.kind == kRaceWrite && now.kind == 0)))
        return std::swap(before, cell.records[0]);
      if (before.kind == 0 && now.kind == kRaceWrite && (before.bytes & ~now.bytes) == 0) {
        drop(before);
        continue;
      }
      if (before.kind != now.kind) continue;
      if (before.pc == now.pc)
        same = &before;
      else if ((before.bytes & ~now.bytes) != 0 || !covers_lanes(now, before))
        beside = &before;
      else
        drop(before);
      continue;
    }
    if (!shares) {
      if (!is_write(before)) read = &before;
      continue;
    }
    if (is_spent(before, now, accessor, address, is_shared))
      drop(before);
    else if (!is_write(before))
      read = &before;
  }
  if (same == nullptr && free == nullptr) same = beside;
  if (same != nullptr) return merge(*same, now);
  if (free == nullptr) free = read != nullptr ? read : &cell.records[now.pc % RaceCell::kRecords];
  *free = cell.records[0];
  cell.records[0] = now;
}

}  // namespace tessera::emulator
