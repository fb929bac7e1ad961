// How `run` feeds and judges the merge of parts of attention.
#include <algorithm>

#include "cli/run_operator.h"
#include "reference/merge.h"

namespace tessera::cli {

namespace {

using Tensors = std::map<std::string, reference::Tensor>;

class RunMerge final : public RunOperator {
 public:
  /// Arrays bring their sizes along; else one query more than stand together, and parts that a round does not divide.
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto complete = [&](const char* name, std::int64_t value) {
      if (std::none_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; }))
        given.push_back({name, value});
    };
    if (const auto o = flags.arrays.find("o_parts"); o != flags.arrays.end() && o->second.shape.size() == 5) {
      complete("parts", o->second.shape[0]);
      complete("batch", o->second.shape[1]);
      complete("seqlen_q", o->second.shape[2]);
      complete("heads_q", o->second.shape[3]);
    }
    complete("parts", 5);
    complete("batch", 2);
    complete("heads_q", flags.is_emulated ? 3 : 32);
    complete("seqlen_q", flags.is_emulated ? 17 : 1025);
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }

  Tensors inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                 const RunFlags& flags) const override {
    const auto& facts = plan.problem.as<Merge>();
    const std::map<std::string, std::int64_t> named = launch.by_name(sizes);
    const reference::Fill fill = flags.inputs == "integer"    ? reference::Fill::integer
                                 : flags.inputs == "uniform"  ? reference::Fill::uniform
                                 : flags.inputs == "standard" ? reference::Fill::standard
                                                              : reference::Fill::normal;
    Tensors made = reference::merge_inputs(
        {named.at("parts"), named.at("batch"), named.at("heads_q"), named.at("seqlen_q"), facts.head_dim_v},
        facts.dtype, facts.sink != Sink::none, fill, static_cast<std::uint64_t>(flags.seed));
    for (const auto& [name, tensor] : flags.arrays) made[name] = tensor;
    return made;
  }

  reference::Comparison compare(const Plan&, const Tensors& inputs, const Tensors& outputs, const RunFlags&,
                                int jobs) const override {
    reference::MergeOperands in{inputs.at("o_parts").view(), inputs.at("lse_parts").view()};
    if (const auto sink = inputs.find("sink"); sink != inputs.end()) in.sink = sink->second.view();
    return reference::check_merge(in, {outputs.at("o").view(), outputs.at("lse").view()}, jobs);
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_merge() { return std::make_unique<RunMerge>(); }

}  // namespace tessera::cli
