#include "base/shown.h"

#include <algorithm>

namespace tessera {

std::string shown(std::string_view text) {
  constexpr std::size_t kMaxBytes = 60;
  std::size_t end = std::min(text.size(), kMaxBytes);
  // Not in the middle of a UTF-8 sequence.
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) --end;
  std::string line(text.substr(0, end));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return end < text.size() ? line + "..." : line;
}

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F; }, '?');
  return text;
}

}  // namespace tessera
