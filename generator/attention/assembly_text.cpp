#include "generator/attention/assembly_text.h"

#include <fmt/format.h>

#include <bit>
#include <cstddef>

namespace tessera::fmha {
namespace {

constexpr std::size_t kLineWidth = 120;

// Breaks at spaces, so that each line, in quotation marks or not, has room.
std::string lines(const std::string& text, bool is_quoted) {
  const std::string indent = is_quoted ? "        \"" : "        ", close = is_quoted ? " \"\n" : "\n";
  std::string out, line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = text.find(' ', at);
    const std::string word = text.substr(at, space == std::string::npos ? space : space - at);
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() + 2 > kLineWidth) {
      out += indent + line + close;
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = space == std::string::npos ? text.size() : space + 1;
  }
  return out + indent + line + close;
}

}  // namespace

std::string name(const char* kind, int i) { return kind + std::to_string(i); }

std::string names(const char* kind, int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) text += (i > first ? ", " : "") + name(kind, i);
  return text;
}

std::string float_of(int i) { return fmt::format("0f{:08X}", std::bit_cast<unsigned>(static_cast<float>(i))); }

std::string operands(const char* constraint, const std::string& array, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i > 0 ? ", \"" : "\"") + std::string(constraint) + "\"(" + array + "[" + std::to_string(i) + "])";
  return text;
}

Statement& Statement::operator<<(const std::string& instruction) {
  text_ += (text_.empty() ? "" : " ") + instruction + ";";
  return *this;
}

std::string Statement::text(const std::string& operand_lists) const {
  return "    asm volatile(\n" + lines("{ " + text_ + " }", true) + lines(": " + operand_lists + ");", false);
}

std::string function(const std::string& head, const std::string& body) {
  return "  static __device__ __forceinline__ void " + head + " {\n" + body + "  }\n";
}

}  // namespace tessera::fmha
