// How `run` feeds and judges the block-scaled operators: one class, and a row for what each operator has of its own.
#include <fmt/format.h>

#include <algorithm>

#include "cli/run_operator.h"
#include "reference/block_scale_run.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

using reference::BlockRun;
using reference::Comparison;
using reference::Range;
using Tensors = std::map<std::string, reference::Tensor>;

/// Sizes that a CPU checks at once, for those that were not given.
using Examples = std::vector<std::pair<const char*, std::int64_t>>;

struct BlockOperator {
  std::string_view name;
  const char *rows, *k;         ///< the plan's names of these sizes
  const char* b_rows;           ///< null: it has no b
  Examples examples, emulated;  ///< on a GPU, and in the emulator
  bool has_alpha;
  BlockRun (*facts)(const Plan& plan);
  Tensors (*inputs)(const BlockRun& run, Range range);
  /// Null: gemv's, which knows alpha.
  Comparison (*check)(const BlockRun& run, const Tensors& inputs, const Tensors& outputs);
};

BlockRun quantize_facts(const Plan& plan) {
  const auto& p = plan.problem.as<Quantize>();
  return {p.format, p.scale_form, p.scale_rounding, p.global_scale, p.dtype};
}

BlockRun dequantize_facts(const Plan& plan) {
  const auto& p = plan.problem.as<Dequantize>();
  return {p.format, p.scale_form, ScaleRounding::up, p.global_scale, p.dtype};
}

BlockRun convert_scales_facts(const Plan& plan) {
  BlockRun run;
  run.form = plan.problem.as<ConvertScales>().to;
  return run;
}

BlockRun gemv_facts(const Plan& plan) {
  const auto& p = plan.problem.as<Gemv>();
  BlockRun run;
  run.format = p.format;
  run.b_format = p.b_format;
  run.form = p.scale_form;
  run.dtype = p.dtype;
  return run;
}

const std::vector<BlockOperator>& block_operators() {
  static const Examples gpu = {{"l", 2}, {"rows", 300}, {"k", 1056}}, cpu = {{"l", 2}, {"rows", 70}, {"k", 160}},
                        scales = {{"l", 2}, {"rows", 300}, {"blocks", 71}};
  static const std::vector<BlockOperator> table = {
      {"quantize", "rows", "k", nullptr, gpu, cpu, false, quantize_facts, reference::quantize_inputs,
       reference::check_quantize},
      {"dequantize", "rows", "k", nullptr, gpu, cpu, false, dequantize_facts, reference::dequantize_inputs,
       reference::check_dequantize},
      {"convert_scales", "rows", "blocks", nullptr, scales, scales, false, convert_scales_facts,
       [](const BlockRun& run, Range) { return reference::convert_scales_inputs(run); },
       reference::check_convert_scales},
      {"gemv",
       "m",
       "k",
       "b_rows",
       {{"l", 2}, {"m", 1000}, {"k", 2080}},
       {{"l", 2}, {"m", 60}, {"k", 2080}},
       true,
       gemv_facts,
       reference::gemv_inputs,
       nullptr}};
  return table;
}

class RunBlocks final : public RunOperator {
 public:
  explicit RunBlocks(const BlockOperator& op) : op_(op) {}

  std::vector<GivenSize> sizes(const Plan& plan, const RunFlags& flags) const override {
    std::vector<GivenSize> given = expected_sizes(plan.problem);
    for (const auto& [name, example] : flags.is_emulated ? op_.emulated : op_.examples) {
      const bool is_given =
          std::any_of(given.begin(), given.end(),
                      [&, wanted = std::string_view(name)](const GivenSize& g) { return g.name == wanted; });
      if (!is_given) given.push_back({name, example});
    }
    return given;
  }

  std::vector<double> scalars(const Plan&, const RunFlags& flags) const override {
    return op_.has_alpha ? std::vector<double>{flags.alpha} : std::vector<double>{};
  }

  Tensors inputs(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                 const RunFlags& flags) const override {
    const Range range = flags.inputs == "integer"    ? Range::integer
                        : flags.inputs == "uniform"  ? Range::uniform
                        : flags.inputs == "standard" ? Range::standard
                                                     : Range::normal;
    Tensors made = op_.inputs(run_of(plan, launch.by_name(sizes), flags), range);
    for (const auto& [name, tensor] : flags.arrays) {
      if (name.ends_with("global_scale")) reference::require_global_scale(static_cast<float>(tensor.at(0)), name);
      made[name] = tensor;
    }
    return made;
  }

  Comparison compare(const Plan& plan, const Tensors& inputs, const Tensors& outputs, const RunFlags& flags,
                     int) const override {
    const BlockRun run = run_of(plan, flags.sizes, flags);
    return op_.has_alpha ? reference::check_gemv(run, inputs, outputs, flags.alpha) : op_.check(run, inputs, outputs);
  }

 private:
  /// The shapes of tiles do not tell rows and k: the launch's sizes do.
  BlockRun run_of(const Plan& plan, const std::map<std::string, std::int64_t>& sizes, const RunFlags& flags) const {
    BlockRun run = op_.facts(plan);
    run.seed = static_cast<std::uint64_t>(flags.seed);
    run.l = sizes.at("l");
    run.rows = sizes.at(op_.rows);
    run.k = sizes.at(op_.k);
    if (op_.b_rows != nullptr) run.b_rows = sizes.at(op_.b_rows);
    return run;
  }

  const BlockOperator& op_;
};

}  // namespace

std::unique_ptr<RunOperator> make_run_block_scale(std::string_view op) {
  for (const BlockOperator& row : block_operators())
    if (row.name == op) return std::make_unique<RunBlocks>(row);
  throw Error(ErrorKind::unsupported, fmt::format("run has no reference for {}", op));
}

}  // namespace tessera::cli
