#include "emulator/tensor_cores/tmem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tessera::emulator {

TensorMemory::TensorMemory()
    : words_(kTmemLanes * kTmemColumns, 0xFFFFFFFF),
      shadow_(kTmemLanes * kTmemColumns, 0),
      stamps_(kTmemQuarters * kTmemColumns) {}

void TensorMemory::reset() {
  std::fill(stamps_.begin(), stamps_.end(), TmemStamp{});
  sizes_.fill(0);
  taken_.fill(false);
  permit_given_up = false;
  cta_group = 0;
  pair_operations = 0;
  last_alloc = nullptr;
  last_alloc_warp = -1;
  in_flight.clear();
}

int TensorMemory::find_room(int columns) const {
  for (int first = 0; first + columns <= kTmemColumns; first += columns) {
    const auto begin = taken_.begin() + first / kTmemUnit;
    if (std::none_of(begin, begin + columns / kTmemUnit, [](bool taken) { return taken; })) return first;
  }
  return -1;
}

int TensorMemory::allocate(int columns) {
  const int first = find_room(columns);
  if (first < 0) return -1;
  sizes_[static_cast<std::size_t>(first / kTmemUnit)] = columns;
  std::fill_n(taken_.begin() + first / kTmemUnit, columns / kTmemUnit, true);
  for (int lane = 0; lane < kTmemLanes; ++lane) {
    std::fill_n(row(lane) + first, columns, 0xFFFFFFFF);
    std::fill_n(shadow_row(lane) + first, columns, std::uint8_t{0});
  }
  for (int quarter = 0; quarter < kTmemQuarters; ++quarter)
    for (int column = first; column < first + columns; ++column) stamp(quarter, column) = {};
  return first;
}

void TensorMemory::release(int column) {
  const auto unit = static_cast<std::size_t>(column / kTmemUnit);
  std::fill_n(taken_.begin() + column / kTmemUnit, sizes_[unit] / kTmemUnit, false);
  sizes_[unit] = 0;
}

int TensorMemory::allocated_columns() const {
  return static_cast<int>(std::count(taken_.begin(), taken_.end(), true)) * kTmemUnit;
}

bool TensorMemory::is_allocated(int first, int end) const {
  if (first < 0 || end > kTmemColumns) return false;
  for (int unit = first / kTmemUnit; unit * kTmemUnit < end; ++unit)
    if (!taken_[static_cast<std::size_t>(unit)]) return false;
  return true;
}

std::string TensorMemory::describe_blocks() const {
  std::string text;
  for (int column = 0; column < kTmemColumns; column += kTmemUnit) {
    const int size = block_at(column);
    if (size == 0) continue;
    text += fmt::format("{}{} to {}", text.empty() ? "columns " : ", ", column, column + size - 1);
  }
  return text.empty() ? "no columns" : text;
}

void TensorMemory::mark_written(int lane, int column, int count) {
  std::memset(shadow_row(lane) + column, 1, static_cast<std::size_t>(count));
}

int TensorMemory::first_unwritten(int lane, int column, int count) const {
  const std::uint8_t* row = shadow_.data() + static_cast<std::ptrdiff_t>(lane) * kTmemColumns + column;
  const void* found = std::memchr(row, 0, static_cast<std::size_t>(count));
  return found == nullptr ? -1 : column + static_cast<int>(static_cast<const std::uint8_t*>(found) - row);
}

const TmemUse* TensorMemory::find_use(const TmemRegion& region, bool writes_only) const {
  for (const TmemUse& use : in_flight)
    if ((use.writes || !writes_only) && use.region.overlaps(region)) return &use;
  return nullptr;
}

void TensorMemory::end_use(const void* operation) {
  std::erase_if(in_flight, [operation](const TmemUse& use) { return use.operation == operation; });
}

}  // namespace tessera::emulator
