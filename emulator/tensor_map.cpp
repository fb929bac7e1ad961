#include "emulator/tensor_map.h"

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
};
static_assert(sizeof(Encoded) <= 128);

}  // namespace

void encode_tensor_map(const ResolvedTensorMap& map, TensorMapObject& out) {
  Encoded e;
  e.type = static_cast<std::uint8_t>(map.type);
  e.rank = static_cast<std::uint8_t>(map.rank);
  e.swizzle = static_cast<std::uint8_t>(map.swizzle);
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
    out.dims[i] = std::uint64_t{e.last_index[i]} + 1;
    out.box[i] = e.box[i];
    out.element_strides[i] = e.element_strides[i] == 0 ? 1 : e.element_strides[i];
    if (i + 1 < e.rank) out.stride_bytes[i] = e.strides[i];
  }
  return true;
}

}  // namespace tessera::emulator
