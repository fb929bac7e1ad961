// What moe_route refuses, in its own words, and what follows from its facts. What holds of every operator is tested
// over every_fact().
#include <doctest/doctest.h>

#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace moe_route_test {

namespace {

std::string unsupported(const Fields& fields) {
  try {
    make_plan(problem_of("moe_route", fields));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "planned";
}

std::vector<std::string> buffers(const Fields& fields) {
  std::vector<std::string> names;
  for (const BufferSpec& buffer : make_plan(problem_of("moe_route", fields)).launch.buffers)
    names.push_back(buffer.name);
  return names;
}

}  // namespace

TEST_CASE("moe_route: an illegal fact is refused with the rule that it breaks") {
  CHECK(unsupported({{"experts", "520"}}).ends_with("520 experts: 8 to 512"));
  CHECK(unsupported({{"experts", "4"}, {"top_k", "2"}}).ends_with("4 experts: 8 to 512"));
  CHECK(unsupported({{"experts", "60"}})
            .ends_with("60 experts, a multiple of 8 needed: pad logits with columns of -inf"));
  CHECK(unsupported({{"top_k", "17"}}).ends_with("top_k 17: 1 to 16"));
  CHECK(unsupported({{"experts", "8"}, {"top_k", "9"}}).ends_with("top_k 9 of 8 experts"));
  CHECK(unsupported({{"expert_groups", "64"}}).ends_with("64 groups of experts: 1 to 32"));
  CHECK(unsupported({{"expert_groups", "7"}}).ends_with("256 experts in 7 groups: groups of one size needed"));
  CHECK(unsupported({{"experts", "384"}, {"expert_groups", "8"}})
            .ends_with("groups of 48 experts: 8 times a power of two up to 32 needed"));
  CHECK(unsupported({{"expert_groups", "8"}, {"topk_groups", "9"}})
            .ends_with("topk_groups 9: 1 to the 8 that there are"));
  CHECK(unsupported({{"expert_groups", "32"}, {"top_k", "9"}})
            .ends_with("top_k 9 of the 8 experts of topk_groups groups"));
  CHECK(unsupported({{"alignment", "4097"}}).ends_with("alignment 4,097: 1 to 4,096"));
  CHECK(unsupported({{"grouping", "masked"}, {"alignment", "128"}})
            .ends_with("alignment 128 with grouping masked: only contiguous groups are padded"));
  CHECK(unsupported({{"dtype", "e4m3"}}).ends_with("logits of e4m3: f32, f16 or bf16 needed"));
}

TEST_CASE("moe_route: the lists are those of the grouping") {
  CHECK(buffers({}) == std::vector<std::string>{"logits", "topk_experts", "topk_weights", "groups", "counts", "indices",
                                                "row_weights", "slots"});
  CHECK(buffers({{"grouping", "masked"}, {"bias", "column"}}) ==
        std::vector<std::string>{"logits", "bias", "topk_experts", "topk_weights", "groups", "indices", "row_weights",
                                 "slots"});
  CHECK(buffers({{"grouping", "none"}}) == std::vector<std::string>{"logits", "topk_experts", "topk_weights"});
  CHECK(make_plan(problem_of("moe_route", {{"grouping", "none"}})).launch.steps.size() == 1);
  CHECK(make_plan(problem_of("moe_route")).launch.steps.size() == 2);
}

}  // namespace moe_route_test
