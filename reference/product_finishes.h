// From a product's sums to d, the right way first, then what people leave out or exchange on that way: for
// product_suspects.h, whichever family's kernel it was.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/gemm_gated.h"
#include "reference/product_suspects.h"

namespace tessera::reference {

/// What the sums are multiplied by: alpha without the operands' factors.
struct ProductFactors {
  double alpha = 1, scale_a = 1, scale_b = 1, scale_b2 = 1;
};

/// activation(alpha * sum + beta * c + bias), and what it may lack. check: alpha with the operands' factors in it.
std::vector<ProductSuspectInputs::Finish> finishes_of_sum(const GemmInputs& in, const GemmCheck& check,
                                                          const ProductFactors& factors);

/// A column's number; none: there is no such operand.
using OfColumn = std::function<double(std::int64_t column)>;

/// What check's gate makes of alpha * gate + bias and alpha_up * up + bias_up, and what may be wrong with it.
std::vector<ProductSuspectInputs::Finish> finishes_of_gate(const GemmCheck& check, double alpha_up,
                                                           const OfColumn& bias, const OfColumn& bias_up);

}  // namespace tessera::reference
