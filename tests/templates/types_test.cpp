// The shared words: swizzles as the hardware applies them, matrix descriptors bit by bit.
#include "tessera/spec/types.h"

#include <doctest/doctest.h>

#include <initializer_list>

#include "spec/matrix_descriptor.h"

namespace tessera {
namespace {

TEST_CASE("a swizzle exchanges 16-byte chunks inside one repeat and is its own inverse") {
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    const auto repeat = static_cast<unsigned>(swizzle_repeat_bytes(swizzle));
    for (unsigned address = 0; address < 4096; ++address) {
      const unsigned moved = swizzle_address(swizzle, address);
      REQUIRE(moved / repeat == address / repeat);
      REQUIRE(moved % 16 == address % 16);
      REQUIRE(swizzle_address(swizzle, moved) == address);
    }
  }
}

TEST_CASE("chunk c of row r sits at chunk c ^ (row bits)") {
  CHECK(swizzle_address(Swizzle::none, 7 * 128 + 16) == 7 * 128 + 16);
  CHECK(swizzle_address(Swizzle::b128, 5 * 128 + 3 * 16) == 5 * 128 + (3 ^ 5) * 16);
  CHECK(swizzle_address(Swizzle::b64, 6 * 64 + 1 * 16) == 6 * 64 + (1 ^ 3) * 16);
  CHECK(swizzle_address(Swizzle::b32, 4 * 32 + 0 * 16) == 4 * 32 + 1 * 16);
}

TEST_CASE("matrix descriptors") {
  // 128 x 64 elements of 16 bits with 128-byte swizzle at 0x2400: SBO 1024, mode 1; LBO is not used.
  const unsigned long long k = k_major_descriptor(0x2400, 128, Swizzle::b128);
  CHECK((k & 0x3fff) == 0x240);
  CHECK((k >> 32 & 0x3fff) == 64);
  CHECK((k >> 62) == 1);
  // Without swizzle, LBO steps over chunks of K and SBO over groups of 8 rows; with N contiguous they change places.
  const unsigned long long plain = k_major_descriptor(0, 128, Swizzle::none);
  CHECK((plain >> 16 & 0x3fff) == 128);
  CHECK((plain >> 32 & 0x3fff) == 8);
  CHECK((plain >> 62) == 0);
  const unsigned long long plain_mn = mn_major_descriptor(0, 128, Swizzle::none);
  CHECK((plain_mn >> 16 & 0x3fff) == 8);
  CHECK((plain_mn >> 32 & 0x3fff) == 128);
  const unsigned long long mn = mn_major_descriptor(0, 80, Swizzle::b64);
  CHECK((mn >> 16 & 0x3fff) == 80 * 64 / 16);
  CHECK((mn >> 32 & 0x3fff) == 8 * 64 / 16);
  CHECK((mn >> 62) == 2);
  CHECK((mn_major_descriptor(0, 80, Swizzle::b32) >> 62) == 3);
}

TEST_CASE("steps along K stay inside a span, then go to the next panel") {
  CHECK(k_major_step_bytes(3, 128, Swizzle::b128) == 96);
  CHECK(k_major_step_bytes(4, 128, Swizzle::b128) == 128 * 128);
  CHECK(k_major_step_bytes(3, 128, Swizzle::b64) == 128 * 64 + 32);
  CHECK(k_major_step_bytes(3, 128, Swizzle::b32) == 3 * 128 * 32);
  CHECK(k_major_step_bytes(3, 128, Swizzle::none) == 6 * 128 * 16);
  CHECK(mn_major_step_bytes(3, Swizzle::b128) == 3 * 16 * 128);
}

}  // namespace
}  // namespace tessera
