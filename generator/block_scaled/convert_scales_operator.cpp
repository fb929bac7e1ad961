#include "generator/block_scaled/convert_scales_operator.h"

#include <fmt/format.h>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera {

namespace {

ScaleForm other(ScaleForm form) { return form == ScaleForm::plain ? ScaleForm::tile : ScaleForm::plain; }

// Scales of [l, rows, blocks]; a "block" of one element along a k that is called blocks.
BufferSpec buffer_of(const char* name, BufferRole role, ScaleForm form) {
  BufferSpec buffer{.name = name, .role = role, .dtype = "u8", .shape = {}, .strides = {}};
  if (form == ScaleForm::plain) {
    buffer.shape = {Expression::parse("l"), Expression::parse("rows"), Expression::parse("blocks")};
    buffer.strides = {Expression::parse("rows * blocks"), Expression::parse("blocks"), Expression(1)};
    buffer.alignment = 1;
    return buffer;
  }
  buffer.shape = {Expression::parse("l"),
                  expression("ceil_div(rows, {})", kTileRows),
                  expression("ceil_div(blocks, {})", kTileBlocks),
                  Expression(32),
                  Expression(4),
                  Expression(4)};
  buffer.strides = {expression("ceil_div(rows, {}) * ceil_div(blocks, {}) * {}", kTileRows, kTileBlocks, kTileBytes),
                    expression("ceil_div(blocks, {}) * {}", kTileBlocks, kTileBytes),
                    Expression(kTileBytes),
                    Expression(16),
                    Expression(4),
                    Expression(1)};
  return buffer;
}

LaunchPlan launch_of(const convert_scales::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "convert_scales";
  launch.arch = arch;
  add_batch_size(launch);
  add_size(launch, "rows", 0, kMaxBatch * kTileRows, "rows of a matrix");
  add_size(launch, "blocks", 0, kMaxExtent, "scales of a row");
  launch.buffers = {buffer_of("from", BufferRole::input, other(c.to)), buffer_of("to", BufferRole::output, c.to)};
  LaunchStep step;
  step.entry = kernel;
  step.grid = {expression("ceil_div(blocks, {})", kTileBlocks * convert_scales::kTilesOfCta),
               expression("ceil_div(rows, {})", kTileRows), Expression::parse("l")};
  step.block[0] = convert_scales::kNumThreads;
  step.parameters = {pointer_parameter("from", "from"), pointer_parameter("to", "to"),
                     size_parameter("rows", ParameterKind::i32, Expression::parse("rows")),
                     size_parameter("blocks", ParameterKind::i32, Expression::parse("blocks"))};
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace

void ConvertScalesOperator::require_facts(const ConvertScales&) {}

std::vector<convert_scales::Config> ConvertScalesOperator::candidates(const ConvertScales& problem) {
  return {{.to = problem.to}};
}

double ConvertScalesOperator::score(const Config&, const ConvertScales&) { return 1; }

std::string ConvertScalesOperator::merit(const Config&, const ConvertScales&) { return "four scales a thread"; }

std::string ConvertScalesOperator::label(const Config& config) {
  return fmt::format("{} to {}", to_word(other(config.to)), to_word(config.to));
}

std::string ConvertScalesOperator::subject(const Config& config) { return "convert_scales " + label(config); }

std::string ConvertScalesOperator::explain(const Config&, const Verdict&) { return "?"; }

std::string ConvertScalesOperator::kernel_name(Arch arch, const Config& config) {
  return fmt::format("tessera_convert_scales_{}_to_{}", arch_name(arch.to_string()), scale_form_name(config.to));
}

void ConvertScalesOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {plain_operand("from", "u8", fmt::format("read, {}", to_word(other(config.to)))),
                   plain_operand("to", "u8", fmt::format("written, {}", to_word(config.to)))};
  plan.roles = {{.name = "copy", .first_warp = 0, .warps = convert_scales::kNumThreads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string ConvertScalesOperator::launch_bounds() { return "tessera::convert_scales::kNumThreads"; }

std::string ConvertScalesOperator::call(const Config&) {
  return "tessera::convert_scales::kernel<kConfig>(from, to, rows, blocks)";
}

std::vector<SourceFile> ConvertScalesOperator::generated_headers(const Config&) { return {}; }

}  // namespace tessera
