// What mhc_post(product) and mhc_pre(product) write beside rows.
#pragma once

#include "reference/rows.h"
#include "tessera/row_chain.h"

namespace tessera::reference {

/// A row's part sums, of the streams that were stored: [part][24 and the sum of squares].
void check_product(const RowsRun& run, const std::map<std::string, Tensor>& in,
                   const std::map<std::string, Tensor>& out, const RowStepNames& names, std::int64_t row,
                   ElementSums& sums);

/// A row's 24 coefficients.
void check_mix(const RowValues& values, const Tensor& out, std::int64_t row, ElementSums& sums);

/// Inputs of both.
void add_product_inputs(const RowsRun& run, const RowStep& step, const RowStepNames& names, std::uint64_t seed,
                        std::map<std::string, Tensor>& made);

}  // namespace tessera::reference
