// The classic mistakes: the sentence for each, where a rule is broken, where none is, and where the counts are wrong.
#include "base/tensor_map_mistake.h"

#include <doctest/doctest.h>

using namespace tessera;  // NOLINT: a test of one header

namespace {

ResolvedTensorMap map_of(std::vector<std::uint64_t> dims, std::vector<std::uint64_t> strides,
                         TensorMapType type = TensorMapType::bf16) {
  ResolvedTensorMap map;
  map.type = type;
  map.rank = static_cast<std::uint32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), map.dims.begin());
  std::copy(strides.begin(), strides.end(), map.strides_bytes.begin());
  map.box = {16, 8, 1, 1, 1};
  return map;
}
TensorMapMistake mistake_of(std::vector<std::uint64_t> dims, std::vector<std::uint64_t> strides,
                            TensorMapType type = TensorMapType::bf16) {
  return likely_mistake(map_of(std::move(dims), std::move(strides), type));
}

TensorMapArguments arguments() {
  TensorMapArguments a;
  a.dims = {128, 512, 8};
  a.strides_bytes = {256, 131072};
  a.box = {64, 64, 1};
  a.swizzle = TensorMapSwizzle::b128;
  return a;
}
template <class F>
std::string diagnosis(F change) {
  TensorMapArguments a = arguments();
  change(a);
  std::string text;
  for (const TensorMapViolation& violation : diagnose(a, "q")) text += (text.empty() ? "" : "\n") + violation.message;
  return text;
}

}  // namespace

TEST_CASE("mistake: layouts that are as they should be") {
  const TensorMapMistake none = TensorMapMistake::none;
  CHECK(mistake_of({128}, {}) == none);
  CHECK(mistake_of({128, 512}, {256}) == none);
  CHECK(mistake_of({128, 512}, {1024}) == none);                         // rows with gaps
  CHECK(mistake_of({64, 1024}, {2048}) == none);                         // a column slice; reversed it would be dense
  CHECK(mistake_of({128, 512, 16, 2}, {4096, 256, 2097152}) == none);    // [batch, seqlen, heads, head_dim]
  CHECK(mistake_of({128, 512, 16, 2}, {256, 131072, 2097152}) == none);  // [batch, heads, seqlen, head_dim]
  CHECK(mistake_of({128, 512, 16}, {256, 0}) == none);                   // a broadcast
  CHECK(mistake_of({128, 1, 16}, {16, 256}) == none);                    // one row: its stride does not matter
  CHECK(mistake_of({128, 512}, {128}, TensorMapType::u8) == none);       // bytes are elements
  CHECK(mistake_of({100, 512}, {64}) == none);                           // windows that overlap: nothing undoes that
  CHECK(mistake_of({128, 512}, {128}, TensorMapType::u4x16_align8b) == none);
  CHECK(mistake_of({0, 512}, {128}) == none);
  CHECK(mistake_of({1ull << 63, 1ull << 63, 1ull << 63}, {1ull << 63, 1ull << 63}) == none);
  CHECK(likely_mistake_message(map_of({128, 512}, {256}), "q").empty());
}

TEST_CASE("mistake: strides in elements") {
  CHECK(mistake_of({128, 512}, {128}) == TensorMapMistake::strides_in_elements);
  CHECK(mistake_of({128, 512, 16, 2}, {2048, 128, 1048576}) == TensorMapMistake::strides_in_elements);
  CHECK(mistake_of({128, 512}, {192}, TensorMapType::f32) == TensorMapMistake::strides_in_elements);
  CHECK(likely_mistake_message(map_of({128, 512, 16}, {2048, 128}), "k") ==
        "tensor map 'k': dims {128, 512, 16} with strides_bytes {2048, 128}: elements overlap; the strides look like "
        "elements: times 2 (bf16) the tensor is dense; give strides_bytes {4096, 256}");
  CHECK(likely_mistake_message(map_of({128, 512}, {192}, TensorMapType::f32), "k") ==
        "tensor map 'k': dims {128, 512} with strides_bytes {192}: elements overlap; the strides look like elements: "
        "times 4 (f32) the tensor is free of overlap; give strides_bytes {768}");
  // The same, seen through the rule that it breaks.
  const std::vector<TensorMapViolation> violations = broken_rules(map_of({100, 512}, {100}), "k");
  REQUIRE(violations.size() == 1);
  CHECK(violations[0].message ==
        "tensor map 'k': rule 14 (stride): strides_bytes[0] = 100: must be a multiple of 16 and below 2^40; pad to 112 "
        "bytes, 56 elements of bf16; the strides look like elements: times 2 (bf16) the tensor is dense; give "
        "strides_bytes {200}");
}

TEST_CASE("mistake: dimensions outermost first") {
  CHECK(mistake_of({4096, 128}, {256}) == TensorMapMistake::outermost_first);
  CHECK(mistake_of({2, 512, 128}, {131072, 256}) == TensorMapMistake::none);  // no overlap: cannot be told
  CHECK(mistake_of({512, 16, 128}, {4096, 256}) == TensorMapMistake::outermost_first);
  CHECK(mistake_of({4096, 128}, {128}) == TensorMapMistake::outermost_first_in_elements);
  CHECK(likely_mistake_message(map_of({4096, 128}, {256}), "v") ==
        "tensor map 'v': dims {4096, 128} with strides_bytes {256}: elements overlap; the dimensions look listed "
        "outermost first: reversed, the tensor is dense; give dims {128, 4096} and strides_bytes {256}");
  CHECK(likely_mistake_message(map_of({4096, 128}, {128}), "v") ==
        "tensor map 'v': dims {4096, 128} with strides_bytes {128}: elements overlap; the dimensions look listed "
        "outermost first, with strides in elements: reversed, the tensor is dense; give dims {128, 4096} and "
        "strides_bytes {256}");
  // With a broken rule, gaps that reversing closes are enough for the hint.
  ResolvedTensorMap map = map_of({2, 512, 128}, {131072, 256});
  map.box = {1, 64, 64};
  const std::vector<TensorMapViolation> violations = broken_rules(map, "v");
  REQUIRE(violations.size() == 1);
  CHECK(violations[0].message ==
        "tensor map 'v': rule 17 (box_bytes): box[0] = 1 of bf16, 2 bytes: must be a multiple of 16 bytes; use 8 "
        "elements; what lies outside the tensor is filled on loads and dropped on stores; the dimensions look listed "
        "outermost first: reversed, the tensor is dense; give dims {128, 512, 2} and strides_bytes {256, 131072}");
}

TEST_CASE("mistake: counts of a user's arguments") {
  CHECK(diagnosis([](TensorMapArguments&) {}).empty());
  CHECK(diagnosis([](TensorMapArguments& a) { a.element_strides = {1, 1, 1}; }).empty());
  CHECK(
      diagnosis([](TensorMapArguments& a) {
        a.strides_bytes = {2, 256, 131072};
      }) ==
      "tensor map 'q': rule 20 (count): strides_bytes has 3 entries: must have rank - 1 = 2: dimension 0 is dense and "
      "has no stride; leave out strides_bytes[0] = 2, the element size");
  CHECK(
      diagnosis([](TensorMapArguments& a) {
        a.strides_bytes = {1, 128, 65536};
      }) ==
      "tensor map 'q': rule 20 (count): strides_bytes has 3 entries: must have rank - 1 = 2: dimension 0 is dense and "
      "has no stride; leave out strides_bytes[0] = 1 and give the others in bytes: they look like elements");
  CHECK(
      diagnosis([](TensorMapArguments& a) {
        a.strides_bytes = {131072, 256, 2};
      }) ==
      "tensor map 'q': rule 20 (count): strides_bytes has 3 entries: must have rank - 1 = 2: dimension 0 is dense and "
      "has no stride; the last one, 2, is that of the innermost dimension: list dims, strides and box innermost "
      "first, and leave it out");
  CHECK(
      diagnosis([](TensorMapArguments& a) {
        a.strides_bytes = {65536, 128, 1};
      }) ==
      "tensor map 'q': rule 20 (count): strides_bytes has 3 entries: must have rank - 1 = 2: dimension 0 is dense and "
      "has no stride; the last one, 1, is that of the innermost dimension: list dims, strides and box innermost "
      "first, and leave it out; give the others in bytes: they look like elements");
  CHECK(
      diagnosis([](TensorMapArguments& a) {
        a.strides_bytes = {256, 131072, 1048576};
      }) ==
      "tensor map 'q': rule 20 (count): strides_bytes has 3 entries: must have rank - 1 = 2: dimension 0 is dense and "
      "has no stride; leave out the innermost dimension's");
  CHECK(
      diagnosis([](TensorMapArguments& a) { a.strides_bytes = {256}; }) ==
      "tensor map 'q': rule 20 (count): strides_bytes has 1 entry: must have rank - 1 = 2: one for each dimension but "
      "the innermost; give them innermost first, in bytes");
  CHECK(diagnosis([](TensorMapArguments& a) {
          a.box = {64, 64}, a.element_strides = {1};
        }) ==
        "tensor map 'q': rule 20 (count): box has 2 entries: must have rank = 3: one for each dimension; use 1 for a "
        "dimension that is not tiled\n"
        "tensor map 'q': rule 20 (count): element_strides has 1 entry: must have rank = 3: one for each dimension; use "
        "1 to take every element");
  CHECK(diagnosis([](TensorMapArguments& a) { a.dims.clear(); }) ==
        "tensor map 'q': rule 3 (rank): rank = 0: must be 1 to 5; give at least one dimension");
  CHECK(diagnosis([](TensorMapArguments& a) { a.dims.assign(6, 8); }) ==
        "tensor map 'q': rule 3 (rank): rank = 6: must be 1 to 5; merge dimensions that are dense in one another");
  CHECK(
      diagnosis([](TensorMapArguments& a) {
        a.address = 8, a.element_strides = {1, 9, 1};
      }) ==
      "tensor map 'q': rule 11 (address_alignment): address = 0x8: must be a multiple of 16; it is 8 bytes past one: "
      "start the tensor at an aligned element, or copy it to an aligned buffer\n"
      "tensor map 'q': rule 16 (element_stride): element_strides[1] = 9: must be 1 to 8; use 1 to take every element");
}
