// What follows from a chain of row parts alone, whatever a kernel's Config says: for kernels and for references.
#pragma once

#include "tessera/spec/row_chain.h"
#include "tessera/spec/types.h"

namespace tessera::rows {

// Whether rows of x are named by lists.
TESSERA_HD constexpr bool has_named_rows(const RowChain& chain) {
  return has_part(chain, RowPart::gather) || has_part(chain, RowPart::combine) || has_part(chain, RowPart::compress);
}

// mhc_post with a product: columns of a part, and parts. Sums of a row in each part: its products, its squares.
inline constexpr int kPartColumns = 128;
inline constexpr int kTotals = kMixColumns + 1;
TESSERA_HD constexpr int parts_of_product(int columns) { return static_cast<int>(ceil_div(columns, kPartColumns)); }

}  // namespace tessera::rows
