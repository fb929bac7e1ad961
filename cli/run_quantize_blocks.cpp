// How `run` feeds and judges quantize_blocks.
#include <algorithm>

#include "cli/run_operator.h"
#include "reference/quantize_blocks.h"
#include "reference/random.h"

namespace tessera::cli {

namespace {

using reference::Fill;

class RunQuantizeBlocks final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto complete = [&](const char* name, std::int64_t value) {
      const bool is_given = std::any_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; });
      if (!is_given) given.push_back({name, value});
    };
    complete("l", 2);
    complete("rows", flags.is_emulated ? 150 : 1000);
    complete("k", flags.is_emulated ? 272 : 2064);
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }

  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    const std::map<std::string, std::int64_t> of = launch.by_name(sizes);
    const Fill fill = flags.inputs == "integer"    ? Fill::integer
                      : flags.inputs == "uniform"  ? Fill::uniform
                      : flags.inputs == "standard" ? Fill::standard
                                                   : Fill::normal;
    reference::Tensor x(plan.problem.as<QuantizeBlocks>().dtype, {of.at("l"), of.at("rows"), of.at("k")});
    reference::fill(x, fill, static_cast<std::uint64_t>(flags.seed), 0);
    std::map<std::string, reference::Tensor> all;
    all.emplace("x", std::move(x));
    for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
    return all;
  }

  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags&,
                                int) const override {
    const auto& facts = plan.problem.as<QuantizeBlocks>();
    return reference::check_quantize_blocks(inputs.at("x").view(), {facts.scale_block, facts.scale_values},
                                            outputs.at("values").view(), outputs.at("factors").view());
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_quantize_blocks() { return std::make_unique<RunQuantizeBlocks>(); }

}  // namespace tessera::cli
