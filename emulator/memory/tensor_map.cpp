#include "emulator/memory/tensor_map.h"

#include <algorithm>
#include <cstring>

namespace tessera::emulator {
namespace {

constexpr std::uint32_t kTag = 0x50414D54;  // "TMAP"

struct Encoded {
  std::uint32_t tag = kTag;
  std::uint8_t type = 0;
  std::uint8_t rank = 0;
  std::uint8_t swizzle = 0;
  std::uint8_t interleave = 0;
  std::uint64_t fill = 0;
  std::uint64_t address = 0;
  std::uint64_t strides[4] = {};
  std::uint32_t last_index[5] = {};
  std::uint16_t box[5] = {};
  std::uint8_t element_strides[5] = {};
  std::uint8_t mode = 0;  // tensormap.replace's swizzle_mode and swizzle_atomicity, of which swizzle is made
  std::uint8_t atomicity = 0;
};
static_assert(sizeof(Encoded) <= 128);

}  // namespace

void encode_tensor_map(const ResolvedTensorMap& map, TensorMapObject& out) {
  Encoded e;
  e.type = static_cast<std::uint8_t>(map.type);
  e.rank = static_cast<std::uint8_t>(map.rank);
  e.swizzle = static_cast<std::uint8_t>(map.swizzle);
  e.mode = std::min<std::uint8_t>(e.swizzle, 3);
  e.atomicity = static_cast<std::uint8_t>(e.swizzle - e.mode);
  e.interleave = static_cast<std::uint8_t>(map.interleave);
  e.fill = static_cast<std::uint64_t>(map.fill);
  e.address = map.address;
  for (std::size_t i = 0; i < map.rank && i < 5; ++i) {
    if (i + 1 < map.rank) e.strides[i] = map.strides_bytes[i];
    e.last_index[i] = static_cast<std::uint32_t>(map.dims[i] - 1);
    e.box[i] = static_cast<std::uint16_t>(map.box[i]);
    e.element_strides[i] = static_cast<std::uint8_t>(map.element_strides[i]);
  }
  out.bytes.fill(std::byte{0});
  std::memcpy(out.bytes.data(), &e, sizeof(e));
}

bool decode_tensor_map(std::span<const std::byte, 128> bytes, math::TensorTile& out, const char*& problem) {
  Encoded e;
  std::memcpy(&e, bytes.data(), sizeof(e));
  if (e.tag != kTag || e.rank < 1 || e.rank > 5 || e.type > 15) {
    problem = "the bytes at this address are not a tensor map";
    return false;
  }
  if (e.interleave != 0) {
    problem = "semantics unknown: interleaved layouts";
    return false;
  }
  out.type = static_cast<math::TileType>(e.type);
  out.rank = e.rank;
  out.swizzle = static_cast<math::Swizzle>(e.swizzle);
  if (!math::swizzle_is_settled(out.swizzle)) {
    problem = "semantics unknown: this swizzle mode";
    return false;
  }
  out.address = e.address;
  out.nan_fill = e.fill != 0;
  for (std::size_t i = 0; i < e.rank; ++i) {
    if (e.box[i] == 0) {
      problem = "a box dimension is zero: tensormap.replace never set it";
      return false;
    }
    out.dims[i] = std::uint64_t{e.last_index[i]} + 1;
    out.box[i] = e.box[i];
    out.element_strides[i] = e.element_strides[i] == 0 ? 1 : e.element_strides[i];
    if (i + 1 < e.rank) out.stride_bytes[i] = e.strides[i];
  }
  return true;
}

const char* replace_field(std::span<std::byte, 128> bytes, MapField field, std::uint32_t ordinal, std::uint64_t value) {
  // PTX's element types in the driver's numbers.
  constexpr std::uint8_t kDriverTypes[] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12, 13, 14, 15};
  Encoded e;
  std::memcpy(&e, bytes.data(), sizeof(e));
  const bool is_empty = std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  if (!is_empty && e.tag != kTag) return "the bytes at this address are neither a tensor map nor zero";
  e.tag = kTag;
  const bool is_indexed = field >= MapField::box_dim && field <= MapField::element_stride;
  if (is_indexed && ordinal > (field == MapField::global_stride ? 3u : 4u)) return "the ordinal is beyond the rank";
  switch (field) {
    case MapField::global_address:
      if (value % 16 != 0) return "global_address must be a multiple of 16";
      e.address = value;
      break;
    case MapField::rank:
      if (value > 4) return "rank is given minus one and is at most 4";
      e.rank = static_cast<std::uint8_t>(value + 1);
      break;
    case MapField::box_dim:
      if (value < 1 || value > 256) return "box_dim must be 1 to 256";
      e.box[ordinal] = static_cast<std::uint16_t>(value);
      break;
    case MapField::global_dim:
      // 2^32 does not fit the operand: its 32 bits are zero then, which nothing else means.
      e.last_index[ordinal] = static_cast<std::uint32_t>(value - 1);
      break;
    case MapField::global_stride:
      if (value % 16 != 0 || value >> 40 != 0) return "global_stride must be a multiple of 16 bytes below 2^40";
      e.strides[ordinal] = value;
      break;
    case MapField::element_stride:
      if (value < 1 || value > 8) return "element_stride must be 1 to 8";
      e.element_strides[ordinal] = static_cast<std::uint8_t>(value);
      break;
    case MapField::elemtype:
      if (value > 15) return "elemtype must be 0 to 15";
      e.type = kDriverTypes[value];
      break;
    case MapField::interleave_layout:
      if (value > 2) return "interleave_layout must be 0 to 2";
      e.interleave = static_cast<std::uint8_t>(value);
      break;
    case MapField::swizzle_mode:
      if (value > 3) return value == 4 ? "semantics unknown: 96-byte swizzle" : "swizzle_mode must be 0 to 4";
      e.mode = static_cast<std::uint8_t>(value);
      break;
    case MapField::swizzle_atomicity:
      if (value > 3) return "swizzle_atomicity must be 0 to 3";
      e.atomicity = static_cast<std::uint8_t>(value);
      break;
    case MapField::fill_mode:
      if (value > 1) return "fill_mode must be 0 or 1";
      e.fill = value;
      break;
  }
  // Only the 128-byte mode has other atoms than 16 bytes.
  e.swizzle = static_cast<std::uint8_t>(e.mode == 3 ? 3 + e.atomicity : e.mode);
  std::memcpy(bytes.data(), &e, sizeof(e));
  return nullptr;
}

}  // namespace tessera::emulator
