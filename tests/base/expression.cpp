// The expression grammar: values, exact messages, and a random comparison with an evaluator that shares no code with
// it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <optional>
#include <random>

#include "base/bound_expression.h"
#include "tessera/error.h"

using tessera::BoundExpression;
using tessera::Error;
using tessera::ErrorKind;
using tessera::Expression;

namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

std::int64_t value(std::string_view text, std::vector<std::int64_t> values = {}) {
  return Expression::parse(text).evaluate(values);
}

// The message of the Error{usage} that the callable throws.
template <class F>
std::string message(F callable) {
  try {
    callable();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}
std::string parse_message(const std::string& text) {
  return message([&] { Expression::parse(text); });
}

std::string repeated(std::string_view piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

TEST_CASE("expression: values") {
  CHECK(value("0") == 0);
  CHECK(value("1 + 2 * 3") == 7);
  CHECK(value("(1 + 2) * 3") == 9);
  CHECK(value("10 - 3 - 2") == 5);
  CHECK(value("2 * 3 - 4 * 5") == -14);
  CHECK(value("-3") == -3);
  CHECK(value("- 3") == -3);
  CHECK(value("--3") == 3);
  CHECK(value("-(2 + 3)") == -5);
  CHECK(value("2 - -3") == 5);
  CHECK(value("-2 * 3") == -6);
  CHECK(value("min(3, -4)") == -4);
  CHECK(value("max(3, -4)") == 3);
  CHECK(value("max(min(1, 2), ceil_div(9, 4))") == 3);
  CHECK(value("\tmin (\t1 ,2 ) ") == 1);
  CHECK(value("9223372036854775807") == kLargest);
  CHECK(value("-9223372036854775808") == kSmallest);
  CHECK(value("- 9223372036854775808") == kSmallest);
  CHECK(value("a", {-7}) == -7);
  CHECK(value("-a", {7}) == -7);
  CHECK(value("a * b + a", {3, 5}) == 18);
  CHECK(value("_x9 - y_2", {3, 5}) == -2);
  CHECK(value("ceil_div(seqlen_q, 128) * heads_q * batch", {4097, 8, 2}) == 528);
  CHECK(value("mini + maximum + ceil_divs", {1, 2, 3}) == 6);
}

TEST_CASE("expression: ceil_div rounds toward plus infinity") {
  for (std::int64_t b = 1; b <= 9; ++b) {
    for (std::int64_t a = -40; a <= 40; ++a) {
      std::int64_t expected = -50;  // the smallest q with q * b >= a
      while (expected * b < a) ++expected;
      CHECK(value("ceil_div(a, b)", {a, b}) == expected);
    }
  }
  CHECK(value("ceil_div(a, 1)", {kSmallest}) == kSmallest);
  CHECK(value("ceil_div(a, 2)", {kLargest}) == (kLargest >> 1) + 1);
  CHECK(value("ceil_div(a, b)", {kSmallest, kLargest}) == -1);
  CHECK(value("ceil_div(a, b)", {kLargest, kLargest}) == 1);
}

TEST_CASE("expression: text, names, equality") {
  const Expression sum = Expression::parse(" \tbatch * heads +  batch + _\t");
  CHECK(sum.text() == "batch * heads +  batch + _");
  CHECK(sum.names() == std::vector<std::string>{"batch", "heads", "_"});
  CHECK_FALSE(sum.is_constant());
  CHECK(Expression::parse(sum.text()) == sum);
  CHECK_FALSE(Expression::parse("a+b") == Expression::parse("a + b"));
  CHECK(Expression::parse("2 * 3").is_constant());
  CHECK(Expression::parse("2 * 3").text() == "2 * 3");
  CHECK(Expression().text() == "0");
  CHECK(Expression().evaluate({}) == 0);
  for (const std::int64_t constant : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{42}, kLargest, kSmallest}) {
    const Expression number(constant);
    CHECK(number.text() == fmt::format("{}", constant));
    CHECK(number.is_constant());
    CHECK(number.evaluate({}) == constant);
    CHECK(Expression::parse(number.text()) == number);
    CHECK(Expression::parse(number.text()).evaluate({}) == constant);
  }
}

TEST_CASE("expression: a refused text gives place, reason and caret") {
  CHECK(parse_message("") == "expression:1:1: expected a number, a name, a function, '-' or '('");
  CHECK(parse_message("  ") == "expression:1:1: expected a number, a name, a function, '-' or '('");
  CHECK(parse_message("a +") == "expression:1:4: expected a number, a name, a function, '-' or '('\n  a +\n     ^");
  CHECK(parse_message("a + * b") ==
        "expression:1:5: unexpected '*': expected a number, a name, a function, '-' or '('\n  a + * b\n      ^");
  CHECK(parse_message("+1") ==
        "expression:1:1: unexpected '+': expected a number, a name, a function, '-' or '('\n  +1\n  ^");
  CHECK(parse_message("(a") == "expression:1:3: expected ')' to close '('\n  (a\n    ^");
  CHECK(parse_message("a)") == "expression:1:2: unexpected ')' after a complete expression\n  a)\n   ^");
  CHECK(parse_message("a b") == "expression:1:3: unexpected 'b' after a complete expression\n  a b\n    ^");
  CHECK(parse_message("a / b") == "expression:1:3: unexpected '/' after a complete expression\n  a / b\n    ^");
  CHECK(parse_message("aB") == "expression:1:2: unexpected 'B' after a complete expression\n  aB\n   ^");
  CHECK(parse_message("A") ==
        "expression:1:1: unexpected 'A': expected a number, a name, a function, '-' or '('\n  A\n  ^");
  CHECK(parse_message("a\n+ 1") == "expression:1:2: unexpected byte 0x0a after a complete expression\n  a?+ 1\n   ^");
  CHECK(parse_message("1 + \xc3\xa9") ==
        "expression:1:5: unexpected byte 0xc3: expected a number, a name, a function, '-' or '('\n  1 + ??\n      ^");
  CHECK(parse_message("a\t/ b") == "expression:1:3: unexpected '/' after a complete expression\n  a / b\n    ^");
  CHECK(parse_message(std::string("a\0b", 3)) ==
        "expression:1:2: unexpected byte 0x00 after a complete expression\n  a?b\n   ^");
}

TEST_CASE("expression: refused numbers and functions") {
  CHECK(parse_message("12ab") == "expression:1:1: '12ab' is neither a number nor a name\n  12ab\n  ^");
  CHECK(parse_message("1 + 0x10") == "expression:1:5: '0x10' is neither a number nor a name\n  1 + 0x10\n      ^");
  CHECK(parse_message("1.5") == "expression:1:2: unexpected '.' after a complete expression\n  1.5\n   ^");
  CHECK(parse_message("007") == "expression:1:1: 007: a number has no leading zeros\n  007\n  ^");
  CHECK(parse_message("-00") == "expression:1:2: -00: a number has no leading zeros\n  -00\n   ^");
  CHECK(parse_message("9223372036854775808") ==
        "expression:1:1: 9223372036854775808 does not fit 64 bits\n  9223372036854775808\n  ^");
  CHECK(parse_message("-9223372036854775809") ==
        "expression:1:2: -9223372036854775809 does not fit 64 bits\n  -9223372036854775809\n   ^");
  CHECK(parse_message("-(9223372036854775808)") ==
        "expression:1:3: 9223372036854775808 does not fit 64 bits\n  -(9223372036854775808)\n    ^");
  CHECK(parse_message("min") == "expression:1:4: expected '(' after the function 'min'\n  min\n     ^");
  CHECK(parse_message("max + 1") == "expression:1:5: expected '(' after the function 'max'\n  max + 1\n      ^");
  CHECK(parse_message("min(1)") ==
        "expression:1:6: expected ',' between the two operands of 'min'\n  min(1)\n       ^");
  CHECK(parse_message("max(1, 2, 3)") ==
        "expression:1:9: expected ')' after the two operands of 'max'\n  max(1, 2, 3)\n          ^");
  CHECK(parse_message("abs(1)") == "expression:1:1: 'abs' is not a function: ceil_div, min and max are\n  abs(1)\n  ^");
  CHECK(parse_message("1 + 9223372036854775807 * 2") ==
        "expression:1:25: 9223372036854775807 * 2 does not fit 64 bits\n  1 + 9223372036854775807 * 2\n"
        "                          ^");
  CHECK(parse_message("a * ceil_div(4, 0)") ==
        "expression:1:5: ceil_div(4, 0): the divisor must be at least 1\n  a * ceil_div(4, 0)\n      ^");
}

TEST_CASE("expression: limits of depth, length and stack") {
  const auto nested = [](std::string_view open, std::string_view close, int levels) {
    return repeated(open, levels) + "a" + repeated(close, levels);
  };
  CHECK(value(nested("(", ")", 64), {5}) == 5);
  CHECK(value(nested("-", "", 64), {5}) == 5);
  CHECK(value(nested("min(1, ", ")", 63), {0}) == 0);
  CHECK(value(nested("1 + (", ")", 63), {0}) == 63);
  CHECK(parse_message(nested("(", ")", 65)).substr(0, 47) == "expression:1:65: more than 64 levels deep\n  (((");
  CHECK(parse_message(nested("-", "", 65)).substr(0, 47) == "expression:1:65: more than 64 levels deep\n  ---");
  CHECK(parse_message(nested("1 + 2 * (", ")", 32)).substr(0, 64) ==
        "expression:1:1: needs 65 intermediate values at once: at most 64");
  CHECK(value(nested("1 + 2 * (", ")", 31), {0}) == kLargest >> 32);
  CHECK(value(repeated(" ", 5000) + "7") == 7);  // the ends do not count
  CHECK(value("1" + repeated("+1", 2047)) == 2048);
  CHECK(parse_message("1" + repeated("+1", 2048)) == "expression of 4097 characters: at most 4096");
}

TEST_CASE("expression: evaluation refuses overflow and bad divisors") {
  const auto refusal = [](const char* text, std::vector<std::int64_t> values) {
    return message([&] { value(text, values); });
  };
  CHECK(refusal("a + 1", {kLargest}) == "expression 'a + 1': 9223372036854775807 + 1 does not fit 64 bits");
  CHECK(refusal("a - b", {kSmallest, 1}) == "expression 'a - b': -9223372036854775808 - 1 does not fit 64 bits");
  CHECK(refusal("a * b", {kLargest, 2}) == "expression 'a * b': 9223372036854775807 * 2 does not fit 64 bits");
  CHECK(refusal("a * a", {kSmallest}) ==
        "expression 'a * a': -9223372036854775808 * -9223372036854775808 does not fit 64 bits");
  CHECK(refusal("-a", {kSmallest}) == "expression '-a': -(-9223372036854775808) does not fit 64 bits");
  CHECK(refusal("ceil_div(a, b)", {5, 0}) ==
        "expression 'ceil_div(a, b)': ceil_div(5, 0): the divisor must be at least 1");
  CHECK(refusal("ceil_div(a, b)", {kSmallest, -1}) ==
        "expression 'ceil_div(a, b)': ceil_div(-9223372036854775808, -1): the divisor must be at least 1");
  CHECK(refusal("min(0, a + 1)", {kLargest}) ==
        "expression 'min(0, a + 1)': 9223372036854775807 + 1 does not fit 64 bits");
  CHECK(value("a + b - b", {kLargest - 1, 1}) == kLargest - 1);
}

TEST_CASE("bound expression: slots") {
  const std::vector<std::string> slots{"batch", "heads", "seqlen"};
  const std::vector<std::int64_t> sizes{2, 8, 4097};
  const auto bound = [&](std::string_view text) { return BoundExpression(Expression::parse(text), slots); };
  CHECK(bound("12").evaluate(sizes) == 12);
  CHECK(bound("12").is_constant());
  CHECK(bound("3 * 4").evaluate({}) == 12);  // a constant needs no slots
  CHECK(bound("seqlen").evaluate(sizes) == 4097);
  CHECK(bound("heads").evaluate(sizes) == 8);
  CHECK_FALSE(bound("heads").is_constant());
  CHECK(bound("(batch)").evaluate(sizes) == 2);
  CHECK(bound("-batch").evaluate(sizes) == -2);
  CHECK(bound("seqlen - batch * heads").evaluate(sizes) == 4081);
  CHECK(bound(" ceil_div(seqlen, 128) * heads").evaluate(sizes) == 264);
  CHECK(bound(" seqlen - 1").text() == "seqlen - 1");
  CHECK(BoundExpression().evaluate({}) == 0);
  CHECK(message([&] { bound("batch + width"); }) ==
        "plan: expression 'batch + width' uses 'width', which is not a size");
  const std::vector<std::int64_t> large{kLargest, kLargest, 0};
  CHECK(message([&] { bound("heads + batch").evaluate(large); }) ==
        "expression 'heads + batch': 9223372036854775807 + 9223372036854775807 does not fit 64 bits");
}

namespace {

__extension__ typedef __int128 Wide;

constexpr std::size_t kNames = 4;
constexpr std::string_view kNameTexts[kNames] = {"a", "b", "seqlen_q", "_1"};

// Writes a random expression and computes its value with 128-bit integers on the way; no value: refused.
struct RandomTree {
  std::mt19937_64 random;
  std::vector<std::int64_t> values;

  std::uint64_t below(std::uint64_t n) { return random() % n; }
  std::int64_t number() {
    switch (below(4)) {
      case 0:
        return static_cast<std::int64_t>(below(8));
      case 1:
        return static_cast<std::int64_t>(below(1u << 20));
      case 2:
        return kLargest - static_cast<std::int64_t>(below(4));
      default:
        return static_cast<std::int64_t>(random() >> (1 + below(63)));
    }
  }
  std::string space() { return below(3) == 0 ? " " : ""; }

  static std::optional<Wide> checked(Wide value) {
    return value < kSmallest || value > kLargest ? std::nullopt : std::optional<Wide>(value);
  }
  static std::optional<Wide> combine(std::uint64_t kind, std::optional<Wide> a, std::optional<Wide> b) {
    if (!a || !b) return std::nullopt;
    if (kind == 0) return checked(*a + *b);
    if (kind == 1) return checked(*a - *b);
    if (kind == 2) return checked(*a * *b);
    if (kind == 3) return *a < *b ? a : b;
    if (kind == 4) return *a > *b ? a : b;
    if (*b < 1) return std::nullopt;
    Wide quotient = *a / *b;
    while (quotient * *b < *a) ++quotient;
    while ((quotient - 1) * *b >= *a) --quotient;
    return quotient;
  }

  // Every operand in parentheses unless it is a leaf, so that precedence is tested by the fixed cases alone.
  std::optional<Wide> write(int depth, std::string& text) {
    text += space();
    if (depth == 0 || below(5) == 0) {
      if (below(2) == 0) {
        const std::size_t name = below(kNames);
        text += kNameTexts[name];
        return values[name];
      }
      const std::int64_t n = number();
      text += fmt::format("{}", n);
      return n;
    }
    const std::uint64_t kind = below(7);
    if (kind == 6) {
      text += "-(";
      const std::optional<Wide> a = write(depth - 1, text);
      text += ")";
      return a ? checked(-*a) : a;
    }
    static constexpr std::string_view kOpen[] = {"(", "(", "(", "min(", "max(", "ceil_div("};
    static constexpr std::string_view kMiddle[] = {")+(", ")-(", ")*(", ",", ",", ","};
    text += kOpen[kind];
    const std::optional<Wide> a = write(depth - 1, text);
    text += space();
    text += kMiddle[kind];
    const std::optional<Wide> b = write(depth - 1, text);
    text += ")";
    return combine(kind, a, b);
  }
};

}  // namespace

TEST_CASE("expression: random trees agree with 128-bit arithmetic") {
  RandomTree tree{std::mt19937_64(20), {}};  // NOLINT: a fixed seed on purpose
  const std::vector<std::string> slots(kNameTexts, kNameTexts + kNames);
  int refused = 0;
  const int kTrees = 20000;
  for (int i = 0; i < kTrees; ++i) {
    tree.values.clear();
    for (std::size_t n = 0; n < kNames; ++n) tree.values.push_back(tree.below(2) == 0 ? tree.number() : -tree.number());
    std::string text;
    const std::optional<Wide> expected = tree.write(static_cast<int>(tree.below(5)), text);
    std::optional<std::int64_t> found;
    try {
      found = BoundExpression(Expression::parse(text), slots).evaluate(tree.values);
    } catch (const Error& error) {
      ++refused;
      if (error.kind() != ErrorKind::usage) FAIL(text);
    }
    if (found.has_value() != expected.has_value() || (found && *found != *expected)) FAIL(text);
  }
  CHECK(refused > kTrees / 20);
  CHECK(refused < kTrees / 2);
}
