#include "runtime/kernel_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace tessera {

std::optional<Image> join_pieces(const std::vector<Image>& pieces, std::string_view entry, std::string& refused) {
  // Registers are given out once more in the whole kernel, which does without: seen of one of 94 kernels.
  for (const Image& piece : pieces) {
    for (const EntryReport& report : piece.report.entries) {
      if (report.spill_store_bytes + report.spill_load_bytes + report.stack_bytes == 0) continue;
      refused = fmt::format("a piece spills {} bytes", report.spill_store_bytes + report.spill_load_bytes);
      return std::nullopt;
    }
  }
  std::vector<std::vector<std::byte>> cubins;
  std::vector<std::string> ptx;
  for (const Image& piece : pieces) {
    cubins.push_back(piece.cubin);
    ptx.push_back(piece.ptx);
  }
  // PTX first: it tells of variables, which machine code does not show.
  Joined<std::string> text = join_ptx(ptx, entry);
  Joined<std::vector<std::byte>> code;
  code.refused = text.refused;
  if (text.refused.empty()) code = join_cubins(cubins, entry);
  refused = code.refused;
  if (!refused.empty()) return std::nullopt;
  Image image{.ptx = std::move(text.code), .cubin = std::move(code.code), .report = pieces.front().report};
  CompileReport& report = image.report;
  for (const Image& piece : std::span(pieces).subspan(1)) {
    report.log += piece.report.log;
    for (const std::string& note : piece.report.notes)
      if (std::find(report.notes.begin(), report.notes.end(), note) == report.notes.end()) report.notes.push_back(note);
    for (const EntryReport& more : piece.report.entries) {
      const auto same = std::find_if(report.entries.begin(), report.entries.end(),
                                     [&](const EntryReport& one) { return one.name == more.name; });
      if (same == report.entries.end()) {
        report.entries.push_back(more);
        continue;
      }
      same->registers = std::max(same->registers, more.registers);
      same->barriers = std::max(same->barriers, more.barriers);
    }
  }
  return image;
}

}  // namespace tessera
