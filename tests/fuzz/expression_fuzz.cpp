// libFuzzer: any text either is refused with Error{usage}, or parses, parses again from its own text, and gives the
// same value (or the same refusal) by both ways of evaluation.
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/bound_expression.h"
#include "tessera/error.h"
#include "tests/fuzz/target.h"

namespace {

template <class F>
std::optional<std::int64_t> value_or_refusal(F evaluate) {
  try {
    return evaluate();
  } catch (const tessera::Error& error) {
    if (error.kind() != tessera::ErrorKind::usage) std::abort();
    return std::nullopt;
  }
}

}  // namespace

TESSERA_FUZZ_TARGET(expression)(const std::uint8_t* data, std::size_t size) {
  tessera::Expression expression;
  try {
    expression = tessera::Expression::parse({reinterpret_cast<const char*>(data), size});
  } catch (const tessera::Error& error) {
    if (error.kind() != tessera::ErrorKind::usage) std::abort();
    return 0;
  }
  if (!(tessera::Expression::parse(expression.text()) == expression)) std::abort();
  const tessera::BoundExpression bound(expression, expression.names());
  static constexpr std::int64_t kSeeds[] = {0, 1, -3, 4097, INT64_MAX, INT64_MIN};
  for (const std::int64_t seed : kSeeds) {
    std::vector<std::int64_t> values(expression.names().size(), seed);
    for (std::size_t i = 1; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i) * 3 - 5;
    const auto direct = value_or_refusal([&] { return expression.evaluate(values); });
    if (direct != value_or_refusal([&] { return bound.evaluate(values); })) std::abort();
  }
  return 0;
}
