// Running attention_quantize on a device and judging it, for the emulator's and the GPU's tests.
#pragma once

#include <string>
#include <vector>

#include "reference/attention_quantize.h"
#include "reference/fmha.h"
#include "tessera/problem.h"
#include "tests/support/block_scale_cases.h"

namespace tessera {

/// Launches and compares; what is wrong, or nothing.
inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const AttentionQuantize& problem,
                                      reference::FmhaSizes s, reference::Fill fill, std::uint64_t seed) {
  std::vector<std::string> problems;
  s.head_dim = problem.head_dim;
  reference::FmhaTensors made = reference::make_inputs(s, problem.dtype, fill, seed);
  reference::Tensors inputs;
  for (auto& [name, tensor] : {std::pair("q", &made.q), std::pair("k", &made.k), std::pair("v", &made.v)})
    inputs.emplace(name, std::move(*tensor));
  const reference::Tensors outputs = launch_once(device, launcher,
                                                 {{"batch", s.batch},
                                                  {"heads_q", s.heads_q},
                                                  {"heads_kv", s.heads_kv},
                                                  {"seqlen_q", s.seqlen_q},
                                                  {"seqlen_k", s.seqlen_k}},
                                                 {}, inputs, problems);
  const reference::Comparison result = reference::check_attention_quantize(
      {inputs.at("q").view(), inputs.at("k").view(), inputs.at("v").view()}, outputs, 1);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  return problems;
}

}  // namespace tessera
