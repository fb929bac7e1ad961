// How `run` feeds and judges mHC's product.
#include <algorithm>

#include "cli/run_operator.h"
#include "reference/mhc_product.h"

namespace tessera::cli {

namespace {

using Tensors = std::map<std::string, reference::Tensor>;

reference::MhcProductRun run_of(const Plan& plan) {
  const auto& facts = plan.problem.as<MhcProduct>();
  reference::MhcProductRun run;
  run.n = facts.n;
  run.splits = facts.splits;
  return run;
}

class RunMhcProduct final : public RunOperator {
 public:
  /// Arrays bring their sizes along; else a CTA's last rows are some that do not exist.
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto complete = [&](const char* name, std::int64_t value) {
      if (std::none_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; }))
        given.push_back({name, value});
    };
    if (const auto a = flags.arrays.find("a"); a != flags.arrays.end() && a->second.shape.size() == 2) {
      complete("m", a->second.shape[0]);
      complete("k", a->second.shape[1]);
    }
    complete("m", flags.is_emulated ? 133 : 1029);
    complete("k", flags.is_emulated ? 1600 : 28672);
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }

  Tensors inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                 const RunFlags& flags) const override {
    const std::map<std::string, std::int64_t> named = launch.by_name(sizes);
    reference::MhcProductRun run = run_of(plan);
    run.m = named.at("m");
    run.k = named.at("k");
    const reference::Fill fill = flags.inputs == "integer"   ? reference::Fill::integer
                                 : flags.inputs == "uniform" ? reference::Fill::uniform
                                                             : reference::Fill::normal;
    Tensors made = reference::mhc_product_inputs(run, fill, static_cast<std::uint64_t>(flags.seed));
    for (const auto& [name, tensor] : flags.arrays) made[name] = tensor;
    return made;
  }

  reference::Comparison compare(const Plan& plan, const Tensors& inputs, const Tensors& outputs, const RunFlags&,
                                int jobs) const override {
    reference::MhcProductRun run = run_of(plan);
    const reference::TensorView a = inputs.at("a").view();
    run.m = a.shape[0];
    run.k = a.shape[1];
    return reference::check_mhc_product(run, a, inputs.at("b").view(), outputs.at("d").view(),
                                        outputs.at("sum_squares").view(), jobs);
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_mhc_product() { return std::make_unique<RunMhcProduct>(); }

}  // namespace tessera::cli
