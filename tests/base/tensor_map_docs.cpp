// docs/tensor-maps.md has a row for every rule and every fault, with its name, in order.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "base/tensor_map_copy.h"

using namespace tessera;  // NOLINT: a test of one header

TEST_CASE("docs: every tensor-map rule and fault is documented") {
  std::ifstream file(TESSERA_SOURCE_DIR "/docs/tensor-maps.md");
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string text = stream.str();
  REQUIRE_FALSE(text.empty());
  std::size_t at = 0;
  const auto check_row = [&](int number, std::string_view name) {
    const std::string row = fmt::format("\n| {} | {} | ", number, name);
    INFO(row);
    const std::size_t found = text.find(row);
    REQUIRE(found != std::string::npos);
    CHECK(found >= at);
    CHECK(text.find(row, found + 1) == std::string::npos);
    at = found;
  };
  for (int i = 1; i <= kNumTensorMapRules; ++i) check_row(i, to_string(static_cast<TensorMapRule>(i)));
  for (int i = 1; i <= kNumTensorMapFaults; ++i) check_row(i, to_string(static_cast<TensorMapFault>(i)));
}
