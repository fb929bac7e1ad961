// Q, K and V of attention in NVFP4 on the host: what attention_quantize computes (spec/attention_quantize.h), the units
// that it writes read back, and the verdict over a kernel's outputs.
//
// Given the means, every code is defined: x - mean, amax / 6, x / scale in fp32, each rounded once, are compared bit by
// bit. The means are sums in an order that is the kernel's: u = 2^-24, n numbers x of at most N additions each err by
// N u sum |x|, with N = 128 for q, and 128 + ceil(seqlen_k / 128) for k; the division by u of the mean. delta_s and
// row_shift are head_dim fused multiply-adds: (head_dim + 2) u sum |a b|, against float64 of the means that were found.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/comparison.h"
#include "reference/tensor.h"

namespace tessera::reference {

/// Inputs of attention [batch, seqlen, heads, head_dim], any strides.
struct AttentionTensors {
  TensorView q, k, v;
};

/// Outputs by name: q_units, k_units, v_units, q_mean, k_mean, delta_s, row_shift; attention takes the first three as
/// q, k and v.
using QuantizedAttention = std::map<std::string, Tensor>;

/// fp32 of float64 means, q_mean and k_mean; zeros unless `smooths`.
QuantizedAttention attention_means(const AttentionTensors& x, bool smooths = true);

/// `means` are kept as they are. Throws Error{usage} for shapes that do not fit each other.
QuantizedAttention quantize_attention(const AttentionTensors& x, QuantizedAttention means);
inline QuantizedAttention quantize_attention(const AttentionTensors& x) {
  return quantize_attention(x, attention_means(x));
}

/// Numbers of one head of one sequence as the kernel that multiplies takes them: rows [.., head_dim].
struct UnitHead {
  std::int64_t rows = 0, head_dim = 0;
  std::vector<float> values;  ///< e2m1 times its scale: exact
  const float* row(std::int64_t i) const { return values.data() + i * head_dim; }
};
enum class UnitOperand { q, k, v };
/// units: [heads, blocks, bytes]; `first_block`: of the head's, where the sequence begins.
UnitHead decode_units(const TensorView& units, UnitOperand operand, std::int64_t head_dim, std::int64_t head,
                      std::int64_t first_block, std::int64_t rows);

/// Everything that a kernel wrote.
Comparison check_attention_quantize(const AttentionTensors& x, const QuantizedAttention& found, int jobs = 0);

}  // namespace tessera::reference
