// A long test shared by several processes: TESSERA_SHARD=i/n, i from 0, gives this one every n-th of its cases from
// case i on. Without the variable there is one process, which takes them all. A value that does not parse fails the
// test: a part that quietly ran nothing, or everything, would pass for the whole.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "tessera/error.h"

namespace tessera::testing {

struct Shard {
  std::size_t index = 0, count = 1;

  bool takes(std::size_t number) const { return number % count == index; }

  static Shard parse(std::string_view text) {
    Shard shard;
    const char* const end = text.data() + text.size();
    const auto [slash, index_error] = std::from_chars(text.data(), end, shard.index);
    const bool has_slash = index_error == std::errc{} && slash != end && *slash == '/';
    const auto [last, count_error] = std::from_chars(has_slash ? slash + 1 : end, end, shard.count);
    if (!has_slash || count_error != std::errc{} || last != end || shard.index >= shard.count)
      throw Error(ErrorKind::usage,
                  "TESSERA_SHARD = \"" + std::string(text) + "\": must be i/n with i from 0 to n - 1, as in 0/15");
    return shard;
  }

  static Shard from_environment() {
    const char* const text = std::getenv("TESSERA_SHARD");
    return text == nullptr ? Shard{} : parse(text);
  }
};

}  // namespace tessera::testing
