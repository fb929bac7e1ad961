// How `run` feeds and judges pack_weights.
#include <algorithm>

#include "cli/run_operator.h"
#include "reference/packed_weights.h"
#include "reference/random.h"

namespace tessera::cli {

namespace {

class RunPackWeights final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    const auto complete = [&](const char* name, std::int64_t value) {
      const bool is_given = std::any_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; });
      if (!is_given) given.push_back({name, value});
    };
    complete("l", 2);
    complete("n", flags.is_emulated ? 70 : 300);
    const auto& facts = plan.problem.as<PackWeights>();
    const std::int64_t group = facts.format == WeightFormat::int4 ? facts.group : 32;
    complete("k", flags.is_emulated ? 5 * group : 33 * group);
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }

  /// Any codes, of scales too.
  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    std::map<std::string, reference::Tensor> all;
    std::uint64_t stream = 0;
    for (const BufferSpec& buffer : plan.launch.buffers) {
      ++stream;
      if (buffer.role == BufferRole::output) continue;
      std::vector<std::int64_t> shape;
      for (const Expression& extent : buffer.shape) shape.push_back(launch.evaluate(extent, sizes));
      reference::Tensor tensor(*reference::dtype_from_name(buffer.dtype), shape);
      const reference::CounterRandom random(static_cast<std::uint64_t>(flags.seed), stream);
      for (std::size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = static_cast<std::byte>(random.bits(i));
      all.emplace(buffer.name, std::move(tensor));
    }
    for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
    return all;
  }

  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int) const override {
    const auto& facts = plan.problem.as<PackWeights>();
    reference::WeightRows rows{
        reference::weight_facts(operand_type(facts.format), facts.group, facts.zero_points, facts.dtype),
        inputs.at("values").bytes,
        inputs.at("scales").bytes,
        {},
        facts.scale_form,
        flags.sizes.at("l"),
        flags.sizes.at("n"),
        flags.sizes.at("k")};
    if (facts.zero_points == ZeroPoints::given) rows.zeros = inputs.at("zeros").bytes;
    return reference::check_pack_weights(rows, outputs.at("packed").view());
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_pack_weights() { return std::make_unique<RunPackWeights>(); }

}  // namespace tessera::cli
