// A fault in a template: one place of its text written otherwise.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace tessera::testing {

/// The first `from` of the text becomes `to`. A text without it fails the test.
inline void plant(std::string& text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, std::string(from));
  text.replace(at, from.size(), to);
}

}  // namespace tessera::testing
