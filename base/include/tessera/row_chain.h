// Chains of row operators as text: "residual(store)+rmsnorm+rope(448..511,inverse)+nvfp4(0..447)+bf16(448..511)". What
// the parts are: tessera/spec/row_chain.h; what they compute and take: docs/rows.md.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/row_chain.h"

namespace tessera {

/// Throws Error{usage} that names the part, where in the text it stands and what was meant; a note points at it. Other
/// words (silu_mul, append_kv, ...) stand for parts. A chain that writes nothing gets `same` behind it, unless it ends
/// with a sum that is stored.
RowChain parse_row_chain(std::string_view text);

/// What parse_row_chain takes, each option once and in a fixed order: the same text for the same chain.
std::string to_text(const RowChain& chain);

/// The columns that a chain tells itself: those of mhc_mix or of a cache, or where every sink says its columns the last
/// of them; 0: it tells none.
int told_columns(const RowChain& chain);

/// Names of the buffers of one step, and of the sizes that are their rows' strides; empty where it has none. Of several
/// steps of a kind the second one's end in 2, the third one's in 3.
struct RowStepNames {
  std::string in, in2, in3, in4;      ///< residual, factor, weight, bias, the given scale; streams, mix, next_mix; x2
  std::string out, out2, out3;        ///< residual_out, y, y_scales, cache; streams_out, product, sum_squares
  std::string in_stride, out_stride;  ///< of pages: from one head to the next
};
std::vector<RowStepNames> row_step_names(const RowChain& chain);

// As a field of Problems (generator/field_table.h).
std::string to_field_text(const RowChain& chain);
void from_field_text(std::string_view text, RowChain& chain);
std::size_t field_hash(const RowChain& chain) noexcept;

}  // namespace tessera
