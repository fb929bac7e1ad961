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

/// What the two families of kernels have in common.
struct Facts {
  int head_dim = 0;
  int head_dim_v = 0;
  DType dtype = DType::bf16;
  Mask mask = Mask::none;
  Output output = Output::normalized;
  int tile_m = 0;
  int tile_n = 0;
  Layout v_layout = Layout::mn_major;
};

Facts facts_of(const Plan& plan) {
  const auto of = [](const auto& c) {
    return Facts{c.head_dim, c.head_dim_v, c.dtype, c.mask, c.output, c.tile_m, c.tile_n};
  };
  if (const auto* config = std::get_if<fmha_tcgen05::Config>(&plan.config)) {
    Facts facts = of(*config);
    facts.v_layout = config->v_layout;
    return facts;
  }
  return of(std::get<fmha::Config>(plan.config));
}

/// v [batch, seqlen_k, heads, head_dim] as [batch, heads, head_dim, seqlen_k], and a view of that with v's shape.
reference::Tensor with_keys_innermost(const reference::Tensor& v) {
  const std::int64_t keys = v.shape[1], rows = v.shape[2] * v.shape[3];
  reference::Tensor result(v.dtype, {v.shape[0], v.shape[2], v.shape[3], keys});
  for (std::int64_t batch = 0; batch < v.shape[0]; ++batch)
    for (std::int64_t key = 0; key < keys; ++key)
      for (std::int64_t row = 0; row < rows; ++row)
        result.set((batch * rows + row) * keys + key, v.at((batch * keys + key) * rows + row));
  return result;
}
reference::TensorView with_head_dim_innermost(const reference::Tensor& v) {
  const std::int64_t heads = v.shape[1], head_dim = v.shape[2], keys = v.shape[3];
  return {v.bytes.data(),
          v.dtype,
          {v.shape[0], keys, heads, head_dim},
          {heads * head_dim * keys, 1, head_dim * keys, keys}};
}

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
    const Facts config = facts_of(plan);
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
    all.emplace("v", config.v_layout == Layout::k_major ? with_keys_innermost(made.v) : std::move(made.v));
    for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
    return all;
  }

  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int jobs) const override {
    const Facts config = facts_of(plan);
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
    const reference::Tensor& v = inputs.at("v");
    const reference::TensorView v_view = config.v_layout == Layout::k_major ? with_head_dim_innermost(v) : v.view();
    return reference::check_fmha({inputs.at("q").view(), inputs.at("k").view(), v_view}, views, check);
  }

 private:
  static double softmax_scale(const Plan& plan, const RunFlags& flags) {
    if (flags.softmax_scale != 0) return flags.softmax_scale;
    if (flags.inputs == "integer" && flags.arrays.empty()) return std::numbers::ln2;
    return 1 / std::sqrt(static_cast<double>(facts_of(plan).head_dim));
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_fmha() { return std::make_unique<RunFmha>(); }

}  // namespace tessera::cli
