#include "emulator/instructions/access_class.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/instructions/lanes.h"
#include "emulator/math/instruction_descriptor.h"
#include "emulator/syntax/isa.h"

namespace tessera::emulator {
namespace {

std::vector<std::string_view> words_of(std::string_view opcode) {
  std::vector<std::string_view> words;
  for (std::size_t start = 0; start <= opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', start), opcode.size());
    words.push_back(opcode.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

/// Bytes of a type word such as f32, b8, bf16x2; 0: not a type.
std::uint32_t type_bytes(std::string_view word) {
  if (word.starts_with("bf")) word.remove_prefix(1);
  if (word.size() < 2 || std::string_view("busf").find(word[0]) == std::string_view::npos) return 0;
  std::uint32_t bits = 0;
  const auto [stop, error] = std::from_chars(word.data() + 1, word.data() + word.size(), bits);
  if (error != std::errc() || bits % 8 != 0) return 0;
  const std::string_view rest(stop, static_cast<std::size_t>(word.data() + word.size() - stop));
  return rest.empty() ? bits / 8 : rest == "x2" ? bits / 4 : 0;
}

const Operand* find_address(const Instruction& in) {
  for (int i = 0; i < in.num_operands; ++i)
    if (in.op[i].kind == Operand::Kind::address) return &in.op[i];
  return nullptr;
}

AccessClass::Space space_of_words(const std::vector<std::string_view>& words) {
  using Space = AccessClass::Space;
  for (const std::string_view word : words) {
    if (word == "global" || word == "const") return Space::global;
    if (word.starts_with("shared")) return Space::shared;
    if (word == "local") return Space::local;
    if (word.starts_with("param")) return Space::param;
  }
  return Space::generic;
}

const char* space_name(AccessClass::Space space) {
  using Space = AccessClass::Space;
  switch (space) {
    case Space::global:
      return ".global";
    case Space::shared:
      return ".shared";
    case Space::local:
      return ".local";
    case Space::param:
      return ".param";
    case Space::generic:
      return ".generic";
    case Space::none:
      break;
  }
  return "";
}

/// "m64n128k16" to 64 * 128 * 16, and its factors; 0: not a shape.
std::uint64_t shape_product(std::string_view word, std::uint32_t (&factors)[3]) {
  std::uint64_t product = 1;
  const char* at = word.data();
  const char* const end = word.data() + word.size();
  std::uint32_t found[3] = {0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    if (at == end || *at != "mnk"[i]) return 0;
    const auto [stop, error] = std::from_chars(at + 1, end, found[i]);
    if (error != std::errc()) return 0;
    product *= found[i];
    at = stop;
  }
  if (at != end) return 0;
  std::copy(std::begin(found), std::end(found), std::begin(factors));
  return product;
}

// wmma.load and wmma.store: a lane's share of the matrix; wmma_access.cpp knows where it lies.
AccessClass classify_wmma(const std::vector<std::string_view>& words) {
  AccessClass access;
  if (words[1] == "mma") return access;
  access.is_wmma = true;
  access.reads = words[1] == "load";
  access.writes = words[1] == "store";
  access.space = space_of_words(words);
  access.name = "wmma." + std::string(words[1]) + space_name(access.space);
  const char matrix = words[2][0];
  const std::string_view type = words.back();
  std::uint32_t bits = 0;
  const std::size_t digits = type.find_first_of("0123456789");
  std::from_chars(type.data() + digits, type.data() + type.size(), bits);
  std::uint32_t extent[3] = {0, 0, 0};
  for (const std::string_view word : words) shape_product(word, extent);
  const auto [m, n, k] = extent;
  access.bytes = (matrix == 'a' ? m * k : matrix == 'b' ? k * n : m * n) * (type == "tf32" ? 32 : bits) / 8 / kLanes;
  return access;
}

}  // namespace

AccessClass classify_access(const Instruction& in) {
  const std::vector<std::string_view> words = words_of(in.opcode);
  const std::string_view first = words.front();
  AccessClass access;
  if (first == "wmma") return classify_wmma(words);
  const bool is_matrix = first == "ldmatrix" || first == "stmatrix";
  const bool is_atomic = first == "atom" || first == "red";
  if (!is_matrix && !is_atomic && first != "ld" && first != "ldu" && first != "st") return access;
  if (words.size() > 1 && words[1] == "async") return access;  // st.async, red.async: no lane waits for a bank
  access.reads = first != "st" && first != "stmatrix";
  access.writes = first == "st" || first == "stmatrix" || is_atomic;
  access.space = is_matrix ? AccessClass::Space::shared : space_of_words(words);
  access.address = find_address(in);
  access.name = std::string(first) + (is_matrix ? "" : space_name(access.space));
  if (is_matrix) {
    access.bytes = 16;
    for (const std::string_view word : words)
      if (word == "x1" || word == "x2" || word == "x4") access.matrices = word[1] - '0';
    return access;
  }
  std::uint32_t elements = 1;
  for (const std::string_view word : words) {
    if (const std::uint32_t bytes = type_bytes(word); bytes != 0) access.bytes = bytes;
    if (word == "v2" || word == "v4" || word == "v8") elements = static_cast<std::uint32_t>(word[1] - '0');
  }
  access.bytes *= elements;
  return access;
}

std::uint64_t multiply_adds(const Instruction& in) {
  if (!in.opcode.starts_with("mma") && !in.opcode.starts_with("wmma.mma") && !in.opcode.starts_with("wgmma.mma_async"))
    return 0;
  std::uint32_t factors[3];
  for (const std::string_view word : words_of(in.opcode))
    if (const std::uint64_t product = shape_product(word, factors); product != 0)
      return in.opcode.starts_with("wgmma") ? product / 4 : product;
  return 0;
}

std::uint64_t tensor_multiply_adds(const Warp& warp, const Instruction& in, int lane) {
  using math::Tcgen05Kind;
  static constexpr std::pair<std::string_view, Tcgen05Kind> kKinds[] = {
      {"kind::f16", Tcgen05Kind::f16},          {"kind::tf32", Tcgen05Kind::tf32},
      {"kind::f8f6f4", Tcgen05Kind::f8f6f4},    {"kind::i8", Tcgen05Kind::i8},
      {"kind::mxf4", Tcgen05Kind::mxf4},        {"kind::mxf8f6f4", Tcgen05Kind::mxf8f6f4},
      {"kind::mxf4nvf4", Tcgen05Kind::mxf4nvf4}};
  constexpr int kDescriptor = 3;  // after D, A and B
  if (!in.opcode.starts_with("tcgen05.mma") || in.num_operands <= kDescriptor) return 0;
  for (const std::string_view word : words_of(in.opcode)) {
    for (const auto& [name, kind] : kKinds) {
      if (word != name) continue;
      const auto bits = read_lane<std::uint32_t>(warp, in.op[kDescriptor], lane);
      const math::InstructionDescriptor shape = math::decode_instruction(kind, bits);
      return static_cast<std::uint64_t>(shape.m) * static_cast<std::uint64_t>(shape.n) *
             static_cast<std::uint64_t>(shape.k);
    }
  }
  return 0;
}

std::string opcode_group(const Instruction& in) {
  const AccessClass access = classify_access(in);
  return access.name.empty()
             ? std::string(in.form != nullptr ? in.form->mnemonic : in.opcode.substr(0, in.opcode.find('.')))
             : access.name;
}

}  // namespace tessera::emulator
