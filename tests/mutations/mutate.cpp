#include "tests/mutations/mutate.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <regex>
#include <sstream>

namespace tessera::mutations {
namespace {

std::string nothing(const std::string&) { return ""; }

// The last operand, a number, plus `delta`.
std::function<std::string(const std::string&)> add_to_last(int delta) {
  return [delta](const std::string& line) {
    std::smatch match;
    if (!std::regex_search(line, match, std::regex("([0-9]+);"))) return line;
    return match.prefix().str() + std::to_string(std::stoi(match[1]) + delta) + ";" + match.suffix().str();
  };
}

// The last operand, 32 bits, changed by an instruction before: opcode mutated, operand, number.
std::function<std::string(const std::string&)> change_last(const char* opcode, const char* operand) {
  return [=](const std::string& line) {
    std::smatch match;
    if (!std::regex_search(line, match, std::regex("([%$A-Za-z0-9_]+)\\s*;"))) return line;
    return fmt::format("{{ .reg .b32 mutated; {} mutated, {}, {}; {}mutated;{} }}", opcode, match[1].str(), operand,
                       match.prefix().str(), match.suffix().str());
  };
}

// A wait whose answer is always yes.
std::string always_over(const std::string& line) {
  std::smatch match;
  if (!std::regex_search(line, match, std::regex("\\.b64\\s+([%A-Za-z0-9_]+),"))) return line;
  return fmt::format("setp.eq.u32 {}, 0, 0;", match[1].str());
}

std::function<std::string(const std::string&)> replace(const char* what, const char* by) {
  return [=](const std::string& line) {
    std::string changed = line;
    if (const std::size_t at = line.find(what); at != std::string::npos) changed.replace(at, std::strlen(what), by);
    return changed;
  };
}

// A wait that is made once, whatever it answers.
std::string asked_once(const std::string& line) {
  std::smatch match;
  if (!std::regex_search(line, match, std::regex("\\.b64\\s+([%A-Za-z0-9_]+),"))) return line;
  return fmt::format("{{ .reg .pred mutated; {}.b64 mutated,{} setp.eq.u32 {}, 0, 0; }}", match.prefix().str(),
                     match.suffix().str(), match[1].str());
}

// The n-th operand, a 64-bit descriptor register, with a bit pattern flipped.
std::function<std::string(const std::string&)> flip_descriptor(const char* bits) {
  return [=](const std::string& line) {
    // The B descriptor is the operand before the predicate of scale-d.
    std::smatch match;
    if (!std::regex_search(line, match, std::regex(",\\s*(%rd[0-9]+),\\s*([pq]|%p[0-9]+),"))) return line;
    return fmt::format("{{ .reg .b64 mutated; xor.b64 mutated, {}, {}; {}, mutated, {},{} }}", match[1].str(), bits,
                       match.prefix().str(), match[2].str(), match.suffix().str());
  };
}

const std::vector<Kind>& common_kinds() {
  static const std::vector<Kind> all = {
      {"drop fence.proxy.async", "fence.proxy.async", nothing},
      {"drop fence.mbarrier_init", "fence.mbarrier_init", nothing},
      {"drop griddepcontrol.wait", "griddepcontrol.wait", nothing},
      {"drop griddepcontrol.launch_dependents", "griddepcontrol.launch_dependents", nothing},
      {"drop bar.sync", "bar.sync", nothing},
      {"drop barrier.sync", "barrier.sync", nothing},
      {"drop barrier.arrive", "barrier.arrive", nothing},
      {"drop mbarrier.init", "mbarrier.init", nothing},
      {"mbarrier.init: one arrival more", "mbarrier.init", change_last("add.s32", "1")},
      {"drop mbarrier.try_wait", "mbarrier.try_wait", always_over},
      {"mbarrier.try_wait: answer ignored", "mbarrier.try_wait", asked_once},
      {"mbarrier.try_wait: parity flipped", "mbarrier.try_wait", change_last("xor.b32", "1")},
      {"drop mbarrier.arrive", "mbarrier.arrive.release", nothing},
      {"mbarrier.arrive: relaxed", "mbarrier.arrive.release", replace(".release.", ".relaxed.")},
      {"mbarrier.arrive: .cta scope", "mbarrier.arrive.release.cluster", replace(".release.cluster", ".release.cta")},
      {"barrier.cluster.arrive: relaxed", "barrier.cluster.arrive.release", replace(".release", ".relaxed")},
      {kUnwritten, "mov.b32", nothing},
      {"drop mbarrier.arrive.expect_tx", "mbarrier.arrive.expect_tx", nothing},
      {"expect_tx: 16 bytes less", "mbarrier.arrive.expect_tx", change_last("add.s32", "-16")},
      {"expect_tx: 1024 bytes more", "mbarrier.arrive.expect_tx", change_last("add.s32", "1024")},
      {"drop TMA load", "cp.async.bulk.tensor.5d.shared", nothing},
      {"drop TMA store", "cp.async.bulk.tensor.5d.global", nothing},
      {"drop TMA load (2d)", "cp.async.bulk.tensor.2d.shared", nothing},
      {"drop TMA store (2d)", "cp.async.bulk.tensor.2d.global", nothing},
      {"drop bulk commit_group", "cp.async.bulk.commit_group", nothing},
      {"drop bulk wait_group", "cp.async.bulk.wait_group", nothing},
      {"drop wgmma.fence", "wgmma.fence", nothing},
      {"drop wgmma.commit_group", "wgmma.commit_group", nothing},
      {"drop wgmma.wait_group", "wgmma.wait_group", nothing},
      {"wgmma.wait_group: one more in flight", "wgmma.wait_group", add_to_last(1)},
      {"drop wgmma", "wgmma.mma_async", nothing},
      {"wgmma: layout code of B", "wgmma.mma_async", flip_descriptor("0xC000000000000000")},
      {"wgmma: LBO of B", "wgmma.mma_async", flip_descriptor("0x0000000000400000")},
      {"wgmma: SBO of B", "wgmma.mma_async", flip_descriptor("0x0000002000000000")},
      {"wgmma: start of B", "wgmma.mma_async", flip_descriptor("0x0000000000000040")},
      {"wgmma: base offset of B", "wgmma.mma_async", flip_descriptor("0x0002000000000000")},
      {"wgmma: reserved bit of B", "wgmma.mma_async", flip_descriptor("0x0000000000004000")},
      {"drop stmatrix", "stmatrix", nothing},
      {"drop setmaxnreg", "setmaxnreg", nothing},
      {"drop shfl", "shfl.sync", nothing},
  };
  return all;
}

std::vector<Kind> kinds_of(Family family) {
  std::vector<Kind> all = common_kinds();
  const std::vector<Kind>& others = family == Family::products ? tcgen05_kinds() : block_kinds();
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::string opcode_of(const std::string& line) {
  std::size_t at = line.find_first_not_of(" \t");
  if (at == std::string::npos) return {};
  if (line[at] == '@') at = line.find_first_not_of(" \t", line.find_first_of(" \t", at));
  return at == std::string::npos ? std::string{} : line.substr(at);
}

}  // namespace

std::string with_line(const std::string& ptx, int line, const std::string& text) {
  std::istringstream in(ptx);
  std::string out;
  int number = 0;
  for (std::string old; std::getline(in, old);) out += (++number == line ? text : old) + "\n";
  return out;
}

std::vector<Mutant> mutants_of(const std::string& ptx, Family family) {
  std::vector<std::string> lines;
  std::istringstream text(ptx);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::vector<Mutant> mutants;
  for (const Kind& kind : kinds_of(family)) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (opcode_of(lines[i]).rfind(kind.opcode, 0) != 0) continue;
      const std::string changed = kind.change(lines[i]);
      if (changed == lines[i]) continue;
      const int line = static_cast<int>(i) + 1;
      mutants.push_back({kind.name, line, with_line(ptx, line, changed)});
    }
  }
  return mutants;
}

}  // namespace tessera::mutations
