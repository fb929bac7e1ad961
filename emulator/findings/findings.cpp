#include "tessera/emulator/findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/syntax/program.h"

namespace tessera::emulator {
namespace {
constexpr std::size_t kMaxFindings = 100;
constexpr int kMaxCallers = 6;
}  // namespace

std::string Program::place_of(const Instruction& in) const {
  if (in.source_line <= 0) return {};
  std::string text = fmt::format("{}:{}", source_file(in.source_file), in.source_line);
  int depth = 0;
  for (int caller = in.caller; caller >= 0 && depth < kMaxCallers; ++depth) {
    const syntax::Caller& at = module.callers[static_cast<std::size_t>(caller)];
    text += fmt::format(" from {}:{}", source_file(at.file), at.line);
    caller = at.parent;
  }
  return text;
}

std::string EmulatorFinding::to_string() const {
  std::string text = fmt::format("{}: {}", is_failure ? "failure" : "hazard", name);
  if (!entry.empty()) text += fmt::format(" in {}", entry);
  if (ptx_line > 0) text += fmt::format(", PTX line {}", ptx_line);
  if (!instruction.empty()) text += fmt::format(" ({})", instruction);
  if (!source_place.empty()) text += ", " + source_place;
  if (warp >= 0) text += fmt::format(", CTA ({}, {}, {}) warp {}", cta[0], cta[1], cta[2], warp);
  if (lane >= 0) text += fmt::format(" lane {}", lane);
  if (has_address) text += fmt::format(", address 0x{:x}", address);
  text += ": " + message;
  if (count > 1) text += fmt::format(" ({} times)", count);
  if (!cause.empty()) text += fmt::format(" [{}]", cause);
  return text;
}

std::vector<EmulatorFinding> clues_to_difference(const std::vector<ScheduleClue>& first,
                                                 const std::vector<ScheduleClue>& other) {
  std::vector<EmulatorFinding> findings;
  for (const ScheduleClue& clue : other) {
    const bool is_known = std::any_of(first.begin(), first.end(), [&](const ScheduleClue& seen) {
      return seen.finding.name == clue.finding.name && seen.finding.entry == clue.finding.entry &&
             seen.finding.ptx_line == clue.finding.ptx_line && seen.signature == clue.signature;
    });
    if (!is_known) findings.push_back(clue.finding);
  }
  return findings;
}

void FindingLog::add(EmulatorFinding finding) {
  ++added_;
  has_failure_ = has_failure_ || finding.is_failure;
  const bool is_early_read = finding.name == "smem-uninitialised" || finding.name == "async-write-not-waited-for" ||
                             finding.name == "async-read-too-early";
  std::vector<EmulatorFinding>& log = captured_ != nullptr && is_early_read ? *captured_ : findings_;
  for (EmulatorFinding& seen : log) {
    if (seen.name == finding.name && seen.ptx_line == finding.ptx_line && seen.entry == finding.entry) {
      seen.count += finding.count;
      return;
    }
  }
  if (log.size() < kMaxFindings) log.push_back(std::move(finding));
}

}  // namespace tessera::emulator
