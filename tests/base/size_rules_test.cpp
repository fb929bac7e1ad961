#include "base/size_rules.h"

#include <doctest/doctest.h>

#include "tessera/error.h"

namespace tessera {

namespace {

/// y[rows, columns], rows ld apart: ld is columns unless given, at least that, and a multiple of 8.
LaunchPlan padded_rows() {
  LaunchPlan plan;
  plan.op = "pad";
  plan.sizes = {{"rows", 0, 1000, std::nullopt, ""},
                {"columns", 1, 1000, std::nullopt, ""},
                {"ld", 1, std::int64_t{1} << 62, Expression::parse("columns"), ""}};
  plan.domain = {{Expression::parse("ld"), Relation::at_least, Expression::parse("columns"), "rows overlap"},
                 {Expression::parse("ld * 2"), Relation::multiple_of, Expression::parse("16"), "ld"}};
  BufferSpec x, y;
  x.name = "x";
  y.name = "y";
  y.role = BufferRole::output;
  x.shape = y.shape = {Expression::parse("rows"), Expression::parse("columns")};
  x.strides = y.strides = {Expression::parse("ld"), Expression(1)};
  plan.buffers = {x, y};
  return plan;
}

}  // namespace

TEST_CASE("size rules: names, ranges and defaults") {
  const LaunchPlan plan = padded_rows();
  const SizeRules rules(plan);
  CHECK(rules.names() == std::vector<std::string>{"rows", "columns", "ld"});
  CHECK(rules.index_of("ld") == 2);
  CHECK(rules.index_of("lda") == 3);
  CHECK(rules.is_in_range(0, 0));
  CHECK(rules.is_in_range(0, 1000));
  CHECK_FALSE(rules.is_in_range(0, -1));
  CHECK_FALSE(rules.is_in_range(0, 1001));
  CHECK(rules.default_of(2, std::vector<std::int64_t>{3, 40, -1}) == 40);
  CHECK(rules.evaluate(Expression::parse("rows * ld + 1"), std::vector<std::int64_t>{3, 40, 48}) == 145);
  CHECK_THROWS_WITH_AS(rules.evaluate(Expression::parse("height"), std::vector<std::int64_t>{3, 40, 48}),
                       "plan: expression 'height' uses 'height', which is not a size", Error);
}

TEST_CASE("size rules: both sides of a rule, and whether it holds") {
  const LaunchPlan plan = padded_rows();
  const SizeRules rules(plan);
  const auto sides = [&](std::size_t rule, std::int64_t ld) {
    return rules.sides(rule, std::vector<std::int64_t>{3, 40, ld});
  };
  CHECK(sides(0, 39).lhs == 39);
  CHECK(sides(0, 39).rhs == 40);
  CHECK_FALSE(sides(0, 39).holds);
  CHECK(sides(0, 40).holds);
  CHECK(sides(1, 40).lhs == 80);
  CHECK(sides(1, 40).holds);
  CHECK_FALSE(sides(1, 44).holds);
  CHECK_THROWS_AS(sides(1, std::int64_t{1} << 62), Error);
}

TEST_CASE("size rules: what is written must not overlap, what is read may") {
  const LaunchPlan plan = padded_rows();
  const SizeRules rules(plan);
  REQUIRE(rules.outputs().size() == 1);
  CHECK(rules.outputs()[0] == 1);
  CHECK_FALSE(rules.overlap(0, std::vector<std::int64_t>{3, 40, 40}));
  CHECK_FALSE(rules.overlap(0, std::vector<std::int64_t>{1, 40, 8}));
  const auto overlap = rules.overlap(0, std::vector<std::int64_t>{3, 40, 8});
  REQUIRE(overlap);
  CHECK(overlap->strides == std::vector<std::int64_t>{8, 1});
  CHECK(overlap->places.first[0] * 8 + overlap->places.first[1] ==
        overlap->places.second[0] * 8 + overlap->places.second[1]);
  CHECK(overlap->places.first != overlap->places.second);
}

}  // namespace tessera
