// The rules on cases that a driver judged (tensor_map_cases.inc, written by tests/gpu_fuzz), and on random maps: the
// fast verdict and the messages decide the same.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <iterator>

#include "tests/gpu_fuzz/tensor_map_generator.h"

using namespace tessera;  // NOLINT: a test of one header

namespace {

const TensorMapCase kCases[] = {
#include "tests/base/tensor_map_cases.inc"
};

// Near a legal map of a packed type.
RawMap packed(RawMap raw, std::uint64_t i) {
  raw.type = 13 + static_cast<int>(i / 2 % 3);
  raw.fill = 0;
  raw.address &= ~std::uint64_t{31};
  for (std::uint64_t& stride : raw.strides) stride &= ~std::uint64_t{31};
  raw.box[0] = i % 11 == 0 ? 96 : 128;
  raw.dims[0] = i % 13 == 0 ? 193 : 384;
  raw.swizzle = static_cast<int>(i / 6 % 7);
  for (std::uint32_t k = 1; k < kRawEntries; ++k) raw.box[k] %= 8;
  return raw;
}

}  // namespace

TEST_CASE("rules: messages and fast verdict agree on random maps") {
  std::array<int, kNumTensorMapRules + 1> fired{};
  for (const int compute_major : {9, 10}) {
    const TensorMapTarget target{compute_major};
    for (std::uint64_t i = 0; i < 200'000; ++i) {
      const RawMap raw = compute_major == 10 && i % 2 == 0 ? packed(generate(7, i), i) : generate(7, i);
      const ResolvedTensorMap map = resolved(raw);
      const TensorMapRule first = first_broken_rule(map, target);
      ++fired[static_cast<std::size_t>(first)];
      if (compute_major == 9 && strategy_of(i) == Strategy::legal && first != TensorMapRule::none)
        FAIL(initializer(raw));
      if (i % 4 != 0) continue;  // messages take a thousand times as long
      const std::vector<TensorMapViolation> all = broken_rules(map, "m", target);
      if (first != (all.empty() ? TensorMapRule::none : all.front().rule)) FAIL(initializer(raw));
      for (std::size_t k = 1; k < all.size(); ++k)
        if (all[k - 1].rule > all[k].rule) FAIL(initializer(raw));
    }
  }
  for (std::size_t rule = 0; rule < fired.size(); ++rule) {
    INFO(rule);
    const TensorMapRule r = static_cast<TensorMapRule>(rule);
    if (r == TensorMapRule::count)
      CHECK(fired[rule] == 0);
    else
      CHECK(fired[rule] > 0);
  }
}

TEST_CASE("rules: the driver's verdict on every case of the table") {
  std::array<int, kNumTensorMapRules + 1> decided{};  // cases that break this rule and no other
  int accepted = 0;
  for (const TensorMapCase& entry : kCases) {
    const TensorMapRule rule = verdict(entry.arguments, {});
    INFO(initializer(entry.arguments));
    CHECK(static_cast<int>(rule) == entry.rule);
    CHECK((rule == TensorMapRule::none) == (entry.driver_result == 0));
    if (rule == TensorMapRule::none) ++accepted;
    if (rule == TensorMapRule::none || rule == TensorMapRule::count) continue;
    const std::vector<TensorMapViolation> all = broken_rules(resolved(entry.arguments), "m");
    if (all.front().rule == all.back().rule) ++decided[static_cast<std::size_t>(rule)];
  }
  CHECK(accepted > 400);
  for (int rule = 1; rule <= 19; ++rule) {
    INFO(rule);
    CHECK(decided[static_cast<std::size_t>(rule)] >= 4);
  }
}

// A change of the generator that loses a case must be seen.
TEST_CASE("rules: the table holds every boundary case") {
  const std::vector<RawMap> cases = boundary_cases();
  REQUIRE(cases.size() <= std::size(kCases));
  for (std::size_t i = 0; i < cases.size(); ++i) CHECK(initializer(cases[i]) == initializer(kCases[i].arguments));
}
