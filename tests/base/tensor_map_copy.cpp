// Faults of copies and their bytes: the cases are those that the hardware was asked.
#include "base/tensor_map_copy.h"

#include <doctest/doctest.h>

#include <set>

using namespace tessera;  // NOLINT: a test of one header

namespace {

ResolvedTensorMap map_of(TensorMapType type, std::array<std::uint32_t, 5> box,
                         TensorMapSwizzle swizzle = TensorMapSwizzle::none) {
  ResolvedTensorMap map;
  map.type = type;
  map.rank = 2;
  map.dims = {256, 64};
  map.strides_bytes = {256 * static_cast<std::uint64_t>(element_bytes(type))};
  map.box = box;
  map.swizzle = swizzle;
  return map;
}

TensorMapFault load(TensorMapType type, std::int64_t x, std::int64_t y, std::uint64_t smem = 0x400) {
  return first_fault(map_of(type, {16, 8}), {TensorMapDirection::load, {x, y}, smem});
}
TensorMapFault store(TensorMapType type, std::int64_t x, std::int64_t y) {
  return first_fault(map_of(type, {16, 8}), {TensorMapDirection::store, {x, y}, 0x400});
}

}  // namespace

TEST_CASE("copy: faults that were seen, and copies that worked") {
  using Fault = TensorMapFault;
  using Type = TensorMapType;
  for (const std::int64_t x : {1, 8}) CHECK(load(Type::u8, x, 3) == Fault::inner_coordinate);
  for (const std::int64_t x : {-1, 1, 4}) CHECK(load(Type::bf16, x, 3) == Fault::inner_coordinate);
  for (const std::int64_t x : {-3, 1, 2, 255}) CHECK(load(Type::f32, x, 3) == Fault::inner_coordinate);
  CHECK(load(Type::f64, 1, 3) == Fault::inner_coordinate);
  CHECK(load(Type::u8, 16, 3) == Fault::none);
  CHECK(load(Type::bf16, 8, 3) == Fault::none);
  CHECK(load(Type::bf16, -8, -1) == Fault::none);
  CHECK(load(Type::f32, 4, 3) == Fault::none);
  CHECK(load(Type::f64, 2, 3) == Fault::none);
  CHECK(store(Type::f32, -8, 5) == Fault::store_negative);
  CHECK(store(Type::f32, 8, -3) == Fault::store_negative);
  CHECK(store(Type::f32, 6, 5) == Fault::inner_coordinate);
  CHECK(store(Type::f32, 248, 60) == Fault::none);
  CHECK(store(Type::f32, 8, 1000) == Fault::none);
  for (const std::uint64_t smem : {16u, 32u, 64u}) CHECK(load(Type::u8, 0, 0, smem) == Fault::smem_alignment);
  CHECK(load(Type::u8, 0, 0, 128) == Fault::none);
  CHECK(load(Type::u8, 0, INT32_MIN) == Fault::none);
  CHECK(load(Type::u8, 0, std::int64_t{INT32_MAX} + 1) == Fault::coordinate_range);
  CHECK(load(Type::u8, std::int64_t{INT32_MIN} - 16, 0) == Fault::coordinate_range);
  // Coordinates past the rank do not count.
  CHECK(first_fault(map_of(Type::u8, {16, 8}), {TensorMapDirection::store, {0, 0, -1}, 0}) == Fault::none);
  // Packed types: 32 elements of 4 bits are 16 bytes; the padded ones want 128 elements.
  CHECK(load(Type::u4x16_align8b, 16, 0) == Fault::inner_coordinate);
  CHECK(load(Type::u4x16_align8b, 32, 0) == Fault::none);
  CHECK(load(Type::u4x16_align16b, 64, 0) == Fault::inner_coordinate);
  CHECK(load(Type::u6x16_align16b, 128, 0) == Fault::none);
  std::set<std::string_view> names;
  for (int i = 0; i <= kNumTensorMapFaults; ++i) names.insert(to_string(static_cast<Fault>(i)));
  CHECK(names.size() == kNumTensorMapFaults + 1);
  CHECK(to_string(static_cast<Fault>(kNumTensorMapFaults + 1)) == "?");
}

TEST_CASE("copy: messages") {
  const ResolvedTensorMap map = map_of(TensorMapType::bf16, {16, 8});
  const auto message = [&](TensorMapDirection direction, std::int64_t x, std::int64_t y, std::uint64_t smem) {
    return fault_message(map, {direction, {x, y}, smem}, "q");
  };
  CHECK(message(TensorMapDirection::load, 8, 1, 0).empty());
  CHECK(message(TensorMapDirection::load, 4, 1, 0) ==
        "tensor map 'q': fault 1 (inner_coordinate): coordinate[0] = 4 of bf16: must be a multiple of 16 bytes, 8 "
        "elements, or the copy is an illegal instruction; copy from the multiple below and skip elements in shared "
        "memory");
  CHECK(fault_message(map_of(TensorMapType::u6x16_align16b, {128, 8}), {TensorMapDirection::load, {64, 0}, 0}, "q") ==
        "tensor map 'q': fault 1 (inner_coordinate): coordinate[0] = 64 of u6x16_align16b: must be a multiple of 128 "
        "elements, or the copy is an illegal instruction; copy from the multiple below and skip elements in shared "
        "memory");
  CHECK(message(TensorMapDirection::store, 8, -1, 0) ==
        "tensor map 'q': fault 2 (store_negative): coordinate[1] = -1: must be at least 0 in a store, or it is an "
        "illegal "
        "instruction (loads fill instead); start the tile inside the tensor");
  CHECK(message(TensorMapDirection::load, 8, 1, 64) ==
        "tensor map 'q': fault 3 (smem_alignment): shared address 0x40: must be a multiple of 128, or the copy faults "
        "with a misaligned address; align the tile (to 1024 with swizzle 128B, so that tiles repeat the pattern)");
  CHECK(
      message(TensorMapDirection::load, 8, 1ll << 31, 0) ==
      "tensor map 'q': fault 4 (coordinate_range): coordinate[1] = 2147483648: must fit 32 bits signed; make a map for "
      "each part of the tensor");
}

TEST_CASE("copy: pitch, extent and credited bytes") {
  using Type = TensorMapType;
  using Swizzle = TensorMapSwizzle;
  const auto check = [](const ResolvedTensorMap& map, std::uint64_t pitch, std::uint64_t extent, std::uint64_t bytes) {
    CHECK(smem_row_pitch_bytes(map) == pitch);
    CHECK(smem_box_bytes(map) == extent);
    CHECK(transaction_bytes(map) == bytes);
  };
  check(map_of(Type::u8, {48, 8}), 48, 384, 384);
  check(map_of(Type::u8, {16, 8}, Swizzle::b32), 32, 256, 128);
  check(map_of(Type::u8, {48, 8}, Swizzle::b64), 64, 512, 384);
  check(map_of(Type::bf16, {64, 128}, Swizzle::b128), 128, 16384, 16384);
  check(map_of(Type::bf16, {48, 8}, Swizzle::b128), 128, 1024, 768);
  check(map_of(Type::u4x16_align8b, {64, 8}), 32, 256, 256);
  check(map_of(Type::u4x16_align16b, {128, 8}, Swizzle::b128), 128, 1024, 512);
  check(map_of(Type::u6x16_align16b, {128, 8}), 128, 1024, 768);
  ResolvedTensorMap strided = map_of(Type::f32, {16, 8});
  strided.element_strides = {2, 3};  // dimension 0's is ignored; ceil(8 / 3) = 3 rows
  check(strided, 64, 192, 192);
}
