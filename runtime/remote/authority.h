// The part of a URL that names a machine. What is none is not shown: it may be a password, in a place of its own
// choosing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::remote {

struct Authority {
  std::string host;  ///< an IPv6 address without its brackets
  std::string port;  ///< empty: none given
};

/// HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT; nothing where it is none of these.
std::optional<Authority> parse_authority(std::string_view text);

}  // namespace tessera::remote
