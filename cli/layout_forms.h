// Instructions by their names: "mma.m16n8k64.mxf4nvf4", "mma.sp.m16n8k32.f16", "wgmma.m64n128k16.bf16",
// "ldmatrix.m8n8.x4.trans", "tcgen05.ld.32x32b.x8", or as PTX spells them in full. A spelling that does not exist is
// answered with those that do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/fragment.h"

namespace tessera::cli {

/// The parts between the dots.
std::vector<std::string_view> words_of(std::string_view spelling);
/// Numbers of "m64n128k16"; false for another form.
bool parse_shape(std::string_view text, int& m, int& n, int& k);

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
  bool has_narrow_kind = false;           ///< kind::f8f6f4
};

/// The words of a product's name, short or as PTX spells it in full.
struct ProductName {
  std::string_view spelling, family, shape;
  std::string_view type;                ///< A's, or the kind where that says it: "mxf4"
  std::string_view kind;                ///< after kind::
  std::vector<std::string_view> types;  ///< in their order
  bool is_sparse = false;
  bool is_full = false;  ///< it has words of PTX that a short name has not
  int scale_vector = 0;  ///< 0: not said
};
/// Throws Error{usage} for words that no product has. Whether they belong together is the form's question.
ProductName read_product_name(std::string_view spelling);
/// Throws Error{usage} where types do not go together, or PTX spells it otherwise.
void check_product_name(const ProductName& name, const ProductForm& form);
/// The whole of PTX's spelling. result: one of the form's; vector: 0 takes the usual one.
std::string ptx_spelling(const ProductForm& form, std::string_view result, int vector);

/// Throws Error{usage} with the legal spellings.
ProductForm parse_product(std::string_view spelling);
/// "2X (ue8m0, blocks of 32)": the scale_vec that the form takes.
std::string_view scale_vectors_text(const ProductForm& form);

/// A fragment that a move fills or empties: ldmatrix, stmatrix, tcgen05.ld, .st.
struct MoveForm {
  layout::FragmentShape shape;
  std::string row_axis, column_axis, note;
  std::string ptx;  ///< PTX's spelling
};
bool is_move(std::string_view name);
MoveForm parse_move(std::string_view spelling);

}  // namespace tessera::cli
