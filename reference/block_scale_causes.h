// Codes of a block-scaled tensor beside those of the reference: where they differ, in which pattern, and which mistake
// gives what was found. For quantize, dequantize and convert_scales.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/comparison.h"
#include "reference/likely_cause.h"
#include "reference/quantize.h"
#include "reference/tensor.h"

namespace tessera::reference {

/// [l, rows, columns] codes: values by k, or scales by block.
struct CodeTensor {
  std::span<const std::uint8_t> bytes;
  std::int64_t l = 0, rows = 0, columns = 0;
  int bits = 8;                              ///< 4: two a byte, the lower column in the low bits
  ScaleForm form = ScaleForm::plain;         ///< tile: of scales
  double (*decode)(std::uint8_t) = nullptr;  ///< for messages

  std::uint8_t at(std::int64_t matrix, std::int64_t row, std::int64_t column) const;
};

/// Adds what is wrong to `result.problems`, and the errors of the numbers to its figures. Padding of tiles must be 0.
/// suspects: guesses are codes.
void compare_codes(const char* name, const CodeTensor& found, const CodeTensor& expected, const char* column_name,
                   const std::vector<Suspect>& suspects, Comparison& result);

/// Codes of the right ones at another place.
std::vector<Suspect> moved_values(const CodeTensor& expected);
std::vector<Suspect> moved_scales(const CodeTensor& expected);
/// Codes of another rule: rounding, the global scale, the block's largest magnitude. x: [l, rows, k].
std::vector<Suspect> rules_of_values(const TensorView& x, const QuantizeRule& rule);
std::vector<Suspect> rules_of_scales(const TensorView& x, const QuantizeRule& rule);

}  // namespace tessera::reference
