// Mistakes in products of stored operands, for likely_cause(): scales and values that are taken from a wrong place,
// descriptors that are wrong, parts of k that are left out, results in a wrong place, factors that are forgotten.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "reference/likely_cause.h"
#include "reference/operand_mistakes.h"
#include "reference/operand_source.h"

namespace tessera::reference {

/// d[matrix][row][column] of a product, or of two with a gate. The functions take the place in d.
struct ProductSuspectInputs {
  OperandSource a, b;
  std::optional<OperandSource> b2;  ///< dual gate
  bool has_gate = false;
  /// Rows of b that make a column of d: of the gate and of up, or of the only product.
  std::function<std::int64_t(std::int64_t column, bool is_up)> row_of_b;
  /// Of each product, besides: fp32 factors of blocks. Empty: 1.
  std::function<double(const Coordinates& at, std::int64_t row_of_b, std::int64_t k)> factor;
  std::int64_t rows = 0, columns = 0;  ///< of d
  ProductSteps steps;
  /// From sums to d: the right way first, then others with what is wrong with them.
  struct Finish {
    std::string cause;
    std::function<double(double sum, double up, const Coordinates& at)> apply;
  };
  std::vector<Finish> finishes;
  /// What roundings may change of a result, given the sum of its terms' magnitudes times the factor.
  std::function<double(double result, double magnitude)> slack;
};

/// What the product is without a mistake of its own: for inputs that are one.
std::function<Guess(const Coordinates&)> product_guess(const ProductSuspectInputs& inputs);

std::vector<Suspect> product_suspects(const ProductSuspectInputs& inputs);

}  // namespace tessera::reference
