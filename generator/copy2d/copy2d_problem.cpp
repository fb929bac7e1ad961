#include "generator/copy2d/copy2d_problem.h"

#include "generator/field_table.h"

namespace tessera {

std::span<const Selector> copy2d_fields() {
  static const std::vector<Selector> table = {
      field<&Copy2d::arch>("arch", "arch", "target: sm_90a"),
      field<&Copy2d::dtype>("dtype", "dtype", "element type"),
      field<&Copy2d::rank>("rank", "rank", "dimensions of the tensor: 1 to 5"),
      field<&Copy2d::tile_inner>("tile-inner", "tile_inner", "elements of a tile along dimension 0"),
      field<&Copy2d::tile_outer>("tile-outer", "tile_outer", "rows of a tile along dimension 1"),
      field<&Copy2d::swizzle>("swizzle", "swizzle", "how TMA permutes a tile in shared memory"),
  };
  return table;
}

}  // namespace tessera
