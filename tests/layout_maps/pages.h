// What tests of `tessera layout` share: a page as JSON, and a refusal.
#pragma once

#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

inline Json page_of(Terminal& terminal, std::vector<std::string> arguments, int code = 0) {
  arguments.insert(arguments.begin(), "layout");
  arguments.emplace_back("--json");
  const Outcome outcome = terminal.run(arguments);
  CAPTURE(arguments[1]);
  CAPTURE(arguments[2]);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == code);
  CHECK(outcome.err.starts_with("mistake: ") == (code == 1));  // why it fails is on stderr too
  return Json::parse(outcome.out);
}

/// What stderr says of a call that must fail with `code` and print nothing.
inline std::string refusal_of(Terminal& terminal, std::vector<std::string> arguments, int code = 2) {
  arguments.insert(arguments.begin(), "layout");
  const Outcome outcome = terminal.run(arguments);
  CAPTURE(arguments.back());
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  return outcome.err;
}

}  // namespace tessera::cli
