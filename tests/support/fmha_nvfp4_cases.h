// Running attention of NVFP4 operands on a device and judging it, for the emulator's and the GPU's tests.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "reference/attention_quantize.h"
#include "reference/fmha.h"
#include "reference/fmha_nvfp4.h"
#include "tessera/problem.h"
#include "tests/support/block_scale_cases.h"

namespace tessera {

struct Nvfp4Facts {
  std::int64_t window_size_left = -1, window_size_right = -1;
  double softmax_scale = 0;  ///< 0: 1 / sqrt(head_dim)
  int num_sms = 3;
};

/// Attention's inputs of what attention_quantize wrote.
inline reference::Tensors nvfp4_operands(reference::QuantizedAttention quantized) {
  reference::Tensors inputs;
  for (const auto& [name, of] : {std::pair("q", "q_units"), std::pair("k", "k_units"), std::pair("v", "v_units"),
                                 std::pair("delta_s", "delta_s"), std::pair("row_shift", "row_shift")})
    inputs.emplace(name, std::move(quantized.at(of)));
  return inputs;
}

/// Launches and compares; what is wrong, or nothing. Outputs, if they are wanted.
inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const Plan& plan,
                                      const reference::FmhaSizes& s, const reference::Tensors& inputs,
                                      const Nvfp4Facts& facts, reference::Tensors* written = nullptr) {
  std::vector<std::string> problems;
  const auto& problem = plan.problem.as<Fmha>();
  NamedSizes sizes{{"batch", s.batch},       {"heads_q", s.heads_q},   {"heads_kv", s.heads_kv},
                   {"seqlen_q", s.seqlen_q}, {"seqlen_k", s.seqlen_k}, {"num_sms", facts.num_sms}};
  if (problem.window == Window::sliding) {
    sizes["window_size_left"] = facts.window_size_left;
    sizes["window_size_right"] = facts.window_size_right;
  }
  reference::Nvfp4Check check;
  check.mask = problem.mask;
  if (problem.window == Window::sliding) {
    check.window_size_left = facts.window_size_left;
    check.window_size_right = facts.window_size_right;
  }
  check.seqlen_k = s.seqlen_k;
  check.softmax_scale =
      facts.softmax_scale == 0 ? 1 / std::sqrt(static_cast<double>(problem.head_dim)) : facts.softmax_scale;
  check.tile_m = plan.number("tile_m");
  check.tile_n = plan.number("tile_n");
  check.jobs = 1;
  const reference::Tensors outputs = launch_once(device, launcher, sizes, {check.softmax_scale}, inputs, problems);
  const auto of = [&](const char* name) { return inputs.at(name).view(); };
  const reference::Comparison result =
      reference::check_fmha_nvfp4({of("q"), of("k"), of("v"), of("delta_s"), of("row_shift")},
                                  {outputs.at("o").view(), outputs.at("lse").view()}, check);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  if (written != nullptr) *written = outputs;
  return problems;
}

inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const Plan& plan,
                                      reference::FmhaSizes s, reference::Fill fill, std::uint64_t seed,
                                      const Nvfp4Facts& facts) {
  s.head_dim = plan.problem.as<Fmha>().head_dim;
  const reference::FmhaTensors made = reference::make_inputs(s, DType::bf16, fill, seed);
  return judge(device, launcher, plan, s,
               nvfp4_operands(reference::quantize_attention({made.q.view(), made.k.view(), made.v.view()})), facts);
}

}  // namespace tessera
