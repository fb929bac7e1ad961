// How `run` feeds and judges attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "cli/run_operator.h"
#include "reference/fmha.h"

namespace tessera::cli {

namespace {

class RunFmha final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Problem& problem, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(problem);
    const auto complete = [&](const char* name, std::int64_t value) {
      const bool is_given = std::any_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; });
      if (!is_given) given.push_back({name, value});
    };
    const auto value_of = [&](const char* name) {
      return std::find_if(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == name; })->value;
    };
    // Arrays bring their sizes along; else a problem that a CPU can check in seconds.
    const auto dimension = [&](const char* array, std::size_t d) -> std::int64_t {
      const auto found = flags.arrays.find(array);
      return found != flags.arrays.end() && found->second.shape.size() == 4 ? found->second.shape[d] : -1;
    };
    for (const auto& [name, array, d] :
         {std::tuple("batch", "q", 0U), std::tuple("seqlen_q", "q", 1U), std::tuple("heads_q", "q", 2U),
          std::tuple("seqlen_k", "k", 1U), std::tuple("heads_kv", "k", 2U)})
      if (const std::int64_t value = dimension(array, d); value >= 0) complete(name, value);
    complete("batch", flags.is_emulated ? 1 : 2);
    complete("heads_q", flags.is_emulated ? 2 : 8);
    complete("heads_kv", value_of("heads_q"));
    complete("seqlen_q", flags.is_emulated ? 200 : 1024);
    complete("seqlen_k", value_of("seqlen_q"));
    return given;
  }

  std::vector<double> scalars(const Plan& plan, const RunFlags& flags) const override {
    return {softmax_scale(plan, flags)};
  }

  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    const auto size = [&](const char* name) { return launch.evaluate(Expression::parse(name), sizes); };
    const fmha::Config& config = std::get<fmha::Config>(plan.config);
    const reference::FmhaSizes s{size("batch"),    size("heads_q"), size("heads_kv"), size("seqlen_q"),
                                 size("seqlen_k"), config.head_dim, config.head_dim_v};
    const DType dtype = config.dtype;
    const auto seed = static_cast<std::uint64_t>(flags.seed);
    reference::FmhaTensors made =
        flags.inputs == "integer"
            ? reference::make_integer_inputs(s, dtype, seed)
            : reference::make_inputs(
                  s, dtype, flags.inputs == "uniform" ? reference::Fill::uniform : reference::Fill::normal, seed);
    std::map<std::string, reference::Tensor> all;
    all.emplace("q", std::move(made.q));
    all.emplace("k", std::move(made.k));
    all.emplace("v", std::move(made.v));
    for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
    return all;
  }

  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int jobs) const override {
    const fmha::Config& config = std::get<fmha::Config>(plan.config);
    reference::FmhaCheck check;
    check.mask = config.mask;
    check.is_normalized = config.output == Output::normalized;
    check.softmax_scale = softmax_scale(plan, flags);
    check.is_exact = flags.inputs == "integer" && flags.arrays.empty() && flags.softmax_scale == 0;
    check.judges_rel_error = flags.arrays.empty();
    check.tile_m = config.tile_m;
    check.tile_n = config.tile_n;
    check.jobs = jobs;
    reference::FmhaOutputs views{outputs.at("o").view(), {}, {}, {}};
    for (const auto& [name, slot] :
         {std::pair("lse", &views.lse), std::pair("row_max", &views.row_max), std::pair("row_sum", &views.row_sum)})
      if (const auto found = outputs.find(name); found != outputs.end()) *slot = found->second.view();
    return reference::check_fmha({inputs.at("q").view(), inputs.at("k").view(), inputs.at("v").view()}, views, check);
  }

 private:
  static double softmax_scale(const Plan& plan, const RunFlags& flags) {
    if (flags.softmax_scale != 0) return flags.softmax_scale;
    if (flags.inputs == "integer" && flags.arrays.empty()) return std::numbers::ln2;
    return 1 / std::sqrt(static_cast<double>(std::get<fmha::Config>(plan.config).head_dim));
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_fmha() { return std::make_unique<RunFmha>(); }

}  // namespace tessera::cli
