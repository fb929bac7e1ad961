// How `run` feeds and judges the choice of rows' k largest.
#include <algorithm>

#include "cli/run_operator.h"
#include "reference/topk.h"

namespace tessera::cli {

namespace {

using Tensors = std::map<std::string, reference::Tensor>;

reference::TopkRun topk_run_of(const Plan& plan, const std::map<std::string, std::int64_t>& sizes) {
  const auto& facts = plan.problem.as<Topk>();
  const auto size = [&](const char* name) {
    const auto found = sizes.find(name);
    return found == sizes.end() ? 0 : found->second;
  };
  reference::TopkRun run;
  run.dtype = facts.dtype;
  run.m = size("m");
  run.n = size("n");
  run.k = facts.k;
  run.ties = facts.ties;
  run.order = facts.order;
  run.range = facts.range;
  run.index_form = facts.index_form;
  run.values = facts.values;
  run.guesses = facts.guesses;
  run.page_size = size("page_size");
  run.max_pages = size("max_pages");
  run.sequences = size("sequences");
  return run;
}

class RunTopk final : public RunOperator {
 public:
  /// Arrays bring their sizes along; else rows of every kind, whose elements do not fill vectors.
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto scores = flags.arrays.find("scores");
    const bool has_shape = scores != flags.arrays.end() && scores->second.shape.size() == 2;
    const std::pair<const char*, std::int64_t> examples[] = {
        {"m", flags.is_emulated ? 9 : 64}, {"n", flags.is_emulated ? 3 * plan.problem.as<Topk>().k + 5 : 32771}};
    for (std::size_t i = 0; i < 2; ++i)
      if (std::none_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == examples[i].first; }))
        given.push_back({examples[i].first, has_shape ? scores->second.shape[i] : examples[i].second});
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }

  Tensors inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                 const RunFlags& flags) const override {
    const reference::Fill fill = flags.inputs == "integer"    ? reference::Fill::integer
                                 : flags.inputs == "uniform"  ? reference::Fill::uniform
                                 : flags.inputs == "standard" ? reference::Fill::standard
                                                              : reference::Fill::normal;
    reference::TopkRun run = topk_run_of(plan, launch.by_name(sizes));
    run.is_usual = flags.is_timed;
    Tensors made = reference::topk_inputs(run, fill, static_cast<std::uint64_t>(flags.seed));
    for (const auto& [name, tensor] : flags.arrays) made[name] = tensor;
    return made;
  }

  bool has_time_by_values() const override { return true; }

  reference::Comparison compare(const Plan& plan, const Tensors& inputs, const Tensors& outputs, const RunFlags& flags,
                                int jobs) const override {
    return reference::check_topk(topk_run_of(plan, flags.sizes), inputs, outputs, jobs);
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_topk() { return std::make_unique<RunTopk>(); }

}  // namespace tessera::cli
