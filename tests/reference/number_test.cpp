#include "reference/number.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace tessera;
using namespace tessera::reference;

TEST_CASE("every bit pattern of the small formats survives the way through double") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2}) {
    const std::uint64_t count = std::uint64_t{1} << (8 * dtype_bytes(dtype));
    for (std::uint64_t bits = 0; bits < count; ++bits) {
      const double value = to_double(dtype, bits);
      if (std::isnan(value)) continue;
      if (from_double(dtype, value) != bits) FAIL(dtype_name(dtype), " ", bits, " ", value);
    }
  }
}

TEST_CASE("between two neighbours the nearer one wins, the even one on a tie") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2}) {
    const std::uint64_t infinity = from_double(dtype, std::numeric_limits<double>::infinity());
    for (std::uint64_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = to_double(dtype, bits), high = to_double(dtype, bits + 1);
      const double middle = (low + high) / 2;
      const std::uint64_t even = bits % 2 == 0 ? bits : bits + 1;
      CHECK(from_double(dtype, middle) == even);
      CHECK(from_double(dtype, std::nextafter(middle, 0.0)) == bits);
      CHECK(from_double(dtype, std::nextafter(middle, high)) == bits + 1);
    }
  }
}

TEST_CASE("known values") {
  CHECK(from_double(DType::bf16, 1.0) == 0x3F80);
  CHECK(from_double(DType::f16, 65504.0) == 0x7BFF);
  CHECK(from_double(DType::f16, 65520.0) == 0x7C00);
  CHECK(from_double(DType::f16, 65519.9) == 0x7BFF);
  CHECK(from_double(DType::f16, -1e300) == 0xFC00);
  CHECK(from_double(DType::e4m3, 448.0) == 0x7E);
  CHECK(from_double(DType::e4m3, 1e9) == 0x7F);
  CHECK(from_double(DType::tf32, 1.0 + 0x1p-11) == 0x3F800000);
  CHECK(from_double(DType::tf32, 1.0 + 3 * 0x1p-11) == 0x3F804000);
  CHECK(from_double(DType::u8, 300.0) == 255);
  CHECK(from_double(DType::s32, -1.0) == 0xFFFFFFFF);
  CHECK(to_double(DType::s32, 0xFFFFFFFF) == -1.0);
  CHECK(unit_roundoff(DType::bf16) == 0x1p-8);
  CHECK(half_subnormal(DType::f16) == to_double(DType::f16, 1) / 2);
  CHECK(half_subnormal(DType::e4m3) == to_double(DType::e4m3, 1) / 2);
  CHECK(half_subnormal(DType::e5m2) == to_double(DType::e5m2, 1) / 2);
  for (int i = 0; i < 13; ++i) CHECK(dtype_from_name(dtype_name(static_cast<DType>(i))) == static_cast<DType>(i));
  CHECK(!dtype_from_name("float"));
}
