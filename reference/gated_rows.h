// Rows of products that something is done to before they are stored, in float64: their values before they are rounded
// to d's type, and what these may be wrong by (gemm_gated.h); which rows are looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/comparison.h"
#include "reference/gemm_gated.h"

namespace tessera::reference {

struct RowValue {
  double value = 0, error = 0, square = 0;
};

/// All values of one row of d.
void row_values(const GatedInputs& inputs, std::int64_t batch, std::int64_t row, std::vector<RowValue>& out);

/// Whether a row of d looks as it did before the launch.
using LooksUnwritten = std::function<bool(std::int64_t batch, std::int64_t row)>;

using VisitRow =
    std::function<void(std::int64_t batch, std::int64_t row, const std::vector<RowValue>& values, ElementSums& sums)>;

/// visit() for every row of [l, m, n] that is checked, on several threads; sums in the order of rows.
ElementSums over_rows(const GatedInputs& inputs, std::int64_t m, std::int64_t n, const LooksUnwritten& looks_unwritten,
                      std::int64_t& checked, const VisitRow& visit);

/// The verdict over d's elements, but for what was not written.
Comparison conclude_rows(const ElementSums& sums, const GatedInputs& inputs, std::int64_t l, std::int64_t m,
                         std::int64_t n);

}  // namespace tessera::reference
