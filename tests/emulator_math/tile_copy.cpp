// Tensor copies against a model that goes element by element, written from the rules measured on H200.
#include "emulator/math/tile_copy.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "tests/emulator_math/random.h"

namespace tessera::emulator::math {
namespace {

constexpr std::uint8_t kUntouched = 0xAB;

// Element by element: its place in the tile, its place in the tensor, filled when outside.
std::vector<std::uint8_t> reference_load(const TensorTile& t, const TileCoordinates& at, std::uint32_t shared,
                                         const std::vector<std::uint8_t>& memory, std::size_t shared_bytes) {
  std::vector<std::uint8_t> out(shared_bytes, kUntouched);
  const auto element = static_cast<std::uint32_t>(tile_element_bits(t.type)) / 8;
  std::uint32_t extents[5];
  for (std::size_t d = 0; d < 5; ++d) {
    const bool used = d < static_cast<std::size_t>(t.rank);
    extents[d] = !used ? 1 : d == 0 ? t.box[0] : (t.box[d] + t.element_strides[d] - 1) / t.element_strides[d];
  }
  const std::uint32_t pitch = t.swizzle == Swizzle::none ? t.box[0] * element : swizzle_span_bytes(t.swizzle);
  std::uint32_t row = 0;
  for (std::uint32_t i4 = 0; i4 < extents[4]; ++i4)
    for (std::uint32_t i3 = 0; i3 < extents[3]; ++i3)
      for (std::uint32_t i2 = 0; i2 < extents[2]; ++i2)
        for (std::uint32_t i1 = 0; i1 < extents[1]; ++i1, ++row)
          for (std::uint32_t i0 = 0; i0 < extents[0]; ++i0) {
            const std::int64_t index[5] = {at[0] + std::int64_t{i0}, at[1] + std::int64_t{i1} * t.element_strides[1],
                                           at[2] + std::int64_t{i2} * t.element_strides[2],
                                           at[3] + std::int64_t{i3} * t.element_strides[3],
                                           at[4] + std::int64_t{i4} * t.element_strides[4]};
            bool inside = true;
            std::uint64_t source = t.address;
            for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
              if (index[d] < 0 || index[d] >= static_cast<std::int64_t>(t.dims[d])) inside = false;
              source += static_cast<std::uint64_t>(index[d]) * (d == 0 ? element : t.stride_bytes[d - 1]);
            }
            for (std::uint32_t byte = 0; byte < element; ++byte) {
              const std::uint32_t to = apply_swizzle(t.swizzle, shared + row * pitch + i0 * element + byte);
              const auto fill = static_cast<std::uint8_t>(t.nan_fill ? (byte % 2 == 0 ? 0xF7 : 0x7F) : 0);
              out[to] = inside ? memory[source + byte] : fill;
            }
          }
  return out;
}

std::vector<std::uint8_t> load(const TensorTile& t, const TileCoordinates& at, std::uint32_t shared,
                               const std::vector<std::uint8_t>& memory, std::size_t shared_bytes) {
  std::vector<std::uint8_t> out(shared_bytes, kUntouched);
  const std::uint64_t pattern = tile_fill_pattern(t);
  for_each_chunk(t, at, shared, [&](const TileChunk& c) {
    std::uint8_t bytes[16];
    std::memcpy(bytes, &pattern, 8);
    std::memcpy(bytes + 8, &pattern, 8);
    if (c.valid_bytes > 0) std::memcpy(bytes, memory.data() + c.global, static_cast<std::size_t>(c.valid_bytes));
    std::memcpy(out.data() + c.shared, bytes, static_cast<std::size_t>(c.data_bytes));
  });
  return out;
}

TensorTile random_tile(std::uint64_t seed) {
  auto pick = [seed, i = std::uint64_t{0}](std::uint64_t n) mutable { return test::random_bits(seed, i++) % n; };
  TensorTile t;
  const TileType types[] = {TileType::u8, TileType::bf16, TileType::f32, TileType::f64};
  t.type = types[pick(4)];
  t.rank = static_cast<int>(1 + pick(5));
  t.address = 64 * pick(4);
  t.swizzle = static_cast<Swizzle>(pick(4));
  t.nan_fill = t.type != TileType::u8 && pick(2) == 0;
  const auto element = static_cast<std::uint32_t>(tile_element_bits(t.type)) / 8;
  const std::uint32_t widest = t.swizzle == Swizzle::none ? 128 : swizzle_span_bytes(t.swizzle);
  t.box[0] = static_cast<std::uint32_t>(16 * (1 + pick(widest / 16))) / element;
  std::uint64_t stride = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
    t.dims[d] = 1 + pick(d == 0 ? 200 / element : 7);
    if (d > 0) {
      t.box[d] = static_cast<std::uint32_t>(1 + pick(5));
      t.element_strides[d] = static_cast<std::uint32_t>(1 + pick(3));
      stride = (d == 1 ? t.dims[0] * element + 15 : stride * t.dims[d - 1] + 15) / 16 * 16;
      t.stride_bytes[d - 1] = stride;
    }
  }
  return t;
}

TEST_CASE("random tiles equal the element-by-element model") {
  std::vector<std::uint8_t> memory(1 << 22);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint8_t>(test::random_bits(9, i));
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const TensorTile t = random_tile(seed);
    const int step = 128 / tile_element_bits(t.type);  // elements in 16 bytes
    TileCoordinates at{};
    at[0] = step * (static_cast<int>(test::random_bits(seed + 50000, 0) % 30) - 12);
    for (std::size_t d = 1; d < 5; ++d) at[d] = static_cast<int>(test::random_bits(seed + 50000, d) % 12) - 4;
    const auto shared = static_cast<std::uint32_t>(128 * (test::random_bits(seed + 50000, 9) % 16));
    REQUIRE(check_tile(t, at, shared, false) == TileFault::none);
    const std::size_t size = shared + tile_footprint_bytes(t) + 1024;
    REQUIRE(load(t, at, shared, memory, size) == reference_load(t, at, shared, memory, size));
  }
}

TensorTile plain_tile() {
  TensorTile t;
  t.type = TileType::bf16;
  t.rank = 2;
  t.dims = {256, 64};
  t.stride_bytes = {512};
  t.box = {64, 8};
  return t;
}

TEST_CASE("bytes credited are the box, wherever it lies") {
  TensorTile t = plain_tile();
  CHECK(tile_credit_bytes(t) == 1024);
  t.element_strides = {3, 3, 1, 1, 1};  // dimension 0's is ignored
  CHECK(tile_credit_bytes(t) == 384);
  t = plain_tile();
  t.box = {8, 8};
  t.swizzle = Swizzle::b128;
  CHECK(tile_credit_bytes(t) == 128);
  CHECK(tile_pitch_bytes(t) == 128);
  CHECK(tile_footprint_bytes(t) == 1024);
  t.type = TileType::u4x16_align16b;
  t.box = {128, 8};
  CHECK(tile_credit_bytes(t) == 512);
  CHECK(tile_footprint_bytes(t) == 1024);
  t.type = TileType::u6x16_align16b;
  CHECK(tile_credit_bytes(t) == 768);
}

TEST_CASE("what the hardware refuses") {
  const TensorTile t = plain_tile();
  CHECK(check_tile(t, {0, 0}, 1024 + 64, false) == TileFault::shared_alignment);
  CHECK(check_tile(t, {-1, 0}, 1024, false) == TileFault::inner_coordinate);
  CHECK(check_tile(t, {4, 0}, 1024, false) == TileFault::inner_coordinate);
  CHECK(check_tile(t, {-8, -3}, 1024, false) == TileFault::none);
  CHECK(check_tile(t, {-8, 5}, 1024, true) == TileFault::negative_store);
  CHECK(check_tile(t, {8, -3}, 1024, true) == TileFault::negative_store);
  CHECK(check_tile(t, {248, 1000}, 1024, true) == TileFault::none);
}

TEST_CASE("padded 4-bit elements: 8 of 16 bytes") {
  TensorTile t;
  t.type = TileType::u4x16_align16b;
  t.rank = 2;
  t.dims = {256, 4};
  t.stride_bytes = {128};
  t.box = {128, 2};
  t.swizzle = Swizzle::b128;
  std::vector<TileChunk> chunks;
  for_each_chunk(t, {128, 3}, 0x400, [&](const TileChunk& c) { chunks.push_back(c); });
  REQUIRE(chunks.size() == 16);
  CHECK(chunks[1].global == 3 * 128 + 64 + 8);
  CHECK(chunks[1].data_bytes == 8);
  CHECK(chunks[1].valid_bytes == 8);
  CHECK(chunks[1].shared == 0x410);
  CHECK(chunks[9].shared == 0x480);
  CHECK(chunks[9].valid_bytes == 0);  // row 4 is outside
}

TEST_CASE("gather4 stacks four rows") {
  TensorTile t = plain_tile();
  t.box = {64, 1};
  t.swizzle = Swizzle::b128;
  std::vector<TileChunk> chunks;
  for_each_chunk_of_four(t, 64, {5, 63, 64, 0}, 0x800, [&](const TileChunk& c) { chunks.push_back(c); });
  REQUIRE(chunks.size() == 32);
  CHECK(chunks[0].global == 5 * 512 + 128);
  CHECK(chunks[8].global == 63 * 512 + 128);
  CHECK(chunks[8].shared == 0x890);
  CHECK(chunks[16].valid_bytes == 0);
  CHECK(chunks[24].global == 128);
}

TEST_CASE("tf32 loads round, other types do not") {
  std::uint32_t words[4] = {0x3F801000, 0x3F803000, 0x7F800001, 0x00001001};
  std::uint8_t bytes[16];
  std::memcpy(bytes, words, 16);
  convert_loaded_chunk(TileType::f32_ftz, bytes);
  CHECK(std::memcmp(bytes, words, 16) == 0);
  convert_loaded_chunk(TileType::tf32, bytes);
  std::memcpy(words, bytes, 16);
  CHECK(words[0] == 0x3F800000);
  CHECK(words[1] == 0x3F804000);
  CHECK(words[2] == 0x7FFFE000);
  CHECK(words[3] == 0x00002000);
}

}  // namespace
}  // namespace tessera::emulator::math
