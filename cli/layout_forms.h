// Instructions by their names: "mma.m16n8k64.mxf4nvf4", "mma.sp.m16n8k32.f16", "wgmma.m64n128k16.bf16",
// "ldmatrix.m8n8.x4.trans", "tcgen05.ld.32x32b.x8", or as PTX spells them in full. A spelling that does not exist is
// answered with those that do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/fragment.h"

namespace tessera::cli {

/// A matrix product: its shape, the bits of A's and B's elements in registers, what D may be.
struct ProductForm {
  bool is_wgmma = false;
  bool is_sparse = false;   ///< A holds half of its elements
  bool is_quarter = false;  ///< m8n8k4.f16: four products
  int m = 16, n = 8, k = 16;
  int bits = 16;  ///< of an element of A and B in its register
  std::string_view type;
  std::string_view container;             ///< how a narrow element sits in its byte; empty: it fills its bits
  int scale_vectors = 0;                  ///< bit set of the legal scale_vec: 1, 2, 4; 0: no block scales
  std::vector<std::string_view> results;  ///< D's types, the usual one first; if the name says it, that one alone
  int scale_vector = 0;                   ///< if the name says it
};
/// An instruction in PTX's own spelling as the short name that it stands for here, "mma.m16n8k16.bf16"; a short name as
/// it is. What only a full spelling says comes with it.
struct InstructionName {
  std::string text;
  std::string result;    ///< type of D; empty: not said
  int scale_vector = 0;  ///< 0: not said
};
InstructionName short_name(std::string_view spelling);

/// Throws Error{usage} with the legal spellings.
ProductForm parse_product(std::string_view name);
/// "2X (ue8m0, blocks of 32)": the scale_vec that the form takes.
std::string_view scale_vectors_text(const ProductForm& form);

/// A fragment that a move fills or empties: ldmatrix, stmatrix, tcgen05.ld, .st.
struct MoveForm {
  layout::FragmentShape shape;
  std::string row_axis, column_axis, note;
};
bool is_move(std::string_view name);
MoveForm parse_move(std::string_view name);

}  // namespace tessera::cli
