#include "reference/copy2d.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "reference/random.h"
#include "tessera/error.h"

using namespace tessera;
using namespace tessera::reference;

TEST_CASE("a copy is judged bit by bit") {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::s64}) {
    Tensor x(dtype, {5, 64, 32});
    fill(x, Fill::normal, 9, 0);
    Tensor y = x;
    CHECK(check_copy2d(x.view(), y.view()).pass);
    y.bytes[static_cast<std::size_t>(dtype_bytes(dtype)) * (64 * 32 + 8)] ^= std::byte{1};
    const Comparison result = check_copy2d(x.view(), y.view());
    CHECK(!result.pass);
    CHECK(result.problems.at(0).starts_with(
        "y: 1 of 10240 checked elements wrong; dim2 1, dim1 0, dim0 8; first at [1, 0, 8]"));
  }
}

TEST_CASE("-0 for 0 and one NaN for another are differences") {
  Tensor x(DType::f32, {4}), y(DType::f32, {4});
  y.set(2, -0.0);
  CHECK(!check_copy2d(x.view(), y.view()).pass);
  x.set(2, std::nan(""));
  y.set(2, std::nan(""));
  CHECK(check_copy2d(x.view(), y.view()).pass);
  y.bytes[8] ^= std::byte{1};
  CHECK(!check_copy2d(x.view(), y.view()).pass);
  Tensor other(DType::f32, {5});
  CHECK_THROWS_AS(check_copy2d(x.view(), other.view()), Error);
}

TEST_CASE("fp32 copied as tf32 is rounded to nearest even") {
  const auto rounded = [](float x) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(copied_bits(DType::tf32, std::bit_cast<std::uint32_t>(x))));
  };
  CHECK(rounded(1.0f) == 1.0f);
  CHECK(rounded(1.0f + 0x1p-11f) == 1.0f);
  CHECK(rounded(1.0f + 3 * 0x1p-11f) == 1.0f + 0x1p-9f);
  CHECK(rounded(0x1.fffffep127f) == INFINITY);
  CHECK(copied_bits(DType::tf32, 0xFF800000) == 0xFF800000);
  CHECK(copied_bits(DType::tf32, 0xFF800001) == 0x7FFFE000);
  CHECK(copied_bits(DType::tf32, 0x00001001) == 0x00002000);
  for (std::uint64_t bits = 0; bits < 0x7F800000; bits += 12345)
    CHECK(copied_bits(DType::tf32, bits) == from_double(DType::tf32, to_double(DType::f32, bits)));
  CHECK(copied_bits(DType::f32, 0x3F800001) == 0x3F800001);
}
