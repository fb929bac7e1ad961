// What people get wrong where an operand of a product is fetched: values and scales from a place that is not theirs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/operand_source.h"

namespace tessera::reference {

/// How a kernel walks along k, and which rows lie side by side in shared memory.
struct ProductSteps {
  std::int64_t step = 0;                ///< elements of k
  std::int64_t chunk = 0;               ///< of one instruction, or lane
  int split_k = 1;                      ///< parts of k
  int bits = 8;                         ///< of a value in shared memory
  std::int64_t tile_a = 0, tile_b = 0;  ///< rows of a tile; 0: operands do not go through swizzled shared memory
};

struct Place {
  std::int64_t matrix = 0, row = 0, k = 0;
};
using Fetch = std::function<double(const OperandSource& from, const Place& at)>;

/// Text with {} for the operands. Empty functions fetch what is right.
struct Mistake {
  std::string text;
  Fetch value, scale;
  bool is_order_within_block = false;  ///< of either operand of a product it gives the same sums
};

/// tile_rows: of this operand; 0: as in ProductSteps. Those that are likelier, or say more, first.
std::vector<Mistake> operand_mistakes(const OperandSource& operand, const ProductSteps& steps, std::int64_t tile_rows);

}  // namespace tessera::reference
