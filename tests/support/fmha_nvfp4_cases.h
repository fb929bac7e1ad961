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
  std::int64_t num_splits = 0;  ///< 0: the plan's default
  double common = 0;            ///< a column that all queries and keys have: row_shift is large
};

constexpr double kNvfp4Softcap = 3;
constexpr std::int64_t kNvfp4Chunk = 90;

/// Attention's inputs of what attention_quantize wrote.
inline reference::Tensors nvfp4_operands(reference::QuantizedAttention quantized) {
  reference::Tensors inputs;
  for (const auto& [name, of] : {std::pair("q", "q_units"), std::pair("k", "k_units"), std::pair("v", "v_units"),
                                 std::pair("delta_s", "delta_s"), std::pair("row_shift", "row_shift")})
    inputs.emplace(name, std::move(quantized.at(of)));
  return inputs;
}

/// What a launch takes for facts besides lengths: sizes, scalars, inputs of heads; and the check that goes by them.
/// Views are of `inputs`.
struct Nvfp4Launch {
  NamedSizes sizes;
  std::vector<double> scalars;
  reference::Nvfp4Check check;
};
/// queries: of all sequences as they lie.
inline Nvfp4Launch nvfp4_launch(const Launcher& launcher, const Plan& plan, NamedSizes sizes, const Nvfp4Facts& facts,
                                const std::vector<std::int64_t>& queries, reference::Tensors& inputs) {
  const auto& problem = plan.problem.as<Fmha>();
  Nvfp4Launch made{std::move(sizes), {}, {}};
  reference::Nvfp4Check& check = made.check;
  if (problem.window == Window::sliding) {
    made.sizes["window_size_left"] = check.window_size_left = facts.window_size_left;
    made.sizes["window_size_right"] = check.window_size_right = facts.window_size_right;
  }
  if (problem.window == Window::chunked) made.sizes["attention_chunk"] = check.attention_chunk = kNvfp4Chunk;
  if (facts.num_splits > 0) made.sizes["num_splits"] = facts.num_splits;
  check.mask = problem.mask;
  check.output = problem.output;
  check.split_size = problem.split_size;
  check.seqlen_k = made.sizes.at("seqlen_k");
  check.softmax_scale =
      facts.softmax_scale == 0 ? 1 / std::sqrt(static_cast<double>(problem.head_dim)) : facts.softmax_scale;
  check.tile_m = plan.number("tile_m");
  check.tile_n = plan.number("tile_n");
  check.jobs = 1;
  made.scalars = {check.softmax_scale};
  if (problem.softcap != Softcap::none) made.scalars.push_back(check.softcap = kNvfp4Softcap);
  const std::int64_t heads = made.sizes.at("heads_q"), seqlen_q = made.sizes.at("seqlen_q");
  const auto of_heads = [&](const char* name, double first, double step) {
    reference::Tensor tensor(DType::f32, {heads});
    for (std::int64_t head = 0; head < heads; ++head) tensor.set(head, first + step * static_cast<double>(head));
    return inputs.insert_or_assign(name, std::move(tensor)).first->second.view();
  };
  if (problem.sink != Sink::none) check.sink = of_heads("sink", 1.5, -0.75);
  if (problem.alibi != Alibi::none) check.alibi_slopes = of_heads("alibi_slopes", 0.03, -0.02);
  if (problem.tree_mask != TreeMask::none) {
    const std::int64_t words = (seqlen_q + 31) / 32;
    reference::Tensor tree = reference::make_tree_mask(queries, words, 11);
    tree.shape[0] = seqlen_q;
    if (problem.q_layout == QueryLayout::dense) tree.shape.insert(tree.shape.begin(), made.sizes.at("batch"));
    tree.bytes.resize(static_cast<std::size_t>(tree.elements()) * 4);
    check.tree_mask = inputs.insert_or_assign("tree_mask", std::move(tree)).first->second.view();
  }
  if (plan.launch.steps.size() == 2) {
    std::vector<std::int64_t> given;
    for (const SizeSpec& size : plan.launch.sizes)
      given.push_back(made.sizes.count(size.name) != 0 ? made.sizes.at(size.name) : kUseDefault);
    LaunchArguments arguments;
    arguments.sizes = given;
    const std::vector<std::int64_t> values = launcher.resolve_sizes(arguments);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (plan.launch.sizes[i].name == "num_splits") check.num_splits = values[i];
  }
  return made;
}
inline reference::Nvfp4Outputs nvfp4_outputs(const reference::Tensors& outputs) {
  reference::Nvfp4Outputs views{outputs.at("o").view(), {}, {}, {}};
  for (const auto& [name, slot] :
       {std::pair("lse", &views.lse), std::pair("row_max", &views.row_max), std::pair("row_sum", &views.row_sum)})
    if (const auto found = outputs.find(name); found != outputs.end()) *slot = found->second.view();
  return views;
}

/// Launches and compares; what is wrong, or nothing. Outputs, if they are wanted.
inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const Plan& plan,
                                      const reference::FmhaSizes& s, reference::Tensors inputs, const Nvfp4Facts& facts,
                                      reference::Tensors* written = nullptr) {
  std::vector<std::string> problems;
  const Nvfp4Launch launch = nvfp4_launch(launcher, plan,
                                          {{"batch", s.batch},
                                           {"heads_q", s.heads_q},
                                           {"heads_kv", s.heads_kv},
                                           {"seqlen_q", s.seqlen_q},
                                           {"seqlen_k", s.seqlen_k},
                                           {"num_sms", facts.num_sms}},
                                          facts, std::vector(static_cast<std::size_t>(s.batch), s.seqlen_q), inputs);
  const reference::Tensors outputs = launch_once(device, launcher, launch.sizes, launch.scalars, inputs, problems);
  const auto of = [&](const char* name) { return inputs.at(name).view(); };
  const reference::Comparison result = reference::check_fmha_nvfp4(
      {of("q"), of("k"), of("v"), of("delta_s"), of("row_shift")}, nvfp4_outputs(outputs), launch.check);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  if (written != nullptr) *written = outputs;
  return problems;
}

inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const Plan& plan,
                                      reference::FmhaSizes s, reference::Fill fill, std::uint64_t seed,
                                      const Nvfp4Facts& facts) {
  s.head_dim = plan.problem.as<Fmha>().head_dim;
  reference::FmhaTensors made = reference::make_inputs(s, DType::bf16, fill, seed);
  // What all keys have in common, and a block's queries: without means there would be no bits left for the rest.
  for (reference::Tensor* const x : {&made.q, &made.k})
    for (std::int64_t i = 5; i < x->elements(); i += s.head_dim) x->set(i, x->at(i) + facts.common);
  return judge(device, launcher, plan, s,
               nvfp4_operands(reference::quantize_attention({made.q.view(), made.k.view(), made.v.view()})), facts);
}

}  // namespace tessera
