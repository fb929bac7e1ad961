#include "cli/run_nvfp4.h"

#include <utility>

#include "reference/attention_quantize.h"
#include "reference/fmha_nvfp4.h"

namespace tessera::cli {

bool is_nvfp4_attention(const Plan& plan) {
  const Fmha* const facts = plan.problem.get_if<Fmha>();
  return facts != nullptr && facts->format == BlockFormat::nvfp4;
}

std::map<std::string, reference::Tensor> nvfp4_inputs(const reference::FmhaTensors& made, const RunFlags& flags) {
  reference::QuantizedAttention quantized =
      reference::quantize_attention({made.q.view(), made.k.view(), made.v.view()});
  std::map<std::string, reference::Tensor> all;
  for (const auto& [name, of] : {std::pair("q", "q_units"), std::pair("k", "k_units"), std::pair("v", "v_units"),
                                 std::pair("delta_s", "delta_s"), std::pair("row_shift", "row_shift")})
    all.emplace(name, std::move(quantized.at(of)));
  for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
  return all;
}

reference::Comparison compare_nvfp4(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                    const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                    double softmax_scale, int jobs) {
  reference::Nvfp4Check check;
  check.mask = plan.problem.as<Fmha>().mask;
  for (const auto& [name, size] : {std::pair("window_size_left", &check.window_size_left),
                                   std::pair("window_size_right", &check.window_size_right)})
    if (const auto found = flags.sizes.find(name); found != flags.sizes.end()) *size = found->second;
  check.seqlen_k = flags.sizes.at("seqlen_k");
  check.softmax_scale = softmax_scale;
  check.tile_m = plan.number("tile_m");
  check.tile_n = plan.number("tile_n");
  check.jobs = jobs;
  const auto of = [&](const char* name) { return inputs.at(name).view(); };
  reference::Nvfp4Outputs views{outputs.at("o").view(), {}};
  if (const auto lse = outputs.find("lse"); lse != outputs.end()) views.lse = lse->second.view();
  return reference::check_fmha_nvfp4({of("q"), of("k"), of("v"), of("delta_s"), of("row_shift")}, views, check);
}

}  // namespace tessera::cli
