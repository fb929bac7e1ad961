// What topk refuses, in its own words, what follows from its facts, and which CTAs hints choose. What holds of every
// operator is tested over every_fact().
#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace topk_test {

namespace {

std::string unsupported(const Fields& fields) {
  try {
    make_plan(problem_of("topk", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

std::vector<std::string> buffers(const Fields& fields) {
  std::vector<std::string> names;
  for (const BufferSpec& buffer : make_plan(problem_of("topk", fields)).launch.buffers) names.push_back(buffer.name);
  return names;
}

}  // namespace

TEST_CASE("topk: an illegal fact or pin is refused with the rule that it breaks") {
  CHECK(unsupported({{"k", "2049"}}).ends_with("k 2,049: 1 to 2,048"));
  CHECK(unsupported({{"threads", "256"}}).ends_with("256 threads: 512 or 1,024"));
  CHECK(unsupported({{"ctas", "3"}}).ends_with("3 CTAs of a cluster: a power of two up to 16 needed"));
  CHECK(unsupported({{"ctas", "32"}}).ends_with("32 CTAs of a cluster: a power of two up to 16 needed"));
  CHECK(unsupported({{"dtype", "e4m3"}}).ends_with("scores of e4m3: f32, f16 or bf16 needed"));
  CHECK(unsupported({{"arch", "sm_120a"}, {"k", "2048"}, {"threads", "1024"}, {"order", "value"}})
            .find("keys with their indices, 10,240 needed: take fewer threads") != std::string::npos);
}

TEST_CASE("topk: buffers are those of the facts") {
  CHECK(buffers({}) == std::vector<std::string>{"scores", "indices"});
  CHECK(buffers({{"range", "lengths"}, {"values", "on"}}) ==
        std::vector<std::string>{"scores", "lengths", "indices", "values"});
  CHECK(buffers({{"range", "starts"}, {"index_form", "pages"}}) ==
        std::vector<std::string>{"scores", "lengths", "row_starts", "block_table", "row_sequences", "indices"});
  CHECK(buffers({{"index_form", "offsets"}}) == std::vector<std::string>{"scores", "offsets", "indices"});
}

TEST_CASE("topk: few long rows are shared by clusters, many are not; every target has kernels for every k") {
  const auto ctas = [](const char* m, const char* n) {
    return make_plan(problem_of("topk", {{"m", m}, {"n", n}})).number("ctas");
  };
  CHECK(ctas("1", "131072") >= 8);
  CHECK(ctas("1", "1048576") >= 8);
  CHECK(ctas("64", "131072") == 2);
  CHECK(ctas("256", "131072") == 1);
  CHECK(ctas("256", "4096") == 1);
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"})
    for (const char* const k : {"1", "2048"})
      for (const char* const order : {"index", "value"})
        for (const char* const dtype : {"f32", "bf16"}) {
          const Plan plan =
              make_plan(problem_of("topk", {{"arch", arch}, {"k", k}, {"order", order}, {"dtype", dtype}}));
          if (plan.arch.compute_major() == 12) CHECK(plan.smem_bytes <= 101376);
        }
}

}  // namespace topk_test
