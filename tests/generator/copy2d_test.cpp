// What the copy refuses, in its own words. What holds of every operator is tested over every_fact().
#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace copy2d_test {

namespace {

std::string unsupported(const Fields& fields) {
  try {
    make_plan(problem_of("copy2d", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

}  // namespace

TEST_CASE("copy2d: an illegal pin or fact is refused with the rule that it breaks") {
  CHECK(unsupported({{"arch", "sm_90"}}) == "copy2d has no kernel for arch sm_90: there is one for sm_90a");
  CHECK(unsupported({{"rank", "6"}}) == "copy2d rank 6, f32, tile 32x64x2x2x2, 128B: rank 6, 1 to 5 allowed");
  CHECK(unsupported({{"tile_inner", "6"}}) ==
        "copy2d rank 2, f32, tile 6x64, 128B: rows of 24 bytes, a multiple of 16 needed: make tile_inner a multiple of "
        "4");
  CHECK(unsupported({{"tile_inner", "300"}}) ==
        "copy2d rank 2, f32, tile 300x64, 128B: a tile extent of 300 elements, 1 to 256 allowed");
  CHECK(unsupported({{"tile_inner", "64"}, {"swizzle", "128B"}}) ==
        "copy2d rank 2, f32, tile 64x64, 128B: rows of 256 bytes, 128 allowed by the 128B swizzle: make tile_inner at "
        "most 32, or the swizzle none");
  CHECK(unsupported({{"tile_outer", "2147483647"}}) ==
        "copy2d rank 2, f32, tile 32x2147483647, 128B: a tile extent of 2,147,483,647 elements, 1 to 256 allowed");
  CHECK(unsupported({{"tile_outer", "8"}, {"rank", "1"}}) ==
        "copy2d rank 1, f32, tile 32, 128B: a tile extent of 8 along a dimension that rank 1 does not have: leave "
        "tile_outer to the planner");
  CHECK(unsupported({{"tile_inner", "256"}, {"tile_outer", "256"}, {"swizzle", "none"}}) ==
        "copy2d rank 2, f32, tile 256x256, none: 262,152 bytes of shared memory, 232,448 allowed: take a smaller tile");
}

TEST_CASE("copy2d: a tile outside the table is tried all the same") {
  CHECK(make_plan(problem_of("copy2d", {{"tile_inner", "12"}, {"tile_outer", "7"}})).kernel ==
        "tessera_copy2d_sm90a_r2_f32_12x7_sw128");
}

}  // namespace copy2d_test
