// What quantize_blocks refuses, in its own words, and its launch. What holds of every operator is tested over
// every_fact().
#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace quantize_blocks_test {

namespace {

std::string unsupported(const Fields& fields) {
  try {
    make_plan(problem_of("quantize_blocks", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

}  // namespace

TEST_CASE("quantize_blocks: an illegal fact is refused with the rule that it breaks") {
  CHECK(unsupported({{"arch", "sm_80"}}) ==
        "quantize_blocks has no kernel for arch sm_80: there is one for sm_90a, and for sm_100, sm_103, sm_120 and "
        "sm_121 with suffix a or f");
  CHECK(unsupported({{"dtype", "e4m3"}}) ==
        "quantize_blocks e4m3, factors for 128x128: e4m3 elements of 1 bytes: f32, f16 or bf16 needed");
  CHECK(unsupported({{"scale_block", "none"}}) ==
        "quantize_blocks bf16, factors for none: scale_block none: 128x128 or 1x128 needed");
}

TEST_CASE("quantize_blocks: a name for each kernel; shared memory for squares alone") {
  const Plan squares = make_plan(problem_of("quantize_blocks", {{"arch", "sm_100a"}, {"dtype", "f32"}}));
  CHECK(squares.kernel == "tessera_quantize_blocks_sm100a_f32_128x128");
  CHECK(squares.smem_bytes == 32);
  const Plan rows = make_plan(problem_of("quantize_blocks", {{"scale_block", "1x128"}, {"scale_values", "pow2"}}));
  CHECK(rows.kernel == "tessera_quantize_blocks_sm90a_bf16_1x128_pow2");
  CHECK(rows.smem_bytes == 0);
}

}  // namespace quantize_blocks_test
