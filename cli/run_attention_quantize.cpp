// How `run` feeds and judges the quantisation of attention's operands.
#include <algorithm>

#include "cli/run_nvfp4.h"
#include "cli/run_operator.h"
#include "reference/attention_quantize.h"

namespace tessera::cli {

namespace {

using Tensors = std::map<std::string, reference::Tensor>;

class RunAttentionQuantize final : public RunOperator {
 public:
  /// A part of a block more than whole ones.
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto complete = [&](const char* name, std::int64_t value) {
      if (std::none_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; }))
        given.push_back({name, value});
    };
    for (const auto& [array, seqlen, heads] :
         {std::tuple("q", "seqlen_q", "heads_q"), std::tuple("k", "seqlen_k", "heads_kv")})
      if (const auto given_array = flags.arrays.find(array);
          given_array != flags.arrays.end() && given_array->second.shape.size() == 4) {
        complete("batch", given_array->second.shape[0]);
        complete(seqlen, given_array->second.shape[1]);
        complete(heads, given_array->second.shape[2]);
      }
    complete("batch", 2);
    complete("heads_q", flags.is_emulated ? 2 : 8);
    complete("heads_kv", flags.is_emulated ? 1 : 2);
    const auto& facts = plan.problem.as<AttentionQuantize>();
    complete("seqlen_q", flags.is_emulated ? 150 : 1030);
    const auto value_of = [&](const char* name) {
      return std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; })->value;
    };
    complete("seqlen_k", flags.is_emulated ? 200 : 1100);
    if (facts.kv_layout == KvLayout::paged) {
      complete("max_pages", ceil_div(value_of("seqlen_k"), facts.page_size.value_or(1)));
      complete("pages", value_of("batch") * value_of("max_pages") + 3);
    }
    if (facts.kv_layout == KvLayout::ragged) complete("tokens_k", value_of("batch") * value_of("seqlen_k"));
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }

  Tensors inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                 const RunFlags& flags) const override {
    const auto& facts = plan.problem.as<AttentionQuantize>();
    const std::map<std::string, std::int64_t> named = launch.by_name(sizes);
    const reference::Fill fill = flags.inputs == "integer"    ? reference::Fill::integer
                                 : flags.inputs == "uniform"  ? reference::Fill::uniform
                                 : flags.inputs == "standard" ? reference::Fill::standard
                                                              : reference::Fill::normal;
    Tensors all = nvfp4_places(plan, named, flags);
    std::uint64_t stream = 0;
    for (const BufferSpec& buffer : plan.launch.buffers) {
      if (buffer.name != "q" && buffer.name != "k" && buffer.name != "v") continue;
      std::vector<std::int64_t> shape;
      for (const Expression& extent : buffer.shape) shape.push_back(launch.evaluate(extent, sizes));
      reference::Tensor tensor(facts.dtype, std::move(shape));
      reference::fill(tensor, fill, static_cast<std::uint64_t>(flags.seed), stream++);
      all.emplace(buffer.name, std::move(tensor));
    }
    for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
    return all;
  }

  reference::Comparison compare(const Plan& plan, const Tensors& inputs, const Tensors& outputs, const RunFlags& flags,
                                int jobs) const override {
    const reference::AttentionTensors x{inputs.at("q").view(), inputs.at("k").view(), inputs.at("v").view()};
    if (!has_lengths(plan)) return reference::check_attention_quantize(x, outputs, jobs);
    return reference::check_quantized_sequences(x, nvfp4_layout(plan, flags.sizes, inputs), outputs, jobs);
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_attention_quantize() { return std::make_unique<RunAttentionQuantize>(); }

}  // namespace tessera::cli
