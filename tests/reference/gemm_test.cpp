// The verdict over a product where inputs are no numbers.
#include "reference/gemm.h"

#include <doctest/doctest.h>

#include <limits>

#include "reference/poison.h"

using namespace tessera;
using namespace tessera::reference;

TEST_CASE("products: a NaN is right where the inputs have one, and nowhere else") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Tensor a(DType::f32, {1, 2, 4}), b(DType::f32, {1, 3, 4}), d(DType::f32, {1, 2, 3});
  for (std::int64_t i = 0; i < 8; ++i) a.set(i, 1);
  for (std::int64_t i = 0; i < 12; ++i) b.set(i, 2);
  a.set(5, kNan);
  for (std::int64_t i = 0; i < 6; ++i) d.set(i, i < 3 ? 8 : kNan);
  GemmCheck check;
  check.is_exact = true;
  check.jobs = 1;
  const auto verdict = [&] { return check_gemm({a.view(), b.view(), {}, {}}, d.view(), check); };
  CHECK(verdict().pass);
  d.set(4, 8);
  CHECK(!verdict().pass);
  d.set(4, kNan);
  d.set(1, kNan);
  CHECK(!verdict().pass);
  d.set(1, 8);
  for (int i = 0; i < 4; ++i) d.bytes[20 + static_cast<std::size_t>(i)] = std::byte{kPoisonByte};
  CHECK(!verdict().pass);
}
