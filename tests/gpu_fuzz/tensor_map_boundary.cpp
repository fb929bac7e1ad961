// The committed table's cases: for each rule a minimal legal set with one argument moved across each bound.
#include "tests/gpu_fuzz/tensor_map_generator.h"

namespace tessera {
namespace {

class Cases {
 public:
  // Adds the base changed by change(map, value) for each value.
  template <class F, class V>
  void vary(const RawMap& base, std::initializer_list<V> values, F change) {
    for (const V value : values) {
      RawMap map = base;
      change(map, value);
      cases.push_back(map);
    }
  }
  std::vector<RawMap> cases;
};

RawMap base_of(std::uint32_t rank, int interleave = 0) {
  RawMap map;
  map.rank = rank;
  map.interleave = interleave;
  return map;
}

void choices(Cases& out) {
  for (int type = -1; type <= 17; ++type) {
    RawMap map = base_of(1);
    map.type = type;
    map.box[0] = 128;  // a multiple of 16 bytes in every type, and what the padded packed types ask for
    map.dims[0] = 128;
    map.fill = 0;
    out.cases.push_back(map);
    map.fill = 1;
    out.cases.push_back(map);
  }
  for (int interleave = 0; interleave <= 2; ++interleave)
    out.vary(base_of(1, interleave), {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u}, [](RawMap& m, std::uint32_t v) { m.rank = v; });
  out.vary(base_of(3), {-1, 0, 1, 2, 3, 256, 65537}, [](RawMap& m, int v) { m.interleave = v; });
  for (int interleave = 0; interleave <= 2; ++interleave)
    out.vary(base_of(3, interleave), {-1, 0, 1, 2, 3, 4, 5, 6, 7, 256, 65537}, [](RawMap& m, int v) { m.swizzle = v; });
  out.vary(base_of(1), {-1, 0, 1, 2, 3, 4, 256}, [](RawMap& m, int v) { m.l2_promotion = v; });
  for (const int type : {0, 7})
    for (const int fill : {-1, 0, 1, 2, 256}) {
      RawMap map = base_of(1);
      map.type = type;
      map.fill = fill;
      out.cases.push_back(map);
    }
  for (const std::uint32_t null : {kNullObject, kNullDims, kNullStrides, kNullBox, kNullElementStrides})
    for (const std::uint32_t rank : {1u, 2u}) {
      RawMap map = base_of(rank);
      map.nulls = null;
      out.cases.push_back(map);
    }
}

void numbers(Cases& out) {
  for (int interleave = 0; interleave <= 2; ++interleave) {
    const RawMap base = base_of(3, interleave);
    out.vary(base, {0ull, 1ull, 2ull, 4ull, 8ull, 15ull, 16ull, 17ull, 24ull, 31ull, 32ull, 33ull, 48ull, 64ull},
             [](RawMap& m, std::uint64_t v) { m.address = v; });
    out.vary(base,
             {(1ull << 57) - 64, (1ull << 57) - 32, (1ull << 57) - 16, 1ull << 57, (1ull << 57) + 32, 1ull << 63,
              ~0ull - 31},
             [](RawMap& m, std::uint64_t v) { m.address = v; });
    for (std::uint32_t i = 0; i < 2; ++i)
      out.vary(base,
               {1ull, 8ull, 15ull, 16ull, 17ull, 24ull, 32ull, 48ull, (1ull << 40) - 64, (1ull << 40) - 32,
                (1ull << 40) - 16, 1ull << 40, (1ull << 40) + 32, 1ull << 41, 1ull << 63},
               [i](RawMap& m, std::uint64_t v) { m.strides[i] = v; });
  }
  const RawMap base = base_of(5);
  for (std::uint32_t i = 0; i < 5; ++i) {
    out.vary(base, {0ull, 1ull, 2ull, (1ull << 32) - 1, 1ull << 32, (1ull << 32) + 1, 1ull << 33, 1ull << 63},
             [i](RawMap& m, std::uint64_t v) { m.dims[i] = v; });
    out.vary(base, {0u, 1u, 255u, 256u, 257u, 512u, 1u << 16, 1u << 31},
             [i](RawMap& m, std::uint32_t v) { m.box[i] = v; });
    out.vary(base, {0u, 1u, 2u, 7u, 8u, 9u, 16u, 256u, 1u << 31},
             [i](RawMap& m, std::uint32_t v) { m.element_strides[i] = v; });
  }
}

void boxes(Cases& out) {
  constexpr int kBytes[13] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  for (int type = 0; type <= 12; ++type) {
    const std::uint32_t unit = 16u / static_cast<std::uint32_t>(kBytes[type]);
    RawMap base = base_of(3);
    base.type = type;
    for (int interleave = 0; interleave <= 2; ++interleave) {
      base.interleave = interleave;
      out.vary(base, {unit - 1, unit, unit + 1, 2 * unit, 256 - unit, 256u - unit / 2},
               [](RawMap& m, std::uint32_t v) { m.box[0] = v; });
    }
    base.interleave = 0;
    for (int swizzle = 1; swizzle <= 3; ++swizzle) {
      base.swizzle = swizzle;
      const std::uint32_t span = unit << swizzle;  // 32, 64, 128 bytes
      out.vary(base, {unit, span - unit, span, span + unit}, [](RawMap& m, std::uint32_t v) { m.box[0] = v; });
    }
    base.interleave = 1;  // no span with interleave
    base.swizzle = 1;
    base.box[0] = 4 * unit;
    out.cases.push_back(base);
  }
  // The footprint: 16 * 57 * 256 = 233,472; then the next smaller step above it, with and without element strides.
  struct Box {
    int type;
    std::uint32_t box[3];
    std::uint32_t strides[3];
  };
  constexpr Box kBoxes[] = {
      {0, {16, 57, 256}, {1, 1, 1}},  {0, {16, 58, 252}, {1, 1, 1}},   {0, {16, 105, 139}, {1, 1, 1}},
      {0, {256, 228, 4}, {1, 1, 1}},  {0, {256, 229, 4}, {1, 1, 1}},   {0, {48, 64, 76}, {1, 1, 1}},
      {0, {48, 65, 75}, {1, 1, 1}},   {8, {2, 114, 128}, {1, 1, 1}},   {8, {2, 115, 128}, {1, 1, 1}},
      {9, {64, 256, 8}, {1, 1, 1}},   {9, {64, 256, 8}, {1, 2, 1}},    {9, {64, 255, 8}, {1, 2, 1}},
      {9, {256, 256, 2}, {1, 1, 1}},  {9, {256, 256, 2}, {2, 1, 1}},   {0, {256, 256, 5}, {1, 1, 6}},
      {0, {256, 256, 11}, {1, 1, 6}}, {0, {256, 256, 256}, {8, 8, 8}}, {0, {256, 256, 256}, {8, 8, 1}},
      {0, {16, 116, 255}, {1, 2, 1}}, {0, {16, 115, 256}, {1, 2, 1}},  {0, {16, 57, 256}, {1, 1, 1}},
      {0, {256, 256, 1}, {1, 1, 5}},  {0, {256, 256, 256}, {1, 1, 8}}, {0, {240, 244, 4}, {1, 1, 1}}};
  for (const Box& box : kBoxes) {
    RawMap map = base_of(3);
    map.type = box.type;
    std::copy_n(box.box, 3, map.box);
    std::copy_n(box.strides, 3, map.element_strides);
    out.cases.push_back(map);
  }
}

}  // namespace

std::vector<RawMap> boundary_cases() {
  Cases out;
  choices(out);
  numbers(out);
  boxes(out);
  return std::move(out.cases);
}

}  // namespace tessera
