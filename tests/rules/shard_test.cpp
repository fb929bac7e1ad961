// The parts of a shared test are disjoint and together everything; a part that does not parse is refused.
#include "tests/support/shard.h"

#include <doctest/doctest.h>

#include <string>

namespace tessera::testing {
namespace {

TEST_CASE("shard: every case belongs to one part") {
  for (std::size_t number = 0; number < 50; ++number) {
    int takers = 0;
    for (const char* const text : {"0/7", "1/7", "2/7", "3/7", "4/7", "5/7", "6/7"})
      takers += Shard::parse(text).takes(number) ? 1 : 0;
    CHECK(takers == 1);
  }
  CHECK(Shard{}.takes(3));
  CHECK(Shard::parse("0/1").takes(3));
  CHECK(Shard::parse("11/15").takes(26));
  CHECK_FALSE(Shard::parse("11/15").takes(25));
}

TEST_CASE("shard: what does not parse is refused") {
  for (const std::string text : {"", "3", "/4", "1/", "4/4", "0/0", "-1/4", "1/4x", "a/4", "1 /4", "1//4"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(
        Shard::parse(text),
        doctest::Contains(("\"" + text + "\": must be i/n with i from 0 to n - 1, as in 0/15").c_str()), Error);
  }
}

}  // namespace
}  // namespace tessera::testing
