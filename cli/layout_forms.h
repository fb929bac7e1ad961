// Instructions by their names: "mma.m16n8k64.mxf4nvf4", "wgmma.m64n128k16.bf16", "ldmatrix.m8n8.x4.trans",
// "tcgen05.ld.32x32b.x8". A spelling that does not exist is answered with those that do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/fragment.h"

namespace tessera::cli {

/// A matrix product: its shape, the bits of A's and B's elements in registers, what D may be.
struct ProductForm {
  bool is_wgmma = false;
  int m = 16, n = 8, k = 16;
  int bits = 16;  ///< of an element of A and B in its register
  std::string_view type;
  std::string_view container;             ///< how a narrow element sits in its byte; empty: it fills its bits
  int scale_vectors = 0;                  ///< bit set of the legal scale_vec: 1, 2, 4; 0: no block scales
  std::vector<std::string_view> results;  ///< D's types, the usual one first
};
/// Throws Error{usage} with the legal spellings.
ProductForm parse_product(std::string_view name);

/// A fragment that a move fills or empties: ldmatrix, stmatrix, tcgen05.ld, .st.
struct MoveForm {
  layout::FragmentShape shape;
  std::string row_axis, column_axis, note;
};
bool is_move(std::string_view name);
MoveForm parse_move(std::string_view name);

}  // namespace tessera::cli
