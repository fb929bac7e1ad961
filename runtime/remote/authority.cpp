#include "runtime/remote/authority.h"

#include <algorithm>

namespace tessera::remote {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_of_address(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' || c == '.';
}

/// Names in any alphabet, but no mark that separates the parts of a URL.
bool is_of_name(char c) {
  static constexpr std::string_view kMarks = R"(:/?#[]@!$&'()*+,;=<>"\^`{|}%)";
  return static_cast<unsigned char>(c) > ' ' && kMarks.find(c) == std::string_view::npos;
}

bool is_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || !std::all_of(text.begin(), text.end(), is_digit)) return false;
  return std::stoi(std::string(text)) <= 65'535;
}

}  // namespace

std::optional<Authority> parse_authority(std::string_view text) {
  Authority result;
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    result.host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    if (!std::all_of(result.host.begin(), result.host.end(), is_of_address)) return std::nullopt;
  } else {
    const std::size_t end = std::min(text.find(':'), text.size());
    result.host = text.substr(0, end);
    rest = text.substr(end);
    if (!std::all_of(result.host.begin(), result.host.end(), is_of_name)) return std::nullopt;
  }
  if (!rest.empty()) {
    if (!rest.starts_with(':') || !is_port(rest.substr(1))) return std::nullopt;
    result.port = rest.substr(1);
  }
  return result.host.empty() ? std::nullopt : std::optional(result);
}

}  // namespace tessera::remote
