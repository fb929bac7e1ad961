// What mhc_product refuses, in its own words, and what it chooses. What holds of every operator is tested over
// every_fact().
#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace mhc_product_test {

namespace {

std::string unsupported(const Fields& fields) {
  try {
    make_plan(problem_of("mhc_product", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

std::string kernel(const Fields& fields) { return make_plan(problem_of("mhc_product", fields)).kernel; }

}  // namespace

TEST_CASE("mhc_product: an illegal pin or fact is refused with the rule that it breaks") {
  CHECK(unsupported({{"n", "72"}}).ends_with("n of 72: 8 to 64"));
  CHECK(unsupported({{"n", "20"}}).ends_with("n of 20, a multiple of 8 needed: pad b with rows of zeros"));
  CHECK(unsupported({{"splits", "65"}}).ends_with("65 splits: 1 to 64"));
  CHECK(unsupported({{"ctas", "3"}}).ends_with("3 CTAs of a cluster: a power of two up to 8 needed"));
  CHECK(unsupported({{"warps_m", "4"}, {"warps_k", "5"}}).ends_with("20 warps in a CTA: 1 to 16"));
  CHECK(unsupported({{"warps_m", "1"}, {"warps_k", "8"}})
            .ends_with("8 warps along k: they share 4 steps of a chunk, so 1, 2 or 4"));
  CHECK(unsupported({{"n", "64"}, {"warps_m", "4"}, {"warps_k", "2"}, {"ctas", "8"}})
            .ends_with("106,240 bytes of shared memory, 101,376 available: take fewer warps"));
}

TEST_CASE("mhc_product: few rows get parts of k") {
  CHECK(kernel({}) == "tessera_mhc_product_sm90a_n24_s1_w2x4_c2");
  CHECK(kernel({{"m", "4096"}, {"splits", "4"}}) == "tessera_mhc_product_sm90a_n24_s4_w2x4_c1");
  CHECK(kernel({{"m", "8192"}, {"splits", "16"}}) == "tessera_mhc_product_sm90a_n24_s16_w4x2_c1");
  CHECK(kernel({{"m", "137"}, {"splits", "16"}}) == "tessera_mhc_product_sm90a_n24_s16_w1x4_c2");
  CHECK(kernel({{"m", "1"}}) == "tessera_mhc_product_sm90a_n24_s1_w1x4_c8");
}

}  // namespace mhc_product_test
