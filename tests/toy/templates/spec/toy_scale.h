// The smallest operator there can be: y[i] = activation(alpha * x[i]) for i < n, fp32. A thread has `elements` in a
// row.
//
// Entry parameters: float* x, float* y, int n, float alpha. Launch: grid {ceil(n / (threads * elements)), 1, 1}, block
// {threads, 1, 1}, no shared memory.
#pragma once

#include "tessera/spec/types.h"

namespace tessera::toy_scale {

struct Config {
  Activation activation = Activation::none;
  int threads = 128;
  int elements = 1;

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

enum class Rule {
  ok,
  activation_unknown,          // 1; 0
  threads_not_multiple_of_32,  // threads; 32
  threads_out_of_range,        // threads; 1,024
};

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config& c) {
  if (c.activation != Activation::none && c.activation != Activation::relu) return {Rule::activation_unknown, 1, 0};
  if (c.threads % 32 != 0) return {Rule::threads_not_multiple_of_32, c.threads, 32};
  if (c.threads < 32 || c.threads > 1024) return {Rule::threads_out_of_range, c.threads, 1024};
  return {};
}

}  // namespace tessera::toy_scale
