// Slips in code for tcgen05: an instruction left out, a bit of a descriptor, a column of Tensor Memory, a coordinate.
#include <fmt/format.h>

#include <regex>

#include "tests/mutations/mutate.h"

namespace tessera::mutations {
namespace {

std::string no_tcgen05_fault(const std::string&) { return ""; }

// A predicate that is never true.
std::string never(const std::string& line) {
  std::smatch match;
  if (!std::regex_search(line, match, std::regex("(%p[0-9]+),"))) return line;
  return fmt::format("setp.ne.u32 {}, 0, 0;", match[1].str());
}

// A ballot to which every lane says yes.
std::string everybody(const std::string& line) {
  std::smatch match;
  if (!std::regex_search(line, match, std::regex("(%r[0-9]+),"))) return line;
  return fmt::format("mov.b32 {}, -1;", match[1].str());
}

constexpr const char* kGather = "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4";

// The operand of that number (0: the first after the opcode; brackets count as one), a register or a number, changed by
// an instruction before: "xor.b32", "add.s32", ...
std::function<std::string(const std::string&)> change_operand(int number, const char* opcode, const char* constant) {
  return [=](const std::string& line) {
    const std::size_t end_of_opcode = line.find_first_of(" \t", line.find_first_not_of(" \t"));
    if (end_of_opcode == std::string::npos) return line;
    static const std::regex operand(R"((%[a-z]+[0-9]+|-?[0-9]+))");
    auto at = std::sregex_iterator(line.begin() + static_cast<std::ptrdiff_t>(end_of_opcode), line.end(), operand);
    for (int i = 0; i < number && at != std::sregex_iterator(); ++i) ++at;
    if (at == std::sregex_iterator()) return line;
    const std::size_t from = end_of_opcode + static_cast<std::size_t>(at->position());
    const std::string old = at->str();
    const bool is_wide = std::string(opcode).find("64") != std::string::npos;
    // A stands in shared memory, by descriptor, or in Tensor Memory, by address: one kind each.
    if (old.front() == '%' && (old.rfind("%rd", 0) == 0) != is_wide && old.rfind("%f", 0) != 0) return line;
    return fmt::format("{{ .reg .b{} mutated; {} mutated, {}, {}; {}mutated{} }}", is_wide ? 64 : 32, opcode, old,
                       constant, line.substr(0, from), line.substr(from + old.size()));
  };
}

// The predicate that says whether to add to D: always.
std::string always_accumulate(const std::string& line) {
  const std::size_t at = line.rfind(", p;");
  return at == std::string::npos ? line : "setp.eq.u32 p, 0, 0; " + line;
}

}  // namespace

const std::vector<Kind>& tcgen05_kinds() {
  static const std::vector<Kind> all = {
      {"drop tcgen05.alloc", "tcgen05.alloc", no_tcgen05_fault},
      {"drop tcgen05.dealloc", "tcgen05.dealloc", no_tcgen05_fault},
      {"tcgen05.dealloc: 32 columns less", "tcgen05.dealloc", change_operand(1, "sub.s32", "32")},
      {"drop tcgen05.fence::before_thread_sync", "tcgen05.fence::before", no_tcgen05_fault},
      {"drop tcgen05.fence::after_thread_sync", "tcgen05.fence::after", no_tcgen05_fault},
      {"drop tcgen05.wait::ld", "tcgen05.wait::ld", no_tcgen05_fault},
      {"drop tcgen05.commit", "tcgen05.commit", no_tcgen05_fault},
      {"tcgen05.commit: the next barrier", "tcgen05.commit", change_operand(0, "add.s32", "8")},
      {"tcgen05.commit: multicast mask", "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast",
       change_operand(1, "xor.b16", "2")},
      {"drop tcgen05.mma", "tcgen05.mma", no_tcgen05_fault},
      {"tcgen05.mma: always adds", "tcgen05.mma", always_accumulate},
      {"tcgen05.mma: column of D", "tcgen05.mma", change_operand(0, "add.s32", "1")},
      {"tcgen05.mma: column of A", "tcgen05.mma", change_operand(1, "add.s32", "1")},
      {"tcgen05.mma: start of A", "tcgen05.mma", change_operand(1, "xor.b64", "4")},
      {"tcgen05.mma: SBO of A", "tcgen05.mma", change_operand(1, "xor.b64", "0x0000002000000000")},
      {"tcgen05.mma: start of B", "tcgen05.mma", change_operand(2, "xor.b64", "4")},
      {"tcgen05.mma: LBO of B", "tcgen05.mma", change_operand(2, "xor.b64", "0x0000000000400000")},
      {"tcgen05.mma: SBO of B", "tcgen05.mma", change_operand(2, "xor.b64", "0x0000002000000000")},
      {"tcgen05.mma: layout code of B", "tcgen05.mma", change_operand(2, "xor.b64", "0xC000000000000000")},
      {"tcgen05.mma: version of B", "tcgen05.mma", change_operand(2, "xor.b64", "0x0000400000000000")},
      {"tcgen05.mma: base offset of B", "tcgen05.mma", change_operand(2, "xor.b64", "0x0002000000000000")},
      {"tcgen05.mma: type of A", "tcgen05.mma", change_operand(3, "xor.b32", "128")},
      {"tcgen05.mma: A is MN-major", "tcgen05.mma", change_operand(3, "xor.b32", "32768")},
      {"tcgen05.mma: A negated", "tcgen05.mma", change_operand(3, "xor.b32", "8192")},
      {"tcgen05.mma: N", "tcgen05.mma", change_operand(3, "sub.s32", "262144")},
      {"tcgen05.mma: type of scales", "tcgen05.mma", change_operand(3, "xor.b32", "8388608")},
      {"tcgen05.mma: scale id of A", "tcgen05.mma", change_operand(3, "xor.b32", "1073741824")},
      {"tcgen05.mma: scale id of B", "tcgen05.mma", change_operand(3, "xor.b32", "32")},
      {"tcgen05.mma: column of A's scales", "tcgen05.mma", change_operand(4, "xor.b32", "4")},
      {"tcgen05.mma: column of B's scales", "tcgen05.mma", change_operand(5, "xor.b32", "4")},
      {"drop tcgen05.cp", "tcgen05.cp", no_tcgen05_fault},
      {"tcgen05.cp: column", "tcgen05.cp", change_operand(0, "xor.b32", "4")},
      {"tcgen05.cp: start", "tcgen05.cp", change_operand(1, "xor.b64", "0x0000000000000020")},
      {"tcgen05.cp: SBO", "tcgen05.cp", change_operand(1, "xor.b64", "0x0000001800000000")},
      {"tcgen05.ld: column", "tcgen05.ld",
       [](const std::string& line) {
         // The address stands last, in brackets.
         static const std::regex address(R"(\[(%r[0-9]+)\])");
         return std::regex_replace(line, address, "[$1+16]");
       }},
      {"drop tcgen05.st", "tcgen05.st", no_tcgen05_fault},
      {"tcgen05.st: column", "tcgen05.st", change_operand(0, "xor.b32", "1")},
      {"drop tcgen05.wait::st", "tcgen05.wait::st", no_tcgen05_fault},
      {"TMA load: row", "cp.async.bulk.tensor.5d.shared", change_operand(3, "add.s32", "1")},
      {"TMA load: head", "cp.async.bulk.tensor.5d.shared", change_operand(5, "xor.b32", "1")},
      {"TMA store: row", "cp.async.bulk.tensor.5d.global", change_operand(2, "add.s32", "1")},
      {"drop TMA load (pair)", "cp.async.bulk.tensor.5d.cta_group::2.shared", no_tcgen05_fault},
      {"TMA load (pair): row", "cp.async.bulk.tensor.5d.cta_group::2.shared", change_operand(3, "add.s32", "1")},
      {"TMA load (pair): panel", "cp.async.bulk.tensor.5d.cta_group::2.shared", change_operand(4, "xor.b32", "1")},
      {"gather4: first row", kGather, change_operand(3, "add.s32", "1")},
      {"gather4: last row", kGather, change_operand(6, "add.s32", "1")},
      {"gather4: column", kGather, change_operand(2, "xor.b32", "16")},
      {"gather4: place", kGather, change_operand(0, "xor.b32", "256")},
      {"vote.ballot: everybody", "vote.sync.ballot", everybody},
      {"drop st.global: a part of O", "st.global.v4", no_tcgen05_fault},
      {"drop st.global: a part's sums", "st.global.v2.u32", no_tcgen05_fault},
      {"st.global: the next part of O", "st.global.v4", change_operand(0, "add.s64", "16")},
      {"ld.global: a part of O after", "ld.global.nc.v4", change_operand(4, "add.s64", "16")},
      {"ld.global: a part's sums after", "ld.global.nc.v2", change_operand(2, "add.s64", "8")},
      {"ld.global: the length or row after", "ld.global.nc.u32", change_operand(1, "add.s64", "4")},
      {"drop st.global.f32: lse", "st.global.f32", no_tcgen05_fault},
      {"ex2: an exponent more", "ex2.approx", change_operand(1, "add.f32", "0f3F800000")},
      {"ld.shared.f32: the next lane's", "ld.shared.f32", change_operand(1, "add.s32", "4")},
      {"drop st.shared.f32", "st.shared.f32", no_tcgen05_fault},
      {"vote: never", "vote.sync.any", never},
      {"drop TMA load (3d)", "cp.async.bulk.tensor.3d.shared", no_tcgen05_fault},
      {"drop TMA load (3d, pair)", "cp.async.bulk.tensor.3d.cta_group::2.shared", no_tcgen05_fault},
      {"TMA load (3d): coordinate along k", "cp.async.bulk.tensor.3d.shared", change_operand(2, "xor.b32", "16")},
      {"TMA load (3d): coordinate along rows", "cp.async.bulk.tensor.3d.shared", change_operand(3, "xor.b32", "1")},
      {"drop TMA store (3d)", "cp.async.bulk.tensor.3d.global", no_tcgen05_fault},
      {"TMA store (3d): row", "cp.async.bulk.tensor.3d.global", change_operand(2, "add.s32", "1")},
      {"drop barrier.cluster.arrive", "barrier.cluster.arrive", no_tcgen05_fault},
      {"drop barrier.cluster.wait", "barrier.cluster.wait", no_tcgen05_fault},
      {"mapa: the other CTA", "mapa", change_operand(2, "xor.b32", "1")},
      {"drop st.shared.v4", "st.shared.v4", no_tcgen05_fault},
      {"drop st.global.v2: values of a block", "st.global.v2", no_tcgen05_fault},
      {"drop st.global.u8: scale of a block", "st.global.u8", no_tcgen05_fault},
      {"st.global.v2: the next block", "st.global.v2", change_operand(0, "add.s64", "8")},
      {"st.global.u8: the next scale", "st.global.u8", change_operand(0, "add.s64", "1")},
      {"ld.global: the group after", "ld.global.u32", change_operand(1, "add.s64", "4")},
  };
  return all;
}

}  // namespace tessera::mutations
