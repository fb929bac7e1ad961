// mHC's coefficients of a row in float64, from the product of its streams, and how wrong right ones may be: see
// reference/rows.h.
#pragma once

#include "reference/rows.h"
#include "tessera/row_chain.h"

namespace tessera::reference {

struct MixFacts {
  double eps = 1e-6;
  double squares = 0, of_squares = 0;  ///< of the streams, and the share of it by which it may err
  std::int64_t hidden = 16384;
  int iterations = 20;
};
struct MixCoefficients {
  std::vector<double> v, e;  ///< 24
};

/// product: 24 with their errors. base [24], scale [3].
/// mix_base's comb becomes nearly triangular where Sinkhorn has more than a few iterations: what is left of a triangle
/// shrinks with one over their number, so that the last one of twenty is seen. Of one seed in four it stays.
void slow_sinkhorn(Tensor& base, int iterations, std::uint64_t seed);

MixCoefficients mhc_coefficients(const RowValues& product, const Tensor& base, const Tensor& scale,
                                 const MixFacts& facts);

/// Those of a row of mhc_pre(product): parts are added.
MixCoefficients mix_of_products(const RowsRun& run, const std::map<std::string, Tensor>& in, const RowStepNames& names,
                                const RowStep& step, std::int64_t row);

}  // namespace tessera::reference
