// "This text has that part", with the text in the message when it has not.
#pragma once

#include <doctest/doctest.h>

#include <string>

namespace tessera::testing {

inline bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace tessera::testing
