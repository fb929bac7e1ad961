// Products of groups on sm_90a: a pairwise cover of types, groups and lists, tiles, results, layouts and slots, on
// random groups, some empty, some a row beside a tile's. CI runs a sample of it, scripts/nightly (TESSERA_ALL_CASES=1)
// all with four seeds.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/error.h"
#include "tests/emulated/gemm_run.h"
#include "tests/support/pairwise.h"
#include "tests/support/sample.h"

namespace tessera::gemm_groups_cover_test {
namespace {

using namespace gemm_run;
Fields tile(const char* m, const char* n, const char* cluster_m, const char* cluster_n, const char* schedule) {
  return {
      {"tile_m", m}, {"tile_n", n}, {"cluster_m", cluster_m}, {"cluster_n", cluster_n}, {"kernel_schedule", schedule}};
}

std::vector<std::vector<Fields>> dimensions() {
  return {{{{"dtype", "bf16"}},
           {{"dtype", "f16"}},
           {{"dtype", "e4m3"}, {"b_dtype", "e5m2"}},
           {{"dtype", "e5m2"}, {"accumulation", "fast"}},
           {{"dtype", "e4m3"}, {"a_scale_block", "1x128"}, {"b_scale_block", "128x128"}},
           {{"dtype", "e4m3"}, {"a_scale_block", "1x128"}, {"b_scale_block", "1x128"}}},
          {{{"grouping", "contiguous"}},
           {{"grouping", "masked"}},
           {{"grouping", "contiguous"}, {"gather", "rows"}},
           {{"grouping", "masked"}, {"gather", "rows"}}},
          {tile("64", "64", "1", "1", "cooperative"), tile("128", "96", "2", "1", "cooperative"),
           tile("128", "64", "1", "1", "ping_pong"), tile("64", "128", "1", "2", "ping_pong"),
           tile("128", "128", "2", "1", "ping_pong"), tile("192", "80", "1", "1", "cooperative"),
           tile("256", "96", "1", "1", "cooperative"), tile("128", "256", "2", "1", "cooperative"),
           tile("128", "128", "1", "1", "cooperative")},
          {{{"d_dtype", "bf16"}},
           {{"d_dtype", "f32"}, {"c", "matrix"}},
           {{"d_dtype", "f16"}, {"bias", "column"}, {"activation", "relu"}},
           {{"d_dtype", "e4m3"}},
           {{"gate", "interleaved"}, {"interleave", "8"}},
           {{"d_dtype", "e4m3"}, {"d_scale_block", "1x128"}},
           {{"d_dtype", "e4m3"},
            {"d_scale_block", "1x128"},
            {"d_scale_values", "pow2"},
            {"gate", "interleaved"},
            {"interleave", "8"}}},
          {{}, {{"b_layout", "mn"}}, {{"a_layout", "mn"}, {"b_layout", "mn"}}},
          {{{"stages", "2"}}, {{"stages", "3"}}}};
}

struct Choice {
  std::vector<std::size_t> values;  ///< one for each dimension
  Fields fields;
};

/// Every choice that a kernel exists for.
std::vector<Choice> legal_choices() {
  const std::vector<std::vector<Fields>> all = dimensions();
  std::vector<Choice> choices;
  std::vector<std::size_t> values(all.size(), 0);
  while (true) {
    Choice choice{values, {}};
    for (std::size_t d = 0; d < all.size(); ++d)
      choice.fields.insert(choice.fields.end(), all[d][values[d]].begin(), all[d][values[d]].end());
    try {
      planned_kernel(problem_of({"", choice.fields, {}}));
      choices.push_back(std::move(choice));
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::unsupported);
    }
    std::size_t d = 0;
    while (d < values.size() && ++values[d] == all[d].size()) values[d++] = 0;
    if (d == values.size()) return choices;
  }
}

/// Groups, extents and pitches that the kernel takes.
Case case_of(const Choice& choice, std::uint64_t seed) {
  Case test{"", choice.fields, {}};
  std::uint64_t mixed = seed;
  for (const std::size_t value : choice.values) mixed = mixed * 131 + value + 7;
  const reference::CounterRandom random(mixed, 1);
  const Gemm problem = problem_of(test);
  const std::int64_t tile_m = *problem.tile_m, groups = random.integer(0, 1, 5);
  std::int64_t sum = 0, most = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto at = static_cast<std::uint64_t>(g);
    const std::int64_t kind = random.integer(10 + at, 0, 5);
    const std::int64_t rows = kind == 0   ? 0
                              : kind == 1 ? tile_m + random.integer(20 + at, -1, 1)
                                          : random.integer(20 + at, 1, kind == 2 ? 200 : 40);
    test.group_rows.push_back(rows);
    sum += rows;
    most = std::max(most, rows);
  }
  const std::int64_t more = random.integer(1, 0, 70);
  auto& sizes = test.sizes;
  sizes["l"] = groups;
  sizes["m"] = std::max<std::int64_t>((problem.grouping == Grouping::contiguous ? sum : most) + more, 1);
  sizes["n"] = random.integer(2, 0, 1) == 0 ? random.integer(3, 1, 200) : 16 * random.integer(3, 1, 12);
  if (problem.gate != Gate::none) sizes["n"] = round_up(sizes["n"], 2 * *problem.interleave);
  sizes["k"] = random.integer(4, 1, 400);
  const std::int64_t pitch = round_up(sizes["k"], 64);
  sizes["lda"] = problem.a_layout == Layout::mn_major ? round_up(sizes["m"], 64) : pitch;
  sizes["ldb"] = problem.b_layout == Layout::mn_major ? round_up(sizes["n"], 64) : pitch;
  if (problem.gather != Gather::none) sizes["a_rows"] = random.integer(5, 1, 150);
  sizes["num_sms"] = random.integer(6, 2, 5);
  const bool is_integer = problem.a_scale_block == ScaleBlock::none && dtype_bytes(problem.dtype) == 2;
  test.fill = is_integer && random.integer(7, 0, 1) == 0 ? Fill::integer : Fill::standard;
  return test;
}

TEST_CASE("products of groups: a pairwise cover of types, groups, tiles, results, layouts and slots") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const std::vector<Choice> choices = legal_choices();
  CHECK(choices.size() > 500);
  std::vector<std::vector<std::size_t>> values;
  for (const Choice& choice : choices) values.push_back(choice.values);
  const std::vector<std::size_t> cover = testing::pairwise(values);
  testing::Sample sample(12);
  std::size_t kernels = 0;
  for (const std::size_t chosen : cover) {
    if (!sample.takes()) continue;
    ++kernels;
    for (std::uint64_t seed = 1; seed <= (testing::takes_all_cases() ? 4U : 1U); ++seed) {
      const Case test = case_of(choices[chosen], seed);
      std::string text;
      for (const auto& [key, value] : test.fields) text += fmt::format("{}={} ", key, value);
      for (const auto& [name, value] : test.sizes) text += fmt::format("{} {} ", name, value);
      text += fmt::format("groups of {} rows", fmt::join(test.group_rows, ", "));
      CAPTURE(text);
      check(test, *compiler, {EmulatorSchedule::fair, EmulatorSchedule::adversarial});
    }
  }
  MESSAGE(kernels << " of " << cover.size() << " kernels");
}

}  // namespace
}  // namespace tessera::gemm_groups_cover_test
