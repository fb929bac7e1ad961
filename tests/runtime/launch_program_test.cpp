#include "runtime/launch_program.h"

#include <doctest/doctest.h>

#include <random>

namespace tessera {

TEST_CASE("the short check of address, dims and strides says what the rules say") {
  std::mt19937_64 random(7);
  const auto pick = [&](std::initializer_list<std::uint64_t> values) {
    return values.begin()[random() % values.size()];
  };
  int legal = 0, illegal = 0;
  for (int i = 0; i < 200'000; ++i) {
    ResolvedTensorMap map;
    map.type = i % 2 == 0 ? TensorMapType::bf16 : TensorMapType::f32;
    map.rank = static_cast<std::uint32_t>(1 + random() % 5);
    map.interleave = map.rank >= 3 && i % 5 == 0 ? TensorMapInterleave::b32 : TensorMapInterleave::none;
    map.box = {16, 2, 2, 2, 2};
    for (std::size_t d = 0; d < 5; ++d) {
      map.dims[d] = 1 + random() % 1000;
      map.strides_bytes[d] = random() % 1000 * 32;
    }
    REQUIRE(first_broken_rule(map) == TensorMapRule::none);
    // One or two of the numbers leave the middle of their range.
    for (std::uint64_t n = random() % 3; n > 0; --n) {
      switch (random() % 3) {
        case 0:
          map.dims[random() % map.rank] = pick({0, 1, 1ull << 32, (1ull << 32) + 1, 1ull << 63, ~0ull});
          break;
        case 1:
          map.strides_bytes[random() % 5] =
              pick({0, 8, 16, 48, (1ull << 40) - 32, (1ull << 40) - 16, 1ull << 40, ~0ull << 4});
          break;
        default:
          map.address = pick({0, 8, 16, 32, 1ull << 56, (1ull << 57) - 32, 1ull << 57, ~0ull << 5});
      }
    }
    const auto mask = static_cast<std::uint64_t>(tensor_map_alignment(map.type, map.interleave)) - 1;
    const bool expected = first_broken_rule(map) == TensorMapRule::none;
    (expected ? legal : illegal) += 1;
    if (are_numbers_legal(map, mask) != expected) FAIL("differs for call " << i);
  }
  CHECK(legal > 10'000);
  CHECK(illegal > 10'000);
}

}  // namespace tessera
