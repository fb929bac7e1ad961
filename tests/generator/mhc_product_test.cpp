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
  CHECK(unsupported({{"arch", "sm_120a"}, {"warps_m", "1"}, {"warps_k", "16"}})
            .ends_with("shared memory has room for 0 stages, and 16 warps take them in turn: take fewer warps"));
  CHECK(unsupported({{"n", "64"}, {"arch", "sm_120a"}, {"warps_m", "4"}, {"warps_k", "2"}, {"ctas", "8"}})
            .ends_with("shared memory has room for 0 stages, and 2 warps take them in turn: take fewer warps"));
}

TEST_CASE("mhc_product: few rows get parts of k") {
  CHECK(kernel({}) == "tessera_mhc_product_sm90a_n24_s1_w2x4_c2_q12");
  CHECK(kernel({{"m", "137"}, {"splits", "16"}}) == "tessera_mhc_product_sm90a_n24_s16_w1x4_c2_q8");
  CHECK(kernel({{"m", "1"}}) == "tessera_mhc_product_sm90a_n24_s1_w1x4_c8_q16");
  CHECK(kernel({{"m", "8192"}, {"splits", "16"}}) == "tessera_mhc_product_sm90a_n24_s16_w2x4_c1_q8");
}

TEST_CASE("mhc_product: a multiprocessor has one CTA with a long ring, or two where launches are short") {
  CHECK(kernel({{"m", "8192"}, {"k", "7168"}}) == "tessera_mhc_product_sm90a_n24_s1_w2x4_c1_q16");
  CHECK(kernel({{"m", "8192"}, {"arch", "sm_100a"}}) == "tessera_mhc_product_sm100a_n24_s1_w2x4_c1_q16");
  CHECK(kernel({{"m", "8192"}, {"arch", "sm_120a"}}) == "tessera_mhc_product_sm120a_n24_s1_w2x4_c1_q4");
  CHECK(kernel({{"m", "16384"}, {"k", "7168"}}) == "tessera_mhc_product_sm90a_n24_s1_w4x4_c1_q8");
  CHECK(kernel({{"m", "16384"}, {"k", "7168"}, {"n", "64"}}) == "tessera_mhc_product_sm90a_n64_s1_w2x4_c1_q4");
  CHECK(kernel({{"m", "4096"}, {"splits", "4"}}) == "tessera_mhc_product_sm90a_n24_s4_w4x4_c1_q8");
  CHECK(kernel({{"m", "1024"}, {"k", "7168"}}) == "tessera_mhc_product_sm90a_n24_s1_w2x4_c8_q4");
  CHECK(kernel({{"m", "1024"}, {"k", "28672"}}) == "tessera_mhc_product_sm90a_n24_s1_w2x4_c8_q12");
  CHECK(kernel({{"m", "1"}, {"k", "7168"}, {"splits", "16"}}) == "tessera_mhc_product_sm90a_n24_s16_w1x4_c8_q8");
}

// A warp that takes every warps_k-th chunk sees all phases of a slot only then.
TEST_CASE("mhc_product: a ring has a multiple of the slots that warps take in turn") {
  for (const char* const warps_k : {"1", "2", "3", "4", "5", "8"})
    for (const char* const ctas : {"1", "2", "8"})
      for (const char* const arch : {"sm_90a", "sm_120a"}) {
        const Plan plan = make_plan(problem_of(
            "mhc_product", {{"warps_m", "1"}, {"warps_k", warps_k}, {"ctas", ctas}, {"arch", arch}, {"m", "64"}}));
        const std::string stages = plan.kernel.substr(plan.kernel.rfind('q') + 1);
        CHECK(std::stoi(stages) >= std::stoi(warps_k));
        CHECK(std::stoi(stages) % std::stoi(warps_k) == 0);
      }
}

}  // namespace mhc_product_test
