// The cells of the memory that an access touches, and what asynchronous operations do to many of them at once.
#include <bit>

#include "emulator/findings/race.h"

namespace tessera::emulator {

RaceSteps& RaceDetector::steps_of(const RaceOperation& operation, const RaceRecord& record, const Cta* cta) {
  constexpr std::size_t kOperations = 16;  // at a time: the parts of a product, the copies that run beside it
  if (steps_.empty()) {
    steps_.reserve(kOperations);
    for (std::size_t i = 0; i < kOperations; ++i) steps_.emplace_back(states_);
  }
  const std::uint32_t how = record.kind | (operation.is_generic ? 0x100u : 0) | (cta != nullptr ? 0x200u : 0);
  RaceSteps& steps = steps_[(record.agent * 2 + (is_write(record) ? 1 : 0)) % kOperations];
  steps.begin({operation.number, record.agent, record.clock, operation.lanes, how});
  return steps;
}

RaceCells& RaceDetector::page_cells(std::uint64_t address) {
  const std::uint64_t page = address >> 12;
  if (page != last_page_number_) {
    std::unique_ptr<RaceCells>& slot = pages_[page];
    if (!slot) slot = std::make_unique<RaceCells>(states_, 4096 / 16);
    last_page_ = slot.get();
    last_page_number_ = page;
  }
  return *last_page_;
}

void RaceDetector::touch_global(std::uint64_t address, std::size_t bytes, const RaceRecord& record,
                                const Accessor& accessor, RaceSteps* steps) {
  while (bytes > 0) {
    const std::size_t part = std::min<std::size_t>(bytes, 4096 - (address & 4095));
    touch_range(page_cells(address), address & 4095, part, record, accessor, address, false, steps);
    address += part;
    bytes -= part;
  }
}

bool RaceDetector::was_stored(std::uint64_t address, std::size_t bytes) const {
  for (std::uint64_t at = address; at < address + bytes; at += 16) {
    const auto page = pages_.find(at >> 12);
    if (page == pages_.end()) continue;
    const RaceCell& cell = page->second->at((at & 4095) / 16);
    for (unsigned i = 0; i < RaceCell::kRecords; ++i)
      if (cell.bytes[i] != 0 && (cell.kind(i) & (kRaceWrite | kRaceAsync)) == kRaceWrite) return true;
  }
  return false;
}

// All 16 bytes, by an asynchronous operation: what it did to another piece of the same history, it does to this one.
void RaceDetector::touch_step(RaceStates::Id& place, const RaceRecord& now, const Accessor& accessor,
                              std::uint64_t address, bool is_shared, RaceSteps& steps) {
  if (steps.repeat(place)) return;
  const RaceStates::Id before = place;
  const bool is_common = !states_->is_own(place);
  if (is_common) states_->retain(before);
  const std::uint64_t findings = launch_.findings.added() + told_;
  RaceCell& own = states_->own(place);
  touch(own, now, accessor, address, is_shared);
  const unsigned left = own.used();
  if (std::has_single_bit(left) && own.record(static_cast<unsigned>(std::countr_zero(left))) == now) {
    if (steps.alone() == 0)
      states_->assign(steps.alone(), place);
    else
      states_->assign(place, steps.alone());
  }
  if (!is_common) return;
  // What there is something to say about is said of each piece.
  if (launch_.findings.added() + told_ == findings) steps.keep(before, place);
  states_->release(before);
}

void RaceDetector::touch_range(RaceCells& cells, std::uint64_t address, std::size_t bytes, RaceRecord record,
                               const Accessor& accessor, std::uint64_t shown_address, bool is_shared,
                               RaceSteps* steps) {
  const std::uint64_t first = address / 16;
  const std::uint64_t last = (address + bytes - 1) / 16;
  for (std::uint64_t cell = first; cell <= last; ++cell) {
    std::uint32_t mask = 0xFFFF;
    if (cell == first) mask &= 0xFFFFu << (address % 16);
    if (cell == last) mask &= 0xFFFFu >> (15 - (address + bytes - 1) % 16);
    record.bytes = static_cast<std::uint16_t>(mask);
    const std::uint64_t shown = shown_address - address % 16 + (cell - first) * 16;
    if (steps != nullptr && mask == 0xFFFF)
      touch_step(cells.id(cell), record, accessor, shown, is_shared, *steps);
    else
      touch(cells.own(cell), record, accessor, shown, is_shared);
  }
}

}  // namespace tessera::emulator
