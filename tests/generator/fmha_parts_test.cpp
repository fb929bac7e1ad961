// Parts of keys with a size: the kernel and the launch follow from what a sequence is, and from nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bound_expression.h"
#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace fmha_parts_test {

namespace {

/// Sizes of a launch, by name; the others are 0.
struct Bound {
  std::vector<std::string> names;
  std::vector<std::int64_t> values;

  Bound(const LaunchPlan& launch, const std::map<std::string, std::int64_t>& given) {
    for (const SizeSpec& size : launch.sizes) {
      const auto found = given.find(size.name);
      const bool is_given = found != given.end();
      values.push_back(is_given ? found->second : size.default_value ? (*this)(*size.default_value) : 0);
      names.push_back(size.name);
    }
  }
  std::int64_t operator()(const Expression& expression) const {
    return BoundExpression(expression, names).evaluate(values);
  }
};

std::map<std::string, std::int64_t> sizes_of(std::int64_t batch, std::int64_t seqlen_q, std::int64_t seqlen_k) {
  return {{"batch", batch},          {"heads_q", 64},        {"heads_kv", 8},
          {"seqlen_q", seqlen_q},    {"seqlen_k", seqlen_k}, {"num_sms", 132},
          {"window_size_left", 300}, {"tokens_k", 100000},   {"window_size_right", 0}};
}

}  // namespace

TEST_CASE("parts with a size: batch and lengths have no say in the kernel") {
  for (const char* const arch : {"sm_90a", "sm_100a"})
    for (const bool is_ragged : {false, true}) {
      if (is_ragged && std::string_view(arch) == "sm_100a") continue;
      Fmha problem{.seqused = UsedLengths::k, .split_size = 2048, .heads_q = 64, .heads_kv = 8, .seqlen_q = 1};
      problem.arch = Arch::parse(arch);
      if (is_ragged) problem.q_layout = QueryLayout::ragged;
      const std::string kernel = make_plan(problem).kernel;
      for (const Hint batch : {Hint{1}, Hint{7}, Hint{300}})
        for (const Hint keys : {Hint{100}, Hint{1000}, Hint{100000}}) {
          problem.batch = batch;
          problem.seqlen_k = keys;
          if (is_ragged) problem.seqlen_q = 3 * batch;
          CHECK(make_plan(problem).kernel == kernel);
        }
      CHECK(kernel.find("split_size_2048") != std::string::npos);
      CHECK(kernel.find("_pack8") != std::string::npos);
    }
}

TEST_CASE("parts with a size: every head_dim has a kernel whose tiles divide usual sizes") {
  for (const fmha::HeadDims& dims : fmha::kHeadDims)
    for (const Hint queries : {Hint{1}, kUnknownHint}) {
      const Fmha problem{
          .head_dim = dims.head_dim, .head_dim_v = dims.head_dim_v, .split_size = 1024, .seqlen_q = queries};
      const Plan plan = make_plan(problem);
      CHECK(1024 % plan.number("tile_n") == 0);
      CHECK(plan.field("split_kv") == "dealt");
    }
}

TEST_CASE("parts with a size: a slot for each part that a tile may have") {
  Fmha problem{.seqused = UsedLengths::k, .split_size = 2048, .heads_q = 64, .heads_kv = 8, .seqlen_q = 1};
  const LaunchPlan launch = make_plan(problem).launch;
  const Bound bound(launch, sizes_of(3, 1, 5000));
  CHECK(bound(launch.workspace.bytes) == 3 * 8 * 3 * 8 * (128 + 2) * 4);
  CHECK(bound(launch.steps.at(0).grid[0]) == 3 * 8 * 3);
  CHECK(bound(launch.steps.at(1).grid[0]) == 3 * 8 * 2);

  problem.window = Window::sliding;
  problem.mask = Mask::causal;
  problem.split_size = 64;
  const LaunchPlan windowed = make_plan(problem).launch;
  // 8 queries of 8 heads in 64 rows see 308 keys, which reach into 6 blocks.
  CHECK(Bound(windowed, sizes_of(3, 1, 5000))(windowed.workspace.bytes) == 3 * 8 * 6 * 8 * (128 + 2) * 4);

  problem = {
      .seqused = UsedLengths::k, .q_layout = QueryLayout::ragged, .split_size = 2048, .tile_m = 64, .pack_gqa = 8};
  const LaunchPlan ragged = make_plan(problem).launch;
  CHECK(Bound(ragged, sizes_of(3, 20, 5000))(ragged.workspace.bytes) == (3 + 3) * 8 * 3 * 64 * (128 + 2) * 4);

  problem = {.split_size = 2048, .split_kv = SplitKv::on};
  for (const char* const arch : {"sm_90a", "sm_100a"}) {
    problem.arch = Arch::parse(arch);
    const LaunchPlan split = make_plan(problem).launch;
    const Bound of_split(split, sizes_of(2, 1, 5000));
    CHECK(of_split(Expression::parse("num_splits")) == 3);
    CHECK(of_split(split.workspace.bytes) == 3 * 2 * 64 * (128 + 2) * 4);
    const auto is_of_splits = [](const DomainRule& rule) {
      return rule.message == "num_splits must be as many parts of 2048 keys as a query tile may have";
    };
    CHECK(std::count_if(split.domain.begin(), split.domain.end(), is_of_splits) == 1);
  }
}

TEST_CASE("parts with a size: what they do not go with is said") {
  const auto refused = [](const Fmha& problem, const char* message) {
    CHECK_THROWS_WITH(make_plan(problem), doctest::Contains(message));
  };
  refused({.split_size = 2048, .split_kv = SplitKv::off}, "split_size 2048 with split_kv off: take dealt");
  refused({.split_size = 2048, .tile_m = 128, .tile_n = 96}, "split_size 2,048, a multiple of 96 needed (tile_n)");
  refused({.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on, .split_size = 2048},
          "fmha has no kernel for split_size 2048 with v_is_k");
  Fmha of_blackwell{.split_size = 2048, .split_kv = SplitKv::off};
  of_blackwell.arch = Arch::parse("sm_100a");
  refused(of_blackwell, "split_size 2048 with split_kv off: take on");
  of_blackwell.split_kv.reset();
  of_blackwell.kv_pools = KvPools::sparse_window;
  refused(of_blackwell, "split_size 2048 with kv_pools sparse_window: a query's list is not split: take 0");
}

}  // namespace fmha_parts_test
