// What attention_quantize refuses, in its own words, and its launch. What holds of every operator is tested over
// every_fact().
#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace attention_quantize_test {

namespace {

std::string unsupported(const Fields& fields) {
  try {
    make_plan(problem_of("attention_quantize", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

}  // namespace

TEST_CASE("attention_quantize: an illegal fact is refused with the rule that it breaks") {
  CHECK(unsupported({{"arch", "sm_80"}}) ==
        "attention_quantize has no kernel for arch sm_80: there is one for sm_90a, and for sm_100, sm_103, sm_120 and "
        "sm_121 with suffix a or f");
  CHECK(unsupported({{"dtype", "f32"}}) == "attention_quantize head_dim 128, f32: f32 elements: bf16 or f16 needed");
  CHECK(unsupported({{"head_dim", "96"}}) ==
        "attention_quantize head_dim 96, bf16: head_dim 96, 64 or 128 needed (one or two steps of 64 products)");
  CHECK(unsupported({{"kv_layout", "paged"}, {"page_size", "5"}}) ==
        "attention_quantize head_dim 128, bf16: page_size 5 with kv_layout paged: pages have 1, 8, 16, 32, 64, 128 or "
        "256 keys, and nothing else has pages");
  CHECK(unsupported({{"page_size", "16"}}) ==
        "attention_quantize head_dim 128, bf16: page_size 16 with kv_layout dense: pages have 1, 8, 16, 32, 64, 128 or "
        "256 keys, and nothing else has pages");
  CHECK(unsupported({{"seqused", "qk"}, {"q_layout", "ragged"}}) ==
        "attention_quantize head_dim 128, bf16: seqused qk with q_layout ragged: cu_seqlens_q says how many queries a "
        "sequence has; take k");
}

TEST_CASE("attention_quantize: three steps, of means, of the keys' mean, of what is quantised") {
  const Plan plan = make_plan(problem_of("attention_quantize", {{"arch", "sm_120a"}, {"head_dim", "64"}}));
  CHECK(plan.kernel == "tessera_attention_quantize_sm120a_d64_bf16");
  CHECK(
      make_plan(problem_of("attention_quantize", {{"q_layout", "ragged"}, {"kv_layout", "paged"}, {"page_size", "16"}}))
          .kernel == "tessera_attention_quantize_sm90a_d128_bf16_ragged_paged16");
  REQUIRE(plan.launch.steps.size() == 3);
  CHECK(plan.launch.steps[0].entry == plan.kernel + "_means");
  CHECK(plan.launch.steps[1].entry == plan.kernel + "_mean_of_keys");
  CHECK(plan.launch.steps[2].entry == plan.kernel);
}

}  // namespace attention_quantize_test
