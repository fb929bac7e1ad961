#include "generator/block_scaled/dequantize_operator.h"

#include <fmt/format.h>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

LaunchPlan launch_of(const dequantize::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "dequantize";
  launch.arch = arch;
  add_block_domain(launch, c.format, c.scale_form, c.threads, 1);
  launch.buffers = {values_buffer("values", BufferRole::input, c.format, "rows"),
                    scales_buffer("scales", BufferRole::input, c.format, c.scale_form, "rows"),
                    dense_buffer("y", BufferRole::output, c.dtype)};
  LaunchStep step;
  step.entry = kernel;
  step.parameters = {pointer_parameter("values", "values"), pointer_parameter("scales", "scales"),
                     pointer_parameter("y", "y")};
  if (c.global_scale != GlobalScale::none) {
    launch.buffers.push_back(global_scale_buffer("global_scale", BufferRole::input, false));
    step.parameters.push_back(pointer_parameter("global_scale", "global_scale"));
  }
  add_block_grid(step, c.format, c.scale_form, c.threads, 1, 0);
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace

void DequantizeOperator::require_facts(const Dequantize& problem) {
  if (problem.dtype != DType::f32 && problem.dtype != DType::f16 && problem.dtype != DType::bf16)
    throw Error(ErrorKind::unsupported,
                fmt::format("dequantize has no kernel for dtype {}: there are kernels for f32, f16 and bf16",
                            to_word(problem.dtype)));
}

std::vector<dequantize::Config> DequantizeOperator::candidates(const Dequantize& problem) {
  std::vector<Config> list;
  for (const int threads : kBlockThreads)
    list.push_back({.dtype = problem.dtype,
                    .format = problem.format,
                    .scale_form = problem.scale_form,
                    .global_scale = problem.global_scale,
                    .conversion = conversion_of(problem.arch),
                    .threads = problem.threads.value_or(threads)});
  return list;
}

double DequantizeOperator::score(const Config& config, const Dequantize&) {
  return config.threads == kBlockThreads[0] ? 1 : 0.99;
}

std::string DequantizeOperator::merit(const Config& config, const Dequantize&) {
  return fmt::format("{} threads of 16 elements each", config.threads);
}

std::string DequantizeOperator::label(const Config& config) { return fmt::format("{} threads", config.threads); }

std::string DequantizeOperator::subject(const Config& config) {
  return fmt::format("dequantize {}, {} scales, to {}, {}", to_word(config.format), to_word(config.scale_form),
                     to_word(config.dtype), label(config));
}

std::string DequantizeOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case dequantize::Rule::ok:
      break;
    case dequantize::Rule::dtype_not_floating:
      return fmt::format("{} elements of {} bytes: f32, f16 or bf16 needed", to_word(config.dtype), found);
    case dequantize::Rule::global_scale_without_nvfp4:
      return fmt::format(
          "a global scale beside scales of type {} for {} elements: it goes with ue4m3 for {}, which is "
          "nvfp4; set global_scale none",
          to_word(scale_type(config.format)), found, bound);
    case dequantize::Rule::global_scale_not_known:
      return "global_scale amax is found while quantising: give the number that was written then, with global_scale "
             "given";
    case dequantize::Rule::threads_not_multiple_of_32:
      return fmt::format("{} threads, a multiple of {} needed (warp)", found, bound);
    case dequantize::Rule::threads_out_of_range:
      return fmt::format("{} threads, 32 to {} allowed", found, bound);
  }
  return "?";
}

std::string DequantizeOperator::kernel_name(Arch arch, const Config& config) {
  std::string name = fmt::format("tessera_dequantize_{}_{}_{}_{}", arch_name(arch.to_string()), to_word(config.format),
                                 scale_form_name(config.scale_form), to_word(config.dtype));
  if (config.global_scale != GlobalScale::none) name += fmt::format("_g{}", to_word(config.global_scale));
  return name + fmt::format("_t{}", config.threads);
}

void DequantizeOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {scaled_operand("values", config.format, config.scale_form, "read"),
                   scale_operand("scales", config.format, fmt::format("read, {}", to_word(config.scale_form))),
                   plain_operand("y", to_word(config.dtype), "written, dense")};
  if (config.global_scale != GlobalScale::none)
    plan.operands.push_back(plain_operand("global_scale", "f32", "read: factor of all scales"));
  plan.roles = {{.name = "dequantise", .first_warp = 0, .warps = config.threads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string DequantizeOperator::launch_bounds() { return "kConfig.threads, tessera::dequantize::min_ctas(kConfig)"; }

std::string DequantizeOperator::call(const Config& config) {
  return fmt::format("tessera::dequantize::kernel<kConfig>(values, scales, y, {}, {})",
                     config.global_scale == GlobalScale::none ? "nullptr" : "global_scale",
                     config.scale_form == ScaleForm::plain ? "groups, 0, 0" : "0, rows, k");
}

std::vector<SourceFile> DequantizeOperator::generated_headers(const Config&) { return {}; }

}  // namespace tessera
