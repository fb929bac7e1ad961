// Weights of four bits from rows [l, n, k / 2] and their scales to the blocks that products on sm_90a read
// (spec/packed_weights.h). Codes and scales are what they were: nothing is rounded.
//
// Scales of e2m1 come in either form of their format; those of int4 are 16-bit numbers [l, n, k / group], zero points
// bytes of the same shape. int4 is two's complement without zero points, 0 to 15 with them.
//
// A CTA makes a block of 64 rows and 128 of k: a thread 16 bytes of codes, and scales a word at a time. Entry
// parameters: const void* values, const void* scales, const void* zeros (zero points only), void* packed, int n, int k.
// Launch: grid {ceil(n / 64) * ceil(k / 128), l}, block {256, 1, 1}.
#pragma once

#include "spec/packed_weights.h"
#include "tessera/spec/block_scale.h"

namespace tessera::pack_weights {

inline constexpr int kNumThreads = 256;

struct Config {
  WeightFormat format = WeightFormat::mxfp4;
  ScaleForm scale_form = ScaleForm::plain;
  DType dtype = DType::bf16;  // of int4's scales: that of the activations
  int group = 128;            // int4: k that share a scale
  ZeroPoints zero_points = ZeroPoints::none;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

enum class Rule {
  ok,
  facts_of_int4,  // 1; 0
  form_of_int4,   // 1; 0
  dtype_of_int4,  // bytes of the type; 2
  group_of_int4,  // k that share a scale; 128
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  const bool is_int4 = c.format == WeightFormat::int4;
  if (!is_int4 && (c.group != kWeightDepth || c.zero_points != ZeroPoints::none)) return {Rule::facts_of_int4, 1, 0};
  if (is_int4 && c.scale_form != ScaleForm::plain) return {Rule::form_of_int4, 1, 0};
  if (c.dtype != DType::bf16 && c.dtype != DType::f16) return {Rule::dtype_of_int4, dtype_bytes(c.dtype), 2};
  if (c.group != 32 && c.group != 64 && c.group != kWeightDepth) return {Rule::group_of_int4, c.group, kWeightDepth};
  return {};
}

TESSERA_HD constexpr PackedWeights weights(const Config& c) {
  const OperandType type = operand_type(c.format);
  return {type, is_e2m1(type) ? block_elements(block_format(type)) : c.group, c.zero_points == ZeroPoints::given};
}

}  // namespace tessera::pack_weights
