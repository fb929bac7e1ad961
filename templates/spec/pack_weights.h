// Weights of four bits from rows [l, n, k / 2] and their scales, in either form, to the blocks that products on sm_90a
// read (spec/packed_weights.h). Codes and scales are what they were: nothing is rounded.
//
// A CTA makes a block of 64 rows and 128 of k, a thread a word at a time. Entry parameters: const void* values, const
// void* scales, void* packed, int n, int k. Launch: grid {ceil(n / 64) * ceil(k / 128), l}, block {256, 1, 1}.
#pragma once

#include "spec/packed_weights.h"
#include "tessera/spec/block_scale.h"

namespace tessera::pack_weights {

inline constexpr int kNumThreads = 256;

struct Config {
  BlockFormat format = BlockFormat::mxfp4;
  ScaleForm scale_form = ScaleForm::plain;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

enum class Rule {
  ok,
  format_not_4_bit,  // bits of a value; 4
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (value_bits(c.format) != 4) return {Rule::format_not_4_bit, value_bits(c.format), 4};
  return {};
}

TESSERA_HD constexpr PackedWeights weights(const Config& c) {
  return {operand_type(c.format), block_elements(c.format), false};
}

}  // namespace tessera::pack_weights
