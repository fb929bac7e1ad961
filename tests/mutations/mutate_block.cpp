// Slips in code that loads, converts and stores without asynchronous copies: an address, a bound, a selector, a sign.
#include <fmt/format.h>

#include <regex>

#include "tests/mutations/mutate.h"

namespace tessera::mutations {
namespace {

using Change = std::function<std::string(const std::string&)>;

std::string no_block_fault(const std::string&) { return ""; }

// The address in brackets, so many bytes further.
Change further(int bytes) {
  return [bytes](const std::string& line) {
    static const std::regex address(R"(\[([%A-Za-z0-9_]+)(\+[0-9]+)?\])");
    std::smatch match;
    if (!std::regex_search(line, match, address)) return line;
    const int before = match[2].matched ? std::stoi(match[2].str().substr(1)) : 0;
    return fmt::format("{}[{}+{}]{}", match.prefix().str(), match[1].str(), before + bytes, match.suffix().str());
  };
}

// The last operand, a number, plus one.
std::string one_more(const std::string& line) {
  std::smatch match;
  if (!std::regex_search(line, match, std::regex(R"( ([0-9]+);)"))) return line;
  return fmt::format("{} {};{}", match.prefix().str(), std::stoi(match[1]) + 1, match.suffix().str());
}

// Another opcode: a comparison that takes in the bound, or leaves it out.
Change other_opcode(const char* old, const char* fresh) {
  return [=](const std::string& line) {
    const std::size_t at = line.find(old);
    return at == std::string::npos ? line : line.substr(0, at) + fresh + line.substr(at + std::string(old).size());
  };
}

// The operand of that number (0: the first after the opcode), a register of `type`, changed by an instruction before.
Change change(int number, const char* type, const char* opcode, const char* constant) {
  return [=](const std::string& line) {
    const std::size_t end_of_opcode = line.find_first_of(" \t", line.find_first_not_of(" \t"));
    if (end_of_opcode == std::string::npos) return line;
    static const std::regex operand(R"(%[a-z]+[0-9]+)");
    auto at = std::sregex_iterator(line.begin() + static_cast<std::ptrdiff_t>(end_of_opcode), line.end(), operand);
    for (int i = 0; i < number && at != std::sregex_iterator(); ++i) ++at;
    if (at == std::sregex_iterator()) return line;
    const std::size_t from = end_of_opcode + static_cast<std::size_t>(at->position());
    return fmt::format("{{ .reg .{} mutated; {} mutated, {}, {}; {}mutated{} }}", type, opcode, at->str(), constant,
                       line.substr(0, from), line.substr(from + at->str().size()));
  };
}

// Of the four bytes of a word, t0 to t3, the neighbour's.
std::string neighbour_byte(const std::string& line) {
  const std::size_t at = line.rfind(" t");
  if (at == std::string::npos || at + 3 > line.size() || line[at + 2] < '0' || line[at + 2] > '3') return line;
  std::string text = line;
  text[at + 2] = static_cast<char>('0' + ((text[at + 2] - '0') ^ 1));
  return text;
}

}  // namespace

const std::vector<Kind>& block_kinds() {
  static const std::vector<Kind> all = {
      {"ld.global, 16 bytes: the next piece", "ld.global.nc.L1::no_allocate.v4", further(16)},
      {"ld.global, 16 bytes of scales: the next piece", "ld.global.nc.v4", further(16)},
      {"ld.global, 8 bytes: the next piece", "ld.global.nc.v2", further(8)},
      {"ld.global, 16 bytes of a part: the next piece", "ld.global.v4", further(16)},
      {"ld.global, 4 bytes: the next number", "ld.global.f32", further(4)},
      {"st.global, 4 bytes: the next number", "st.global.f32", further(4)},
      {"ld.global, 4 bytes: the next word", "ld.global.nc.u32", further(4)},
      {"ld.global, 2 bytes: the next pair of scales", "ld.global.nc.u16", further(2)},
      {"ld.global, 1 byte: the next scale", "ld.global.nc.u8", further(1)},
      {"st.global, 16 bytes: the next piece", "st.global.v4", further(16)},
      {"st.global, 8 bytes: the next piece", "st.global.v2", further(8)},
      {"st.global, 4 bytes: the next word", "st.global.u32", further(4)},
      {"st.global, 2 bytes: the next row", "st.global.u16", further(2)},
      {"st.global, 1 byte: the next scale", "st.global.u8", further(1)},
      {"drop st.global", "st.global", no_block_fault},
      {"st.shared, 16 bytes: the next piece", "st.shared.v4", further(16)},
      {"st.shared, 4 bytes: the next word", "st.shared.f32", further(4)},
      {"st.shared, 4 bytes: the next warp's", "st.shared.u32", further(4)},
      {"drop st.shared", "st.shared", no_block_fault},
      {"ld.shared, 16 bytes: the next piece", "ld.shared.v4", further(16)},
      {"ld.shared, 8 bytes: the next lane's", "ld.shared.v2", further(8)},
      {"ld.shared, 4 bytes: the next word", "ld.shared.f32", further(4)},
      {"setp.ge: the bound belongs", "setp.ge.s32", other_opcode("setp.ge", "setp.gt")},
      {"setp.ge: the bound belongs (64 bits)", "setp.ge.s64", other_opcode("setp.ge", "setp.gt")},
      {"setp.lt: the bound belongs", "setp.lt.s32", other_opcode("setp.lt", "setp.le")},
      {"setp.lt: the bound belongs (64 bits)", "setp.lt.s64", other_opcode("setp.lt", "setp.le")},
      {"prmt: selector", "prmt.b32", change(3, "b32", "xor.b32", "1")},
      {"dp4a: a sign", "dp4a", change(2, "b32", "xor.b32", "0x80")},
      {"e2m1 to f16: the neighbour's byte", "cvt.rn.f16x2.e2m1x2", neighbour_byte},
      {"e4m3 to f16: another code", "cvt.rn.f16x2.e4m3x2", change(1, "b16", "xor.b16", "4")},
      {"to e4m3: half an exponent more", "cvt.rn.satfinite.e4m3x2", change(2, "f32", "mul.f32", "0f3FB504F3")},
      {"to bf16: a little more", "cvt.rn.bf16x2.f32", change(1, "f32", "mul.f32", "0f3F880000")},
      {"fma.f16x2: a sign", "fma.rn.f16x2", change(1, "b32", "xor.b32", "0x8000")},
      {"fma.f32: a sign", "fma.rn.f32", change(1, "f32", "mul.f32", "0fBF800000")},
      {"ex2: an exponent more", "ex2.approx", change(1, "f32", "add.f32", "0f3F800000")},
      {"lg2: twice the sum", "lg2.approx", change(1, "f32", "add.f32", "0f3F800000")},
      {"max: the other", "max.f32", other_opcode("max.f32", "min.f32")},
      {"max of pairs: the other", "max.bf16x2", other_opcode("max.bf16x2", "min.bf16x2")},
      {"drop abs", "abs.bf16x2", other_opcode("abs.bf16x2", "mov.b32")},
      {"redux: of one warp's lane", "redux.sync.max.u32", other_opcode("redux.sync.max", "redux.sync.min")},
      {"drop red", "red.relaxed", no_block_fault},
      {"shl: a bit more", "shl.b32", one_more},
      {"shfl: another lane", "shfl.sync.bfly", other_opcode("shfl.sync.bfly", "shfl.sync.up")},
  };
  return all;
}

}  // namespace tessera::mutations
