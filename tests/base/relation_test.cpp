#include "base/relation.h"

#include <doctest/doctest.h>

#include <limits>

using namespace tessera;

TEST_CASE("relation: what holds of two values") {
  CHECK(holds(3, Relation::at_least, 3));
  CHECK_FALSE(holds(2, Relation::at_least, 3));
  CHECK(holds(3, Relation::at_most, 3));
  CHECK_FALSE(holds(4, Relation::at_most, 3));
  CHECK(holds(3, Relation::equal, 3));
  CHECK_FALSE(holds(4, Relation::equal, 3));
  CHECK(holds(-6, Relation::multiple_of, 3));
  CHECK_FALSE(holds(7, Relation::multiple_of, 3));
}

TEST_CASE("relation: multiples of 0 and -1") {
  CHECK_FALSE(holds(0, Relation::multiple_of, 0));
  // The quotient of the least number and -1 does not exist: a processor traps.
  CHECK(holds(std::numeric_limits<std::int64_t>::min(), Relation::multiple_of, -1));
}
