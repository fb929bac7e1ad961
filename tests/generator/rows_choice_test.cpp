// Which of the row operators' candidates is chosen: threads and CTAs of a row, and how often a row is read.
#include <doctest/doctest.h>

#include <string>

#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace rows_choice_test {

TEST_CASE("rows: a thread has some 64 bytes on their way, a row of few more threads") {
  const auto kernel = [](const Fields& fields) { return make_plan(problem_of("rows", fields)).kernel; };
  CHECK(kernel({}) == "tessera_rows_sm90a_bf16_c4096_residual_store_rmsnorm_same_t256x1");
  CHECK(kernel({{"rows", "8"}}) == "tessera_rows_sm90a_bf16_c4096_residual_store_rmsnorm_same_t512x1_ctas4");
  CHECK(kernel({{"rows", "65"}}) == "tessera_rows_sm90a_bf16_c4096_residual_store_rmsnorm_same_t512x1");
  CHECK(kernel({{"columns", "131072"}}) == "tessera_rows_sm90a_bf16_c131072_residual_store_rmsnorm_same_t4096x1_ctas4");
  CHECK(kernel({{"columns", "128"}, {"chain", "rope(halves)"}}) ==
        "tessera_rows_sm90a_bf16_c128_rope_halves_same_t8x32");
  // Few rows of a gate, and some more with a residual, are shared by two CTAs.
  const auto gated = [&](const char* rows, const char* chain = "gate(silu)+bf16") {
    return kernel({{"columns", "2048"}, {"chain", chain}, {"rows", rows}});
  };
  for (const char* const rows : {"64", "256"})
    CHECK(gated(rows) == "tessera_rows_sm90a_bf16_c2048_gate_silu_bf16_t256x1_ctas2");
  CHECK(gated("257") == "tessera_rows_sm90a_bf16_c2048_gate_silu_bf16_t256x1");
  CHECK(gated("64", "gate(silu)+nvfp4").ends_with("_t256x1_ctas2"));
  CHECK(gated("64", "gate(silu)+e4m3").ends_with("_t256x1_ctas2"));
  CHECK(gated("65", "gate(silu)+nvfp4").ends_with("_t256x1"));
  CHECK(gated("64", "gate(silu)+rmsnorm+bf16").ends_with("_t256x1"));
  const auto summed = [&](const char* rows) {
    return kernel({{"columns", "7168"}, {"chain", "residual(store)+rmsnorm+bf16"}, {"rows", rows}});
  };
  for (const char* const rows : {"265", "640", "2048"})
    CHECK(summed(rows) == "tessera_rows_sm90a_bf16_c7168_residual_store_rmsnorm_bf16_t512x1_ctas2");
  CHECK(summed("264") == "tessera_rows_sm90a_bf16_c7168_residual_store_rmsnorm_bf16_t512x1");
  CHECK(summed("64") == "tessera_rows_sm90a_bf16_c7168_residual_store_rmsnorm_bf16_t1024x1_ctas8");
  CHECK(summed("2049") == "tessera_rows_sm90a_bf16_c7168_residual_store_rmsnorm_bf16_t512x1");
  // More threads than columns are no help, however few rows there are.
  CHECK(kernel({{"columns", "8"}, {"rows", "1"}, {"chain", "rmsnorm+f32"}}) ==
        "tessera_rows_sm90a_bf16_c8_rmsnorm_f32_t8x8");
  CHECK(kernel({{"columns", "24"}, {"rows", "1"}, {"chain", "softmax+f32"}}) ==
        "tessera_rows_sm90a_bf16_c24_softmax_f32_t8x8");
  // A norm alone: CTAs of one wide row.
  CHECK(kernel({{"columns", "7168"}, {"chain", "rmsnorm+bf16"}}) ==
        "tessera_rows_sm90a_bf16_c7168_rmsnorm_bf16_t128x1");
  // Of few rows all warps of a CTA have the same tile of mhc_post's product.
  CHECK(kernel({{"chain", "mhc_post(product)"}}) == "tessera_rows_sm90a_bf16_c4096_mhc_post_product_t2x128");
  CHECK(kernel({{"chain", "mhc_post(product)"}, {"rows", "64"}}) ==
        "tessera_rows_sm90a_bf16_c4096_mhc_post_product_t16x16");
  CHECK(kernel({{"chain", "mhc_post(product)"}, {"rows", "65"}}) ==
        "tessera_rows_sm90a_bf16_c4096_mhc_post_product_t2x128");
  CHECK(kernel({{"chain", "factor+factor+factor+factor+factor+factor+rmsnorm+rmsnorm+rmsnorm+rmsnorm+rmsnorm+f32"}})
            .find("_t") != std::string::npos);
}

TEST_CASE("rows: a row that is too wide is read once for each sum and once for its values") {
  const auto choice = [](const Fields& fields) {
    const Plan plan = make_plan(problem_of("rows", fields));
    return plan.kernel.substr(plan.kernel.rfind("_t", plan.kernel.find("x1"))) + ": " + plan.reason;
  };
  CHECK(choice({{"columns", "786432"}}) ==
        "_t8192x1_ctas8: 12 vectors of 8 columns a thread, 1 row a CTA; the only legal candidate");
  CHECK(choice({{"columns", "1048576"}})
            .starts_with("_t1024x1_turns32: 4 vectors of 8 columns a thread, 1 row a CTA, which reads its row twice in "
                         "32 turns; the best of "));
  CHECK(choice({{"columns", "1048576"}, {"chain", "factor"}})
            .starts_with("_t1024x1_turns32: 4 vectors of 8 columns a thread, 1 row a CTA, which reads its row once in "
                         "32 turns; the best of "));
  CHECK(choice({{"columns", "1048576"}, {"chain", "softmax+e4m3(row)"}, {"rows", "1"}})
            .starts_with("_t8192x1_ctas8_turns4: 4 vectors of 8 columns a thread, 1 row a CTA, which reads its row 4 "
                         "times in 4 turns; the best of "));
}

}  // namespace rows_choice_test
