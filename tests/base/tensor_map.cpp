// Names of tensor-map arguments, and the exact text of every rule.
#include "tessera/tensor_map.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>

using namespace tessera;  // NOLINT: a test of one header

namespace {

// k of [batch 2, seqlen 512, heads 16, head_dim 128] bf16: head_dim, seqlen, heads, batch.
ResolvedTensorMap legal() {
  ResolvedTensorMap map;
  map.type = TensorMapType::bf16;
  map.rank = 4;
  map.address = 0x7f0000000000;
  map.dims = {128, 512, 16, 2};
  map.strides_bytes = {4096, 256, 2097152};
  map.box = {64, 128, 1, 1};
  map.swizzle = TensorMapSwizzle::b128;
  return map;
}

// All messages of the map that change() makes, one a line, without the prefix "tensor map 'q': ".
template <class F>
std::string messages(F change, TensorMapTarget target = {}) {
  ResolvedTensorMap map = legal();
  change(map);
  const std::vector<TensorMapViolation> violations = broken_rules(map, "q", target);
  CHECK((violations.empty() ? TensorMapRule::none : violations.front().rule) == first_broken_rule(map, target));
  std::string text;
  for (const TensorMapViolation& violation : violations) {
    const std::string prefix = "tensor map 'q': ";
    CHECK(violation.message.substr(0, prefix.size()) == prefix);
    text += (text.empty() ? "" : "\n") + violation.message.substr(prefix.size());
  }
  return text;
}

template <class E>
void check_names(int count) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) {
    const E value = static_cast<E>(i);
    names.insert(to_string(value));
    E parsed = static_cast<E>(99);
    CHECK(from_string(to_string(value), parsed));
    CHECK(parsed == value);
  }
  CHECK(names.size() == static_cast<std::size_t>(count));
  CHECK(names.count("?") == 0);
  CHECK(to_string(static_cast<E>(count)) == "?");
  CHECK(to_string(static_cast<E>(255)) == "?");
  E untouched = static_cast<E>(1);
  CHECK_FALSE(from_string("?", untouched));
  CHECK_FALSE(from_string("", untouched));
  CHECK(untouched == static_cast<E>(1));
}

}  // namespace

TEST_CASE("tensor map: names go both ways") {
  check_names<TensorMapType>(16);
  check_names<TensorMapInterleave>(3);
  check_names<TensorMapSwizzle>(7);
  check_names<TensorMapL2Promotion>(4);
  check_names<TensorMapFill>(2);
  CHECK(to_string(TensorMapType::bf16) == "bf16");
  CHECK(to_string(TensorMapSwizzle::b128) == "128B");
  CHECK(to_string(TensorMapFill::nan_request_zero_fma) == "nan");
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  CHECK_FALSE(from_string("128b", swizzle));
  CHECK(to_string(TensorMapRule::stride) == "stride");
  CHECK(to_string(TensorMapRule::none) == "none");
  for (int i = 1; i <= kNumTensorMapRules; ++i) CHECK(to_string(static_cast<TensorMapRule>(i)) != "?");
  CHECK(to_string(static_cast<TensorMapRule>(kNumTensorMapRules + 1)) == "?");
}

TEST_CASE("tensor map: sizes of types and spans") {
  const int bytes[16] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 0, 0, 0};
  for (int i = 0; i < 16; ++i) {
    const TensorMapType type = static_cast<TensorMapType>(i);
    CHECK(element_bytes(type) == bytes[i]);
    CHECK(smem_element_bits(type) == (i < 13 ? 8 * bytes[i] : i == 13 ? 4 : 8));
    CHECK(is_packed(type) == (i >= 13));
  }
  CHECK(element_bytes(static_cast<TensorMapType>(16)) == 0);
  const int spans[7] = {0, 32, 64, 128, 128, 128, 128};
  for (int i = 0; i < 7; ++i) CHECK(swizzle_span_bytes(static_cast<TensorMapSwizzle>(i)) == spans[i]);
  CHECK(tensor_map_alignment(TensorMapType::bf16, TensorMapInterleave::none) == 16);
  CHECK(tensor_map_alignment(TensorMapType::bf16, TensorMapInterleave::b16) == 16);
  CHECK(tensor_map_alignment(TensorMapType::bf16, TensorMapInterleave::b32) == 32);
  CHECK(tensor_map_alignment(TensorMapType::u4x16_align8b, TensorMapInterleave::none) == 16);
  CHECK(tensor_map_alignment(TensorMapType::u4x16_align16b, TensorMapInterleave::none) == 32);
}

TEST_CASE("tensor map: a legal map breaks no rule") {
  CHECK(messages([](ResolvedTensorMap&) {}).empty());
  CHECK(messages([](ResolvedTensorMap& m) { m.address = 0; }).empty());
  CHECK(messages([](ResolvedTensorMap& m) { m.dims[1] = 1; }).empty());  // the box may exceed the tensor
  CHECK(messages([](ResolvedTensorMap& m) { m.strides_bytes = {0, 16, 4096}; }).empty());
  CHECK(messages([](ResolvedTensorMap& m) { m.box[0] = 8; }).empty());  // narrower than the span
  CHECK(messages([](ResolvedTensorMap& m) { m.strides_bytes[3] = 7, m.dims[4] = m.box[4] = 0; }).empty());
}

TEST_CASE("tensor map: rules 1 to 10, the choices") {
  CHECK(messages([](ResolvedTensorMap& m) { m.type = static_cast<TensorMapType>(17); }) ==
        "rule 1 (type): type = 17: must be 0 to 15 (CUtensorMapDataType); name the type of the tensor's elements, such "
        "as bf16");
  CHECK(messages([](ResolvedTensorMap& m) { m.type = TensorMapType::u4x16_align8b; }) ==
        "rule 2 (type_packed): type = u4x16_align8b: packed 4- and 6-bit types need compute capability 10, this is 9; "
        "copy the packed bytes as u8, 1 of them for 2 values, and unpack them in the kernel");
  CHECK(messages([](ResolvedTensorMap& m) { m.type = TensorMapType::u6x16_align16b; }) ==
        "rule 2 (type_packed): type = u6x16_align16b: packed 4- and 6-bit types need compute capability 10, this is 9; "
        "copy the packed bytes as u8, 3 of them for 4 values, and unpack them in the kernel");
  CHECK(messages([](ResolvedTensorMap& m) { m.rank = 6; }) ==
        "rule 3 (rank): rank = 6: must be 1 to 5; merge dimensions that are dense in one another");
  CHECK(messages([](ResolvedTensorMap& m) { m.rank = 0; }) ==
        "rule 3 (rank): rank = 0: must be 1 to 5; give at least one dimension");
  CHECK(messages([](ResolvedTensorMap& m) { m.interleave = static_cast<TensorMapInterleave>(3); }) ==
        "rule 4 (interleave): interleave = 3: must be 0 to 2; use none, or 16B or 32B for a tensor stored as NC/8HWC8 "
        "or NC/16HWC16");
  CHECK(messages([](ResolvedTensorMap& m) { m.interleave = TensorMapInterleave::b16, m.rank = 2; }) ==
        "rule 5 (interleave_rank): rank = 2: must be 3 to 5 with interleave 16B; use interleave none");
  CHECK(messages([](ResolvedTensorMap& m) { m.swizzle = static_cast<TensorMapSwizzle>(7); }) ==
        "rule 6 (swizzle): swizzle = 7: must be 0 to 6; use none, 32B, 64B or 128B");
  CHECK(messages([](ResolvedTensorMap& m) { m.swizzle = TensorMapSwizzle::b128_atom_32b; }) ==
        "rule 7 (swizzle_atom): swizzle = 128B_atom_32B: the atom swizzles need compute capability 10, this is 9; use "
        "128B");
  CHECK(messages([](ResolvedTensorMap& m) { m.l2_promotion = static_cast<TensorMapL2Promotion>(4); }) ==
        "rule 8 (l2_promotion): l2_promotion = 4: must be 0 to 3; use none, 64B, 128B or 256B");
  CHECK(messages([](ResolvedTensorMap& m) { m.fill = static_cast<TensorMapFill>(2); }) ==
        "rule 9 (fill): fill = 2: must be 0 or 1; use zero or nan");
  CHECK(messages(
            [](ResolvedTensorMap& m) { m.fill = TensorMapFill::nan_request_zero_fma, m.type = TensorMapType::u16; }) ==
        "rule 10 (fill_type): fill = nan: must be zero for u16: only floating-point types have a NaN; use fill zero");
}

TEST_CASE("tensor map: rules 11 to 14, address, dims and strides") {
  CHECK(
      messages([](ResolvedTensorMap& m) { m.address += 8; }) ==
      "rule 11 (address_alignment): address = 0x7f0000000008: must be a multiple of 16; it is 8 bytes past one: start "
      "the tensor at an aligned element, or copy it to an aligned buffer");
  CHECK(messages([](ResolvedTensorMap& m) { m.address += 16, m.interleave = TensorMapInterleave::b32; }) ==
        "rule 11 (address_alignment): address = 0x7f0000000010: must be a multiple of 32 with interleave 32B; it is 16 "
        "bytes past one: start the tensor at an aligned element, or copy it to an aligned buffer");
  CHECK(
      messages([](ResolvedTensorMap& m) { m.address = 1ull << 57; }) ==
      "rule 12 (address_range): address = 0x200000000000000: must be below 2^57; this is no address of device memory");
  CHECK(messages([](ResolvedTensorMap& m) { m.dims[1] = 0; }) ==
        "rule 13 (dim): dims[1] = 0: must be 1 to 2^32; an empty tensor has no tensor map: leave out its copies");
  CHECK(messages([](ResolvedTensorMap& m) { m.dims[3] = (1ull << 32) + 1; }) ==
        "rule 13 (dim): dims[3] = 4294967297: must be 1 to 2^32; split the dimension into two");
  CHECK(messages([](ResolvedTensorMap& m) { m.strides_bytes[0] = 4104; }) ==
        "rule 14 (stride): strides_bytes[0] = 4104: must be a multiple of 16 and below 2^40; pad to 4112 bytes, 2056 "
        "elements of bf16");
  CHECK(
      messages([](ResolvedTensorMap& m) { m.strides_bytes[2] += 16, m.interleave = TensorMapInterleave::b32; }) ==
      "rule 14 (stride): strides_bytes[2] = 2097168: must be a multiple of 32 with interleave 32B and below 2^40; pad "
      "to 2097184 bytes, 1048592 elements of bf16");
  CHECK(messages([](ResolvedTensorMap& m) { m.strides_bytes[2] = 1ull << 40; }) ==
        "rule 14 (stride): strides_bytes[2] = 1099511627776: must be a multiple of 16 and below 2^40; make a map for "
        "each part of the tensor");
}

TEST_CASE("tensor map: rules 15 to 19, the box") {
  CHECK(messages([](ResolvedTensorMap& m) { m.box[2] = 0; }) ==
        "rule 15 (box): box[2] = 0: must be 1 to 256; use 1 for a dimension that is not tiled");
  CHECK(messages([](ResolvedTensorMap& m) { m.box[1] = 257; }) ==
        "rule 15 (box): box[1] = 257: must be 1 to 256; take more than one copy for a tile");
  CHECK(
      messages([](ResolvedTensorMap& m) { m.box[1] = 512; }) ==
      "rule 15 (box): box[1] = 512: must be 1 to 256; this covers the whole dimension (dims[1] = 512), but the box is "
      "the tile of one copy: take tiles of at most 256 and give each copy its coordinate");
  CHECK(messages([](ResolvedTensorMap& m) { m.element_strides[1] = 9; }) ==
        "rule 16 (element_stride): element_strides[1] = 9: must be 1 to 8; use 1 to take every element");
  CHECK(messages([](ResolvedTensorMap& m) { m.element_strides[0] = 0; }) ==
        "rule 16 (element_stride): element_strides[0] = 0: must be 1 to 8, although copies ignore it in dimension 0; "
        "use 1 to take every element");
  CHECK(
      messages([](ResolvedTensorMap& m) { m.box[0] = 12; }) ==
      "rule 17 (box_bytes): box[0] = 12 of bf16, 24 bytes: must be a multiple of 16 bytes; use 8 or 16 elements; what "
      "lies outside the tensor is filled on loads and dropped on stores");
  CHECK(messages([](ResolvedTensorMap& m) { m.box[0] = 3; }) ==
        "rule 17 (box_bytes): box[0] = 3 of bf16, 6 bytes: must be a multiple of 16 bytes; use 8 elements; what lies "
        "outside the tensor is filled on loads and dropped on stores");
  CHECK(
      messages([](ResolvedTensorMap& m) { m.box[0] = 250, m.swizzle = TensorMapSwizzle::none; }) ==
      "rule 17 (box_bytes): box[0] = 250 of bf16, 500 bytes: must be a multiple of 16 bytes; use 248 or 256 elements; "
      "what lies outside the tensor is filled on loads and dropped on stores");
  CHECK(messages([](ResolvedTensorMap& m) { m.box[0] = 128; }) ==
        "rule 18 (swizzle_span): box[0] = 128 of bf16, 256 bytes: must fit the 128-byte span of swizzle 128B; use "
        "box[0] = 64 and a copy for each 64 elements");
  CHECK(
      messages([](ResolvedTensorMap& m) { m.swizzle = TensorMapSwizzle::b32; }) ==
      "rule 18 (swizzle_span): box[0] = 64 of bf16, 128 bytes: must fit the 32-byte span of swizzle 32B; use box[0] = "
      "16 and a copy for each 16 elements");
  CHECK(messages([](ResolvedTensorMap& m) {
          m.box = {64, 256, 8, 1};
        }) ==
        "rule 19 (footprint): box {64, 256, 8, 1} of bf16, 262144 bytes: must be at most 233472 bytes; take more than "
        "one copy for a tile");
  CHECK(messages([](ResolvedTensorMap& m) {
          m.dims = {64, 256, 8, 1}, m.box = {64, 256, 8, 1};
        }) ==
        "rule 19 (footprint): box {64, 256, 8, 1} of bf16, 262144 bytes: must be at most 233472 bytes; this covers the "
        "whole tensor, but the box is the tile of one copy: take smaller tiles and give each copy its coordinates");
}

TEST_CASE("tensor map: rules 21 to 24, packed types, unverified by a driver") {
  const TensorMapTarget blackwell{10};
  const auto packed = [](TensorMapType type) {
    return [type](ResolvedTensorMap& m) {
      m.type = type;
      m.dims[0] = m.box[0] = 128;
    };
  };
  const auto after = [&](TensorMapType type, auto change) {
    return messages(
        [&](ResolvedTensorMap& m) {
          packed(type)(m);
          change(m);
        },
        blackwell);
  };
  const auto nothing = [](ResolvedTensorMap&) {};
  CHECK(after(TensorMapType::u4x16_align8b, nothing).empty());
  CHECK(after(TensorMapType::u4x16_align16b, nothing).empty());
  CHECK(after(TensorMapType::u6x16_align16b, nothing).empty());
  CHECK(messages([](ResolvedTensorMap& m) { m.swizzle = TensorMapSwizzle::b128_atom_32b_flip_8b; }, blackwell).empty());
  CHECK(after(TensorMapType::u4x16_align8b, [](ResolvedTensorMap& m) { m.dims[0] = 127; }) ==
        "rule 21 (packed_dim): dims[0] = 127: must be a multiple of 2 for u4x16_align8b; count single values, not "
        "bytes, and pad the tensor (not verified by a driver)");
  CHECK(after(TensorMapType::u6x16_align16b, [](ResolvedTensorMap& m) { m.dims[0] = 192; }) ==
        "rule 21 (packed_dim): dims[0] = 192: must be a multiple of 128 for u6x16_align16b; count single values, not "
        "bytes, and pad the tensor (not verified by a driver)");
  CHECK(after(TensorMapType::u4x16_align16b, [](ResolvedTensorMap& m) { m.box[0] = 64; }) ==
        "rule 22 (packed_box): box[0] = 64: must be 128 for u4x16_align16b; count single values, not bytes (not "
        "verified by a driver)");
  CHECK(
      after(TensorMapType::u4x16_align16b, [](ResolvedTensorMap& m) { m.swizzle = TensorMapSwizzle::b128_atom_64b; }) ==
      "rule 23 (packed_swizzle): swizzle = 128B_atom_64B: must be none, 128B or 128B_atom_32B for u4x16_align16b; use "
      "128B (not verified by a driver)");
  CHECK(after(TensorMapType::u6x16_align16b,
              [](ResolvedTensorMap& m) { m.swizzle = TensorMapSwizzle::b128_atom_32b_flip_8b; }) ==
        "rule 23 (packed_swizzle): swizzle = 128B_atom_32B_flip_8B: must be none, 128B, 128B_atom_32B or 128B_atom_64B "
        "for u6x16_align16b; use 128B (not verified by a driver)");
  CHECK(after(TensorMapType::u6x16_align16b, [](ResolvedTensorMap& m) { m.interleave = TensorMapInterleave::b16; }) ==
        "rule 24 (packed_interleave): interleave = 1: must be none for u6x16_align16b; use interleave none (not "
        "verified by a driver)");
  CHECK(after(TensorMapType::u4x16_align16b, [](ResolvedTensorMap& m) { m.address += 16; }) ==
        "rule 11 (address_alignment): address = 0x7f0000000010: must be a multiple of 32 for u4x16_align16b; it is 16 "
        "bytes past one: start the tensor at an aligned element, or copy it to an aligned buffer (not verified by a "
        "driver)");
  CHECK(after(TensorMapType::u4x16_align8b, [](ResolvedTensorMap& m) { m.box[0] = 40; }) ==
        "rule 17 (box_bytes): box[0] = 40 of u4x16_align8b, 20 bytes: must be a multiple of 16 bytes; use 32 or 64 "
        "elements; what lies outside the tensor is filled on loads and dropped on stores (not verified by a driver)");
  CHECK(
      after(TensorMapType::u4x16_align8b, [](ResolvedTensorMap& m) { m.fill = TensorMapFill::nan_request_zero_fma; }) ==
      "rule 10 (fill_type): fill = nan: must be zero for u4x16_align8b: only floating-point types have a NaN; use "
      "fill zero (not verified by a driver)");
}

TEST_CASE("tensor map: every broken rule is listed, in the order of the numbers") {
  const std::string text = messages([](ResolvedTensorMap& m) {
    m.fill = TensorMapFill::nan_request_zero_fma;
    m.type = TensorMapType::u8;
    m.l2_promotion = static_cast<TensorMapL2Promotion>(9);
    m.address = 1;
    m.dims[2] = 0;
    m.box[0] = 200;
    m.element_strides[3] = 0;
  });
  std::string numbers;
  for (std::size_t at = text.find("rule "); at != std::string::npos; at = text.find("\nrule ", at + 1))
    numbers += text.substr(at, text.find(' ', at + 6) - at) + " ";
  CHECK(numbers == "rule 8 \nrule 10 \nrule 11 \nrule 13 \nrule 16 \nrule 17 \nrule 18 ");
}
