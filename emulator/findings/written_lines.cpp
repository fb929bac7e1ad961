#include "emulator/findings/written_lines.h"

#include <algorithm>

#include "emulator/syntax/program.h"

namespace tessera::emulator {

bool WrittenLines::is_needed(const Entry& entry) {
  return std::any_of(entry.code.begin(), entry.code.end(), [](const Instruction& in) {
    return (in.opcode.starts_with("ld.") && in.opcode.find(".nc") != std::string_view::npos) ||
           in.opcode.starts_with("tex.") || in.opcode.starts_with("tld4.");
  });
}

WrittenLines::Page* WrittenLines::page(std::uint64_t number, bool makes) {
  if (number == last_number_) return last_;
  const auto found = pages_.find(number);
  Page* page = found == pages_.end() ? nullptr : found->second.get();
  if (page == nullptr && makes) page = (pages_[number] = std::make_unique<Page>()).get();
  if (page != nullptr) {
    last_number_ = number;
    last_ = page;
  }
  return page;
}

void WrittenLines::note(std::uint64_t address, std::size_t bytes, std::uint16_t writer) {
  begin_ = std::min(begin_, address);
  end_ = std::max(end_, address + bytes);
  while (bytes > 0) {
    const std::uint64_t offset = address % kPageBytes;
    const std::size_t here = std::min<std::size_t>(bytes, kPageBytes - offset);
    std::fill_n(page(address / kPageBytes, true)->data() + offset, here, writer);
    address += here;
    bytes -= here;
  }
}

bool WrittenLines::may_hold_any(std::uint64_t address, std::size_t bytes) {
  if (!may_hold(address, bytes)) return false;
  constexpr std::uint64_t kMostPages = 8;
  const std::uint64_t first = address / kPageBytes, last = (address + bytes - 1) / kPageBytes;
  if (last - first >= kMostPages) return true;
  for (std::uint64_t number = first; number <= last; ++number)
    if (page(number, false) != nullptr) return true;
  return false;
}

std::uint16_t WrittenLines::find(std::uint64_t address, std::size_t bytes) {
  while (bytes > 0) {
    const std::uint64_t offset = address % kPageBytes;
    const std::size_t here = std::min<std::size_t>(bytes, kPageBytes - offset);
    if (const Page* page = this->page(address / kPageBytes, false)) {
      const auto* const first = page->data() + offset;
      const auto* const written = std::find_if(first, first + here, [](std::uint16_t w) { return w != kNobody; });
      if (written != first + here) return *written;
    }
    address += here;
    bytes -= here;
  }
  return kNobody;
}

}  // namespace tessera::emulator
