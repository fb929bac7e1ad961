// How `run` feeds and judges the block-scaled operators.
#include <algorithm>

#include "base/error.h"
#include "cli/run_operator.h"
#include "reference/block_scale_run.h"

namespace tessera::cli {

namespace {

using reference::BlockRun;
using reference::Range;

Range range_of(const RunFlags& flags) {
  return flags.inputs == "integer" ? Range::integer : flags.inputs == "uniform" ? Range::uniform : Range::normal;
}

/// The hints that are known; examples that a CPU checks at once for the rest.
std::vector<GivenSize> completed(const Problem& problem,
                                 const std::vector<std::pair<const char*, std::int64_t>>& examples) {
  std::vector<GivenSize> given = expected_sizes(problem);
  for (const auto& example : examples) {
    const bool is_given =
        std::any_of(given.begin(), given.end(), [&](const GivenSize& g) { return g.name == example.first; });
    if (!is_given) given.push_back({example.first, example.second});
  }
  return given;
}

std::map<std::string, reference::Tensor> with_arrays(std::map<std::string, reference::Tensor> made,
                                                     const RunFlags& flags) {
  for (const auto& [name, tensor] : flags.arrays) made[name] = tensor;
  return made;
}

std::int64_t size_of(const LaunchSizes& launch, const std::vector<std::int64_t>& sizes, const char* name) {
  return launch.evaluate(Expression::parse(name), sizes);
}

class RunQuantize final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Problem& problem, const RunFlags& flags) const override {
    return completed(problem,
                     {{"l", 2}, {"rows", flags.is_emulated ? 70 : 300}, {"k", flags.is_emulated ? 160 : 1056}});
  }
  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }
  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    BlockRun run = run_of(plan, flags);
    run.l = size_of(launch, sizes, "l");
    run.rows = size_of(launch, sizes, "rows");
    run.k = size_of(launch, sizes, "k");
    return with_arrays(reference::quantize_inputs(run, range_of(flags)), flags);
  }
  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int) const override {
    BlockRun run = run_of(plan, flags);
    const std::vector<std::int64_t>& shape = inputs.at("x").shape;
    run.l = shape[0];
    run.rows = shape[1];
    run.k = shape[2];
    return reference::check_quantize(run, inputs, outputs);
  }

 private:
  static BlockRun run_of(const Plan& plan, const RunFlags& flags) {
    const quantize::Config& c = std::get<quantize::Config>(plan.config);
    BlockRun run{c.format, c.scale_form, c.scale_rounding, c.global_scale, c.dtype};
    run.seed = static_cast<std::uint64_t>(flags.seed);
    return run;
  }
};

class RunDequantize final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Problem& problem, const RunFlags& flags) const override {
    return completed(problem,
                     {{"l", 2}, {"rows", flags.is_emulated ? 70 : 300}, {"k", flags.is_emulated ? 160 : 1056}});
  }
  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }
  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    BlockRun run = run_of(plan, flags);
    run.l = size_of(launch, sizes, "l");
    run.rows = size_of(launch, sizes, "rows");
    run.k = size_of(launch, sizes, "k");
    return with_arrays(reference::dequantize_inputs(run, range_of(flags)), flags);
  }
  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int) const override {
    BlockRun run = run_of(plan, flags);
    const std::vector<std::int64_t>& shape = outputs.at("y").shape;
    run.l = shape[0];
    run.rows = shape[1];
    run.k = shape[2];
    return reference::check_dequantize(run, inputs, outputs);
  }

 private:
  static BlockRun run_of(const Plan& plan, const RunFlags& flags) {
    const dequantize::Config& c = std::get<dequantize::Config>(plan.config);
    BlockRun run{c.format, c.scale_form, ScaleRounding::up, c.global_scale, c.dtype};
    run.seed = static_cast<std::uint64_t>(flags.seed);
    return run;
  }
};

class RunConvertScales final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Problem& problem, const RunFlags&) const override {
    return completed(problem, {{"l", 2}, {"rows", 300}, {"blocks", 71}});
  }
  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {}; }
  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    l_ = size_of(launch, sizes, "l");
    rows_ = size_of(launch, sizes, "rows");
    blocks_ = size_of(launch, sizes, "blocks");
    return with_arrays(reference::convert_scales_inputs(run_of(plan, flags)), flags);
  }
  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int) const override {
    return reference::check_convert_scales(run_of(plan, flags), inputs, outputs);
  }

 private:
  BlockRun run_of(const Plan& plan, const RunFlags& flags) const {
    BlockRun run;
    run.form = std::get<convert_scales::Config>(plan.config).to;
    run.l = l_;
    run.rows = rows_;
    run.k = blocks_;
    run.seed = static_cast<std::uint64_t>(flags.seed);
    return run;
  }
  // A tile's shape does not tell the rows: kept from the inputs.
  mutable std::int64_t l_ = 0, rows_ = 0, blocks_ = 0;
};

class RunGemv final : public RunOperator {
 public:
  std::vector<GivenSize> sizes(const Problem& problem, const RunFlags& flags) const override {
    return completed(problem, {{"l", 2}, {"m", flags.is_emulated ? 60 : 1000}, {"k", 2080}});
  }
  std::vector<double> scalars(const Plan&, const RunFlags&) const override { return {1}; }
  std::map<std::string, reference::Tensor> inputs(const Plan& plan, const LaunchSizes& launch,
                                                  const std::vector<std::int64_t>& sizes,
                                                  const RunFlags& flags) const override {
    BlockRun run = run_of(plan, flags);
    run.l = size_of(launch, sizes, "l");
    run.rows = size_of(launch, sizes, "m");
    run.k = size_of(launch, sizes, "k");
    run.b_rows = size_of(launch, sizes, "b_rows");
    return with_arrays(reference::gemv_inputs(run, range_of(flags)), flags);
  }
  reference::Comparison compare(const Plan& plan, const std::map<std::string, reference::Tensor>& inputs,
                                const std::map<std::string, reference::Tensor>& outputs, const RunFlags& flags,
                                int) const override {
    BlockRun run = run_of(plan, flags);
    const std::vector<std::int64_t>& a = inputs.at("a").shape;
    run.l = a[0];
    run.rows = a[1];
    run.k = 2 * a[2];
    run.b_rows = inputs.at("b").shape[1];
    return reference::check_gemv(run, inputs, outputs, 1);
  }

 private:
  static BlockRun run_of(const Plan& plan, const RunFlags& flags) {
    const gemv::Config& c = std::get<gemv::Config>(plan.config);
    BlockRun run;
    run.format = c.format;
    run.form = c.scale_form;
    run.dtype = c.dtype;
    run.seed = static_cast<std::uint64_t>(flags.seed);
    return run;
  }
};

}  // namespace

std::unique_ptr<RunOperator> make_run_block_scale(std::string_view op) {
  if (op == "quantize") return std::make_unique<RunQuantize>();
  if (op == "dequantize") return std::make_unique<RunDequantize>();
  if (op == "convert_scales") return std::make_unique<RunConvertScales>();
  return std::make_unique<RunGemv>();
}

}  // namespace tessera::cli
