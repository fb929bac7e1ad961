// Running a merge of parts of attention on a device and judging it, for the emulator's and the GPU's tests.
#pragma once

#include <string>
#include <vector>

#include "reference/merge.h"
#include "tessera/problem.h"
#include "tests/support/block_scale_cases.h"

namespace tessera {

/// Launches and compares; what is wrong, or nothing.
inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const reference::MergeSizes& s,
                                      const reference::Tensors& inputs) {
  std::vector<std::string> problems;
  const reference::Tensors outputs = launch_once(
      device, launcher, {{"parts", s.parts}, {"batch", s.batch}, {"heads_q", s.heads_q}, {"seqlen_q", s.seqlen_q}}, {},
      inputs, problems);
  reference::MergeOperands in{inputs.at("o_parts").view(), inputs.at("lse_parts").view()};
  if (const auto sink = inputs.find("sink"); sink != inputs.end()) in.sink = sink->second.view();
  const reference::Comparison result =
      reference::check_merge(in, {outputs.at("o").view(), outputs.at("lse").view()}, 1);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  return problems;
}

inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const Merge& problem,
                                      reference::MergeSizes s, reference::Fill fill, std::uint64_t seed) {
  s.head_dim_v = problem.head_dim_v;
  return judge(device, launcher, s, reference::merge_inputs(s, problem.dtype, problem.sink != Sink::none, fill, seed));
}

}  // namespace tessera
