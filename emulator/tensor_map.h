// Tensor maps as this device encodes them: 128 bytes of its own.
//
// Word 0 tag, type, rank, swizzle, interleave; word 1 fill in its low byte and nothing else (software for real maps
// clears bit 21 of it); word 2 address; then strides, dimensions minus one, box, element strides.
#pragma once

#include <span>

#include "base/tensor_map.h"
#include "emulator/math/tile_copy.h"

namespace tessera::emulator {

void encode_tensor_map(const ResolvedTensorMap& map, TensorMapObject& out);

/// False with a reason when the bytes are no map of ours, or one that is not executed (interleave, unsettled swizzle).
bool decode_tensor_map(std::span<const std::byte, 128> bytes, math::TensorTile& out, const char*& problem);

}  // namespace tessera::emulator
