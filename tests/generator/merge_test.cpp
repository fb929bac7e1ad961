// What the merge refuses, in its own words, and what it chooses. What holds of every operator is tested over
// every_fact().
#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace merge_test {

namespace {

std::string unsupported(const Fields& fields) {
  try {
    make_plan(problem_of("merge", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

std::string kernel(const Fields& fields) { return make_plan(problem_of("merge", fields)).kernel; }

}  // namespace

TEST_CASE("merge: an illegal pin or fact is refused with the rule that it breaks") {
  CHECK(unsupported({{"arch", "sm_80"}}) ==
        "merge has no kernel for arch sm_80: there is one for sm_90a, and for sm_100, sm_103, sm_120 and sm_121 with "
        "suffix a or f");
  CHECK(unsupported({{"dtype", "e4m3"}}) ==
        "merge has no kernel for dtype e4m3: there are kernels for f32, f16 and bf16");
  CHECK(unsupported({{"o_dtype", "e4m3"}}) ==
        "merge has no kernel for o_dtype e4m3: there are kernels for f32, f16 and bf16");
  CHECK(unsupported({{"head_dim_v", "100"}}) ==
        "merge head_dim_v 100, bf16 to bf16, 256 threads, 4 parts at once: rows of 200 bytes, a multiple of 16 needed: "
        "make head_dim_v a multiple of 8");
  CHECK(unsupported({{"head_dim_v", "6"}, {"dtype", "f32"}}) ==
        "merge head_dim_v 6, f32 to f32, 256 threads, 4 parts at once: rows of 24 bytes, a multiple of 16 needed: make "
        "head_dim_v a multiple of 4");
  CHECK(unsupported({{"threads", "100"}}) ==
        "merge head_dim_v 128, bf16 to bf16, 100 threads, 4 parts at once: 100 threads, a multiple of 32 needed "
        "(warp)");
  CHECK(unsupported({{"threads", "2048"}}) ==
        "merge head_dim_v 128, bf16 to bf16, 2048 threads, 4 parts at once: 2,048 threads, 32 to 1,024 allowed");
  CHECK(unsupported({{"threads", "32"}, {"head_dim_v", "512"}}) ==
        "merge head_dim_v 512, bf16 to bf16, 32 threads, 4 parts at once: 64 threads for a row, 32 in a CTA: take more "
        "threads");
  CHECK(unsupported({{"at_once", "17"}}) ==
        "merge head_dim_v 128, bf16 to bf16, 256 threads, 17 parts at once: 17 parts at once, 1 to 16 allowed");
}

TEST_CASE("merge: all parts are loaded at once as far as registers go; few rows go to small CTAs") {
  CHECK(kernel({}) == "tessera_merge_sm90a_d128_bf16_t256_p4");
  CHECK(kernel({{"parts", "2"}}) == "tessera_merge_sm90a_d128_bf16_t256_p2");
  CHECK(kernel({{"parts", "3"}}) == "tessera_merge_sm90a_d128_bf16_t256_p4");
  CHECK(kernel({{"parts", "50"}, {"o_dtype", "f32"}, {"sink", "per_head"}}) ==
        "tessera_merge_sm90a_d128_bf16_to_f32_sink_t256_p8");
  CHECK(kernel({{"batch", "8"}, {"heads_q", "32"}, {"seqlen_q", "1"}}) == "tessera_merge_sm90a_d128_bf16_t128_p4");
  CHECK(kernel({{"batch", "64"}, {"heads_q", "32"}, {"seqlen_q", "1"}}) == "tessera_merge_sm90a_d128_bf16_t256_p4");
}

}  // namespace merge_test
