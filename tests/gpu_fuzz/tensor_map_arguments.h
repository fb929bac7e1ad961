// The arguments of one cuTensorMapEncodeTiled call exactly as the driver takes them: enumerators as plain integers, a
// rank that need not fit the arrays, pointers that may be null. ResolvedTensorMap cannot hold all of that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tessera/tensor_map.h"

namespace tessera {

inline constexpr std::uint32_t kRawEntries = 8;  // more than any rank, so that a wrong rank reads no foreign memory

enum RawNull : std::uint32_t {
  kNullObject = 1,
  kNullDims = 2,
  kNullStrides = 4,
  kNullBox = 8,
  kNullElementStrides = 16
};

struct RawMap {
  int type = 0;
  std::uint32_t rank = 1;
  std::uint64_t address = 0;
  std::uint64_t dims[kRawEntries] = {1, 1, 1, 1, 1, 1, 1, 1};
  std::uint64_t strides[kRawEntries] = {};
  std::uint32_t box[kRawEntries] = {16, 1, 1, 1, 1, 1, 1, 1};
  std::uint32_t element_strides[kRawEntries] = {1, 1, 1, 1, 1, 1, 1, 1};
  int interleave = 0;
  int swizzle = 0;
  int l2_promotion = 0;
  int fill = 0;
  std::uint32_t nulls = 0;
};

/// One case of the committed table: the arguments, the rule that decides it (0: none) and what the driver said.
struct TensorMapCase {
  int rule;
  int driver_result;  ///< CUresult: 0 accepted, 1 invalid value
  RawMap arguments;
};

template <class E>
E enumerator(int value) {
  return static_cast<E>(value < 0 || value > 255 ? 255 : value);
}

/// What of the raw arguments a ResolvedTensorMap can say; enumerators beyond its 8 bits become 255.
inline ResolvedTensorMap resolved(const RawMap& raw) {
  ResolvedTensorMap map;
  map.type = enumerator<TensorMapType>(raw.type);
  map.rank = raw.rank;
  map.address = raw.address;
  std::copy_n(raw.dims, 5, map.dims.begin());
  std::copy_n(raw.strides, 5, map.strides_bytes.begin());
  std::copy_n(raw.box, 5, map.box.begin());
  std::copy_n(raw.element_strides, 5, map.element_strides.begin());
  map.interleave = enumerator<TensorMapInterleave>(raw.interleave);
  map.swizzle = enumerator<TensorMapSwizzle>(raw.swizzle);
  map.l2_promotion = enumerator<TensorMapL2Promotion>(raw.l2_promotion);
  map.fill = enumerator<TensorMapFill>(raw.fill);
  return map;
}

/// Our verdict on the raw arguments.
inline TensorMapRule verdict(const RawMap& raw, TensorMapTarget target) {
  return raw.nulls != 0 ? TensorMapRule::count : first_broken_rule(resolved(raw), target);
}

template <class T>
std::string initializer(const T* values, std::uint32_t count) {
  std::string text = "{";
  for (std::uint32_t i = 0; i < count; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(values[i]) + (values[i] >> 31 != 0 ? "u" : "");
  return text + "}";
}

/// The arguments as an initialiser of RawMap, in the order of its fields; entries past the rank are left out.
inline std::string initializer(const RawMap& raw) {
  const std::uint32_t n = std::min(raw.rank, kRawEntries);
  return "{" + std::to_string(raw.type) + ", " + std::to_string(raw.rank) + "u, " + std::to_string(raw.address) +
         "u, " + initializer(raw.dims, n) + ", " + initializer(raw.strides, n == 0 ? 0 : n - 1) + ", " +
         initializer(raw.box, n) + ", " + initializer(raw.element_strides, n) + ", " + std::to_string(raw.interleave) +
         ", " + std::to_string(raw.swizzle) + ", " + std::to_string(raw.l2_promotion) + ", " +
         std::to_string(raw.fill) + ", " + std::to_string(raw.nulls) + "}";
}

}  // namespace tessera
