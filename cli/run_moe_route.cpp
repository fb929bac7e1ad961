// How `run` feeds and judges a router of experts.
#include <algorithm>

#include "cli/run_operator.h"
#include "reference/moe_route.h"

namespace tessera::cli {

namespace {

using Tensors = std::map<std::string, reference::Tensor>;
constexpr double kScale = 1.5;

reference::MoeRouteRun run_of(const Plan& plan, const std::map<std::string, std::int64_t>& sizes) {
  const auto& facts = plan.problem.as<MoeRoute>();
  const auto size = [&](const char* name) {
    const auto found = sizes.find(name);
    return found == sizes.end() ? 0 : found->second;
  };
  return {.dtype = facts.dtype,
          .m = size("m"),
          .experts = facts.experts,
          .top_k = facts.top_k,
          .expert_groups = facts.expert_groups,
          .topk_groups = facts.topk_groups,
          .scoring = facts.scoring,
          .bias = facts.bias,
          .renormalize = facts.renormalize,
          .grouping = facts.grouping,
          .alignment = facts.alignment,
          .rows = size(facts.grouping == Grouping::masked ? "rows_of_group" : "grouped_rows"),
          .scale = kScale};
}

class RunMoeRoute final : public RunOperator {
 public:
  /// Arrays bring their sizes along; else several chunks of tokens, the last not whole.
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    if (std::any_of(given.begin(), given.end(), [](const GivenSize& g) { return g.name == "m"; })) return given;
    const auto logits = flags.arrays.find("logits");
    const bool has_rows = logits != flags.arrays.end() && logits->second.shape.size() == 2;
    given.push_back({"m", has_rows ? logits->second.shape[0] : flags.is_emulated ? 133 : 4099});
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {kScale}; }

  Tensors inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                 const RunFlags& flags) const override {
    const reference::Fill fill = flags.inputs == "integer"   ? reference::Fill::integer
                                 : flags.inputs == "uniform" ? reference::Fill::uniform
                                                             : reference::Fill::normal;
    Tensors made =
        reference::moe_route_inputs(run_of(plan, launch.by_name(sizes)), fill, static_cast<std::uint64_t>(flags.seed));
    for (const auto& [name, tensor] : flags.arrays) made[name] = tensor;
    return made;
  }

  reference::Comparison compare(const Plan& plan, const Tensors& inputs, const Tensors& outputs, const RunFlags& flags,
                                int jobs) const override {
    return reference::check_moe_route(run_of(plan, flags.sizes), inputs, outputs, jobs);
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_moe_route() { return std::make_unique<RunMoeRoute>(); }

}  // namespace tessera::cli
