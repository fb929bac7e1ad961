// Tensor maps as this device encodes them: 128 bytes of its own.
//
// Word 0 tag, type, rank, swizzle, interleave; word 1 fill in its low byte and nothing else (software for real maps
// clears bit 21 of it); word 2 address; then strides, dimensions minus one, box, element strides.
#pragma once

#include <span>

#include "emulator/math/tile_copy.h"
#include "tessera/tensor_map.h"

namespace tessera::emulator {

void encode_tensor_map(const ResolvedTensorMap& map, TensorMapObject& out);

/// False with a reason when the bytes are no map of ours, or one that is not executed (interleave, unsettled swizzle).
bool decode_tensor_map(std::span<const std::byte, 128> bytes, math::TensorTile& out, const char*& problem);

/// What tensormap.replace can change. PTX ISA, "tensormap.replace".
enum class MapField : std::uint8_t {
  global_address,
  rank,
  box_dim,
  global_dim,
  global_stride,
  element_stride,
  elemtype,
  interleave_layout,
  swizzle_mode,
  swizzle_atomicity,
  fill_mode
};

/// Changes one field of an encoded map in place; 128 zero bytes are an empty map that kernels may fill field by field.
/// `ordinal` is the dimension of box_dim, global_dim, global_stride and element_stride. Values are PTX's: types and
/// swizzle modes in its own numbers, rank minus one, strides in bytes. nullptr, or what is wrong with the value.
const char* replace_field(std::span<std::byte, 128> bytes, MapField field, std::uint32_t ordinal, std::uint64_t value);

}  // namespace tessera::emulator
