#include "generator/block_scaled/quantize_operator.h"

#include <fmt/format.h>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr int kAmaxCtasOfSm = 4;

std::string facts_text(const quantize::Config& c) {
  std::string text = fmt::format("{} to {}, {} scales", to_word(c.dtype), to_word(c.format), to_word(c.scale_form));
  if (c.scale_rounding != ScaleRounding::up) text += fmt::format(", {}", to_word(c.scale_rounding));
  if (c.global_scale != GlobalScale::none) text += fmt::format(", global scale {}", to_word(c.global_scale));
  return text;
}

// The step that finds the largest magnitude, as bits, in the workspace.
LaunchStep amax_step(const quantize::Config& c, const std::string& kernel) {
  LaunchStep step;
  step.entry = kernel + "_amax";
  const Expression groups = Expression::parse("l * rows * ceil_div(k, 16)");
  const int tile = c.threads * quantize::kAmaxUnits;
  step.grid[0] =
      expression("min({} * num_sms, ceil_div({} * {}, {}))", kAmaxCtasOfSm, groups.text(), dtype_bytes(c.dtype), tile);
  step.block[0] = static_cast<std::uint32_t>(c.threads);
  step.dynamic_smem_bytes = quantize::amax_smem_bytes(c);
  step.parameters = {pointer_parameter("x", "x"), pointer_parameter("workspace", "workspace"),
                     size_parameter("groups", ParameterKind::i64, groups)};
  return step;
}

LaunchPlan launch_of(const quantize::Config& c, const std::string& arch, const std::string& kernel) {
  const bool is_amax = c.global_scale == GlobalScale::amax;
  LaunchPlan launch;
  launch.op = "quantize";
  launch.arch = arch;
  add_block_domain(launch, c.format, c.scale_form, c.threads, quantize::visits(c));
  launch.buffers = {dense_buffer("x", BufferRole::input, c.dtype),
                    values_buffer("values", BufferRole::output, c.format, "rows"),
                    scales_buffer("scales", BufferRole::output, c.format, c.scale_form, "rows")};
  LaunchStep step;
  step.entry = kernel;
  step.parameters = {pointer_parameter("x", "x"), pointer_parameter("values", "values"),
                     pointer_parameter("scales", "scales")};
  if (c.global_scale != GlobalScale::none) {
    launch.buffers.push_back(
        global_scale_buffer("global_scale", is_amax ? BufferRole::output : BufferRole::input, false));
    step.parameters.push_back(pointer_parameter("global_scale", "global_scale"));
  }
  if (is_amax) {
    add_size(launch, "num_sms", 1, kMaxSms, "multiprocessors of the device: filled in by the launcher");
    launch.workspace = {.bytes = Expression(4), .alignment = 256, .zeroed = true};
    launch.steps.push_back(amax_step(c, kernel));
    step.parameters.push_back(pointer_parameter("workspace", "workspace"));
  }
  // With amax one CTA at least runs: it writes the global scale, of an empty tensor too.
  add_block_grid(step, c.format, c.scale_form, c.threads, quantize::visits(c), is_amax ? 1 : 0);
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace

void QuantizeOperator::require_facts(const Quantize& problem) {
  if (!quantize::is_source_type(problem.dtype))
    throw Error(ErrorKind::unsupported,
                fmt::format("quantize has no kernel for dtype {}: there are kernels for f32, f16 and bf16",
                            to_word(problem.dtype)));
}

std::vector<quantize::Config> QuantizeOperator::candidates(const Quantize& problem) {
  std::vector<Config> list;
  for (const int threads : kBlockThreads)
    list.push_back({.dtype = problem.dtype,
                    .format = problem.format,
                    .scale_form = problem.scale_form,
                    .scale_rounding = problem.scale_rounding,
                    .global_scale = problem.global_scale,
                    .conversion = conversion_of(problem.arch),
                    .threads = problem.threads.value_or(threads)});
  return list;
}

double QuantizeOperator::score(const Config& config, const Quantize&) {
  return config.threads == kBlockThreads[0] ? 1 : 0.99;
}

std::string QuantizeOperator::merit(const Config& config, const Quantize&) {
  return fmt::format("{} threads of {} elements each", config.threads, quantize::visits(config) * quantize::kGroup);
}

std::string QuantizeOperator::label(const Config& config) { return fmt::format("{} threads", config.threads); }

std::string QuantizeOperator::subject(const Config& config) {
  return fmt::format("quantize {}, {}", facts_text(config), label(config));
}

std::string QuantizeOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case quantize::Rule::ok:
      break;
    case quantize::Rule::dtype_not_floating:
      return fmt::format("{} elements of {} bytes: f32, f16 or bf16 needed", to_word(config.dtype), found);
    case quantize::Rule::global_scale_without_nvfp4:
      return fmt::format(
          "a global scale beside scales of type {} for {} elements: it goes with ue4m3 for {}, which is "
          "nvfp4; set global_scale none",
          to_word(scale_type(config.format)), found, bound);
    case quantize::Rule::rounding_without_power:
      return fmt::format(
          "scale_rounding {} beside scales of type {} for {} elements: it is a choice of ue8m0 for {}; leave "
          "it at up",
          to_word(config.scale_rounding), to_word(scale_type(config.format)), found, bound);
    case quantize::Rule::threads_not_multiple_of_32:
      return fmt::format("{} threads, a multiple of {} needed (warp)", found, bound);
    case quantize::Rule::threads_out_of_range:
      return fmt::format("{} threads, 32 to {} allowed", found, bound);
  }
  return "?";
}

std::string QuantizeOperator::kernel_name(Arch arch, const Config& config) {
  std::string name = fmt::format("tessera_quantize_{}_{}_{}_{}", arch_name(arch.to_string()), to_word(config.dtype),
                                 to_word(config.format), scale_form_name(config.scale_form));
  if (config.scale_rounding == ScaleRounding::floor) name += "_floor";
  if (config.global_scale != GlobalScale::none) name += fmt::format("_g{}", to_word(config.global_scale));
  return name + fmt::format("_t{}", config.threads);
}

void QuantizeOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {plain_operand("x", to_word(config.dtype), "read, dense"),
                   scaled_operand("values", config.format, config.scale_form,
                                  value_bits(config.format) == 4   ? "written, two a byte"
                                  : value_bits(config.format) == 6 ? "written, four in three bytes"
                                                                   : "written"),
                   scale_operand("scales", config.format, fmt::format("written, {}", to_word(config.scale_form)))};
  if (config.global_scale != GlobalScale::none)
    plan.operands.push_back(plain_operand("global_scale", "f32",
                                          config.global_scale == GlobalScale::given
                                              ? "read: factor of all scales"
                                              : "written: largest magnitude / 2,688"));
  if (config.global_scale == GlobalScale::amax) {
    plan.smem = {{"largest magnitudes",
                  0,
                  quantize::amax_smem_bytes(config),
                  1,
                  {{"of each warp, being written", "find the largest", "barrier of the CTA"},
                   {"of each warp", "find the largest", "end"}}}};
    plan.smem_bytes = quantize::amax_smem_bytes(config);
  }
  plan.roles = {{.name = "quantise", .first_warp = 0, .warps = config.threads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string QuantizeOperator::launch_bounds() { return "kConfig.threads, tessera::quantize::min_ctas(kConfig)"; }

std::string QuantizeOperator::call(const Config& config) {
  const bool is_plain = config.scale_form == ScaleForm::plain;
  return fmt::format("tessera::quantize::kernel<kConfig>(x, values, scales, {}, {}, {})",
                     config.global_scale == GlobalScale::none ? "nullptr" : "global_scale",
                     config.global_scale == GlobalScale::amax ? "static_cast<const unsigned*>(workspace)" : "nullptr",
                     is_plain ? "groups, 0, 0" : "0, rows, k");
}

std::string QuantizeOperator::call_of_step(const Config& config, std::size_t step) {
  if (config.global_scale == GlobalScale::amax && step == 0)
    return "tessera::quantize::amax_kernel<kConfig>(x, static_cast<unsigned*>(workspace), groups)";
  return call(config);
}

std::vector<SourceFile> QuantizeOperator::generated_headers(const Config&) { return {}; }

}  // namespace tessera
