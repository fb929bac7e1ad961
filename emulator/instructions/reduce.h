// The reductions that bulk copies do in global memory. PTX ISA, "cp.reduce.async.bulk".
#pragma once

#include <cstddef>

#include "emulator/math/tile_copy.h"
#include "emulator/syntax/types.h"

namespace tessera::emulator {

struct BulkReduce {
  enum class Op : std::uint8_t { none, add, min, max, inc, dec, and_, or_, xor_ };
  Op op = Op::none;
  Type type = Type::u32;

  /// False when the operation does not exist for the type.
  bool set_type(math::TileType tile_type);
  bool set_type(Type element);
  /// old = old op value, element by element.
  void apply(std::byte* old, const std::byte* value, std::size_t bytes) const;
};

}  // namespace tessera::emulator
