// mHC's product in float64, and how wrong a right one may be.
//
// With u = 2^-24, k elements of a row, A = sum |a b| and N the root of sum (a b)^2:
//   b as two bf16 numbers errs by 2^-17 of itself; a is exact
//   d            the products of sixteen are added at a time, and cut off: at most (k / 8 + 64) 4 u A in all. Errors of
//                random numbers: the same with N in place of A
//   sum_squares  at most (k / 4 + 64) u of itself
// Part s of `splits` has the 64 columns from floor(chunks s / splits) 64 on, chunks = ceil(k / 64).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"

namespace tessera::reference {

struct MhcProductRun {
  std::int64_t m = 0, n = 24, k = 0, splits = 1;
};

/// a [m, k] and b [n, k].
std::map<std::string, Tensor> mhc_product_inputs(const MhcProductRun& run, Fill kind, std::uint64_t seed);

/// d [m, n] and sum_squares [m], with splits one extent more in front. Every element is compared; a mistake under which
/// wrong ones become right is named. Throws Error{usage}
/// for shapes that do not fit.
Comparison check_mhc_product(const MhcProductRun& run, const TensorView& a, const TensorView& b, const TensorView& d,
                             const TensorView& sum_squares, int jobs = 0);

}  // namespace tessera::reference
