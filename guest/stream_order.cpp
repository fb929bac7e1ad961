#include "guest/stream_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "emulator/findings/prior_grids.h"
#include "emulator/findings/race.h"

namespace tessera::guest {

using emulator::GridFootprint;

namespace {

// What is kept at most: the oldest goes. 65,536 pages of a footprint are 200 MiB.
constexpr std::size_t kMostPieces = 256, kMostPages = 1 << 16, kMostRows = 4096;
constexpr std::uint64_t kCell = 16, kPage = 4096;

void join(StreamClock& clock, const StreamClock& other) {
  for (const auto& [stream, place] : other) clock[stream] = std::max(clock[stream], place);
}
bool is_behind(const StreamClock& clock, std::uint64_t stream, std::uint64_t place) {
  const auto known = clock.find(stream);
  return known != clock.end() && known->second >= place;
}
StreamState& legacy_stream() { return *find_stream(pointer_of(1)); }
bool has_other_streams() {
  bool has_any = false;
  for_each_stream([&](StreamState&) { has_any = true; });
  return has_any;
}
std::string words_of(const Work& work) {
  if (const auto* const launch = std::get_if<LaunchWork>(&work)) return launch->kernel->name;
  if (std::holds_alternative<Box>(work)) return "a copy";
  if (std::holds_alternative<Fill>(work)) return "a fill";
  if (std::holds_alternative<AllocateWork>(work)) return "an allocation";
  if (std::holds_alternative<FreeWork>(work)) return "a free";
  if (std::holds_alternative<ChildWork>(work)) return "a graph";
  return "a library's call";
}

// Bytes of the cell at the address that lie in the range.
unsigned mask_of(std::uint64_t cell, std::uint64_t begin, std::uint64_t end) {
  if (cell + kCell <= begin || cell >= end) return 0;
  const std::uint64_t first = std::max(cell, begin) - cell, last = std::min(cell + kCell, end) - cell;
  return ((1u << last) - 1) & ~((1u << first) - 1);
}

// Calls visit(address, cell) for the cells of a footprint in [begin, end), until it gives true.
template <class Visit>
bool for_cells(const GridFootprint& footprint, std::uint64_t begin, std::uint64_t end, const Visit& visit) {
  const auto in_page = [&](std::uint64_t number, const GridFootprint::Page& page) {
    for (std::size_t i = 0; i < page.size(); ++i) {
      const std::uint64_t address = number * kPage + i * kCell;
      if (address + kCell > begin && address < end && visit(address, page[i])) return true;
    }
    return false;
  };
  if ((end - begin) / kPage > footprint.pages.size()) {
    for (const auto& [number, page] : footprint.pages)
      if (number * kPage < end && (number + 1) * kPage > begin && in_page(number, *page)) return true;
    return false;
  }
  for (std::uint64_t number = begin / kPage; number * kPage < end; ++number)
    if (const auto page = footprint.pages.find(number); page != footprint.pages.end() && in_page(number, *page->second))
      return true;
  return false;
}

// Both with page and cell.
template <class Visit>
bool for_common_cells(const GridFootprint& a, const GridFootprint& b, const Visit& visit) {
  const bool is_a_smaller = a.pages.size() < b.pages.size();
  for (const auto& [number, page] : is_a_smaller ? a.pages : b.pages) {
    const auto& others = is_a_smaller ? b.pages : a.pages;
    const auto other = others.find(number);
    if (other == others.end()) continue;
    for (std::size_t i = 0; i < page->size(); ++i) {
      const GridFootprint::Cell &one = (*page)[i], &two = (*other->second)[i];
      if (visit(number * kPage + i * kCell, is_a_smaller ? one : two, is_a_smaller ? two : one)) return true;
    }
  }
  return false;
}

// The later one may have learned of the earlier one's end by a word that both treat as atomic.
bool may_tell(const GridFootprint& earlier, const GridFootprint& later) {
  return for_common_cells(earlier, later, [](std::uint64_t, const auto& a, const auto& b) {
    const unsigned told = a.written & ~a.plain_written;
    const unsigned heard = (b.read & ~b.plain_read) | (b.written & ~b.plain_written);
    return (told & heard) != 0;
  });
}

std::string place_of(const GridFootprint* footprint, std::int32_t line) {
  if (footprint == nullptr) return {};
  const auto place = footprint->places.find(line);
  if (place == footprint->places.end()) return {};
  return fmt::format(", PTX line {} ({}){}{}", line, place->second.instruction,
                     place->second.source.empty() ? "" : ", ", place->second.source);
}

}  // namespace

struct StreamOrder::Conflict {
  std::uint64_t address = 0;
  bool is_earlier_written = false, is_later_written = false;
  const GridFootprint *earlier = nullptr, *later = nullptr;
  std::int32_t earlier_line = 0, later_line = 0;
};

StreamOrder& StreamOrder::instance() {
  static auto* const made = new StreamOrder;
  return *made;
}

StreamClock StreamOrder::before(StreamState& stream) const {
  StreamClock clock = stream.clock;
  join(clock, host_);
  if (stream.is_legacy)
    for_each_stream([&](StreamState& other) {
      if ((other.flags & cudaStreamNonBlocking) == 0) join(clock, other.clock);
    });
  else if ((stream.flags & cudaStreamNonBlocking) == 0)
    join(clock, legacy_stream().clock);
  return clock;
}

std::size_t StreamOrder::Piece::pages() const {
  std::size_t sum = 0;
  for (const auto& footprint : footprints) sum += footprint->pages.size();
  return sum;
}

void StreamOrder::forget() {
  pieces_.clear();
  pages_ = 0;
}

cudaError_t StreamOrder::perform(StreamState& stream, const Work& work, bool is_waited_for) {
  if (!is_on()) return guest::perform(work);
  begin(stream, work);
  struct End {
    StreamOrder& order;
    bool is_waited_for;
    ~End() { order.end(true, is_waited_for); }
  } const end{*this, is_waited_for};
  return guest::perform(work);
}

void StreamOrder::begin(StreamState& stream, const Work& work) {
  if (!is_on()) return;
  now_ = before(stream);
  current_ = {};
  has_current_ = true;
  const auto* const child = std::get_if<ChildWork>(&work);
  if (child != nullptr) join(now_, child->graph->clock);  // a graph runs once at a time
  if (!std::holds_alternative<EventWork>(work)) {
    current_ = {stream.id, ++now_[stream.id], next_++, words_of(work)};
    if (child != nullptr) child->graph->clock = now_;
    if (const auto* const made = std::get_if<AllocateWork>(&work)) add_range(made->pointer, made->bytes, true);
    if (const auto* const free = std::get_if<FreeWork>(&work))
      if (const Block* const block = Blocks::instance().find(free->pointer))
        add_range(free->pointer, block->bytes, true);
  }
  stream.clock = now_;
}

void StreamOrder::end(bool is_done, bool is_waited_for) {
  if (!std::exchange(has_current_, false)) return;
  if (!is_done) return forget();
  if (!current_.ranges.empty() || !current_.footprints.empty()) {
    for (const Piece& piece : pieces_)
      if (!is_behind(now_, piece.stream, piece.place)) compare(piece, current_);
    pages_ += current_.pages();
    pieces_.push_back(std::move(current_));
    while (pieces_.size() > kMostPieces || (pieces_.size() > 1 && pages_ > kMostPages)) {
      pages_ -= pieces_.front().pages();
      pieces_.pop_front();
    }
  }
  if (!is_waited_for) return;
  join(host_, now_);
  drop_waited_for();
}

void StreamOrder::note_launch(const emulator::RaceDetector& race) {
  if (has_current_ && has_other_streams()) current_.footprints.push_back(race.footprint());
}

void StreamOrder::add_range(const void* first, std::size_t bytes, bool is_written) {
  if (has_current_ && bytes != 0 && is_on_device(first))
    current_.ranges.push_back({address_of(first), address_of(first) + bytes, is_written});
}

void StreamOrder::add_rows(const void* first, std::size_t pitch, std::size_t slice, std::size_t width,
                           std::size_t height, std::size_t depth, bool is_written) {
  if (!has_current_ || height * depth > kMostRows) return;
  for (std::size_t z = 0; z < depth; ++z)
    for (std::size_t y = 0; y < height; ++y)
      add_range(static_cast<const std::byte*>(first) + z * slice + y * pitch, width, is_written);
}

void StreamOrder::note(const Box& box) {
  add_rows(box.to, box.to_pitch, box.to_slice, box.width, box.height, box.depth, true);
  add_rows(box.from, box.from_pitch, box.from_slice, box.width, box.height, box.depth, false);
}
void StreamOrder::note(const Fill& fill) {
  add_rows(fill.to, fill.pitch, fill.slice, fill.width * fill.element_bytes, fill.height, fill.depth, true);
}
void StreamOrder::note_record(EventState& event) const {
  if (has_current_) event.clock = now_;
}

void StreamOrder::wait(StreamState& stream, const EventState& event) { join(stream.clock, event.clock); }
void StreamOrder::host_waited_for(StreamState& stream) {
  if (!is_on()) return;
  host_ = before(stream);
  drop_waited_for();
}
void StreamOrder::host_waited_for(const EventState& event) {
  join(host_, event.clock);
  drop_waited_for();
}
void StreamOrder::drop_waited_for() {
  std::erase_if(pieces_, [&](const Piece& piece) {
    const bool is_dropped = is_behind(host_, piece.stream, piece.place);
    if (is_dropped) pages_ -= piece.pages();
    return is_dropped;
  });
}

void StreamOrder::made(std::uint64_t address, std::size_t bytes) {
  if (!is_on()) return;
  births_.erase(births_.lower_bound(address), births_.lower_bound(address + bytes));
  births_[address] = {address + bytes, next_++};
}

bool StreamOrder::is_older_than_memory(const Piece& piece, std::uint64_t address) const {
  const auto after = births_.upper_bound(address);
  if (after == births_.begin()) return false;
  const Birth& birth = std::prev(after)->second;
  return address < birth.end && piece.number < birth.number;
}

void StreamOrder::compare(const Piece& earlier, const Piece& later) const {
  for (const auto& a : earlier.footprints)
    for (const auto& b : later.footprints)
      if (may_tell(*a, *b)) return;
  const auto found = [&](const Conflict& conflict) {
    if (is_older_than_memory(earlier, conflict.address)) return false;
    report(earlier, later, conflict);
    return true;
  };
  for (const auto& a : earlier.footprints)
    for (const auto& b : later.footprints)
      for_common_cells(*a, *b, [&](std::uint64_t address, const auto& one, const auto& two) {
        const unsigned written_first =
            (one.written & (two.plain_read | two.plain_written)) | (one.plain_written & (two.read | two.written));
        const unsigned read_first = (one.read & two.plain_written) | (one.plain_read & two.written);
        const unsigned common = written_first | read_first;
        // What kernels have from malloc comes back at the same addresses.
        if (common == 0 || Blocks::instance().find(pointer_of(address)) == nullptr) return false;
        const int byte = std::countr_zero(common);
        return found({address + static_cast<unsigned>(byte), (written_first >> byte & 1) != 0,
                      (two.written >> byte & 1) != 0, a.get(), b.get(), one.line, two.line});
      });
  const auto with_ranges = [&](const Piece& grids, const std::vector<Range>& ranges, bool are_ranges_later) {
    for (const auto& grid : grids.footprints)
      for (const Range& range : ranges)
        for_cells(*grid, range.begin, range.end, [&](std::uint64_t address, const auto& cell) {
          const unsigned touched = cell.written | (range.is_written ? cell.read : 0u);
          const unsigned common = touched & mask_of(address, range.begin, range.end);
          if (common == 0) return false;
          const int byte = std::countr_zero(common);
          const bool is_cell_written = (cell.written >> byte & 1) != 0;
          const std::uint64_t at = address + static_cast<unsigned>(byte);
          return found(are_ranges_later
                           ? Conflict{at, is_cell_written, range.is_written, grid.get(), nullptr, cell.line, 0}
                           : Conflict{at, range.is_written, is_cell_written, nullptr, grid.get(), 0, cell.line});
        });
  };
  with_ranges(earlier, later.ranges, true);
  with_ranges(later, earlier.ranges, false);
  for (const Range& a : earlier.ranges)
    for (const Range& b : later.ranges)
      if (std::max(a.begin, b.begin) < std::min(a.end, b.end) && (a.is_written || b.is_written))
        found({std::max(a.begin, b.begin), a.is_written, b.is_written});
}

void StreamOrder::report(const Piece& earlier, const Piece& later, const Conflict& conflict) const {
  emulator::EmulatorFinding finding;
  finding.name = "missing-stream-order";
  finding.entry = conflict.later != nullptr ? conflict.later->entry : later.what;
  if (conflict.later != nullptr) {
    finding.ptx_line = conflict.later_line;
    if (const auto place = conflict.later->places.find(conflict.later_line); place != conflict.later->places.end()) {
      finding.instruction = place->second.instruction;
      finding.source_place = place->second.source;
      finding.source_file = place->second.source_file;
      finding.source_line = place->second.source_line;
    }
  }
  finding.address = conflict.address;
  finding.has_address = true;
  finding.message = fmt::format("{} in stream {}, and nothing orders it after the {} by {}{} in stream {}",
                                conflict.is_later_written ? "write" : "read", later.stream,
                                conflict.is_earlier_written ? "write" : "read",
                                conflict.earlier != nullptr ? conflict.earlier->entry : earlier.what,
                                place_of(conflict.earlier, conflict.earlier_line), earlier.stream);
  finding.cause =
      "streams run side by side: an event of the one that the other waits for (cudaEventRecord, cudaStreamWaitEvent), "
      "or "
      "a wait of the host, is missing";
  Session::instance().add_finding(finding);
}

}  // namespace tessera::guest
