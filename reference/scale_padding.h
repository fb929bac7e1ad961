// What bytes of scales in tiles hold that belong to no block. A kernel that takes one for a scale must give another
// result, so half of the rows have NaN there, the others numbers near 1: a NaN gets lost where a maximum is sought, a
// number where it is multiplied with the zeros behind k.
#pragma once

#include <cstdint>

#include "reference/tensor.h"
#include "tessera/spec/block_scale.h"

namespace tessera::reference {

/// Fills all bytes of [.., k tiles, 32, 4, 4], those of blocks too, which the caller then sets; plain scales have none.
void fill_scale_padding(Tensor& scales, ScaleType type, std::uint64_t seed, std::uint64_t stream);

}  // namespace tessera::reference
