#include "generator/block_scaled/quantize_blocks_operator.h"

#include <fmt/format.h>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr int kLeastUnit = 16;  // elements of k: rows of a product's operand lie multiples of 16 bytes apart

quantize_blocks::Config config_of(const QuantizeBlocks& p) { return {p.dtype, p.scale_block, p.scale_values}; }

LaunchPlan launch_of(const quantize_blocks::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "quantize_blocks";
  launch.arch = arch;
  add_batch_size(launch);
  add_size(launch, "rows", 0, kMaxExtent, "rows of a matrix");
  add_size(launch, "k", 0, kMaxExtent, "elements of a row");
  const Expression row_blocks =
      c.scale_block == ScaleBlock::square ? expression("ceil_div(rows, {})", kScaleBlock) : Expression::parse("rows");
  const Expression steps = expression("ceil_div(k, {})", kScaleBlock);
  launch.buffers = {dense_buffer("x", BufferRole::input, c.dtype),
                    dense_buffer("values", BufferRole::output, DType::e4m3),
                    {.name = "factors",
                     .role = BufferRole::output,
                     .dtype = "f32",
                     .shape = {Expression::parse("l"), row_blocks, steps},
                     .strides = {expression("{} * {}", row_blocks.text(), steps.text()), steps, Expression(1)},
                     .alignment = 4}};
  launch.domain.push_back({.lhs = Expression::parse("k"),
                           .relation = Relation::multiple_of,
                           .rhs = Expression(kLeastUnit),
                           .message = fmt::format("k must be a multiple of {}: a product wants rows that are multiples "
                                                  "of 16 bytes apart; pad the rows with zeros",
                                                  kLeastUnit)});
  const Expression blocks = expression("ceil_div(rows, {}) * ceil_div(k, {})", kScaleBlock, kScaleBlock);
  add_at_most(launch, blocks, kMaxGridX,
              fmt::format("the number of blocks of 128 x 128 must be at most {}", grouped(kMaxGridX)));
  LaunchStep step;
  step.entry = kernel;
  step.grid = {blocks, Expression::parse("l"), Expression(1)};
  step.block[0] = quantize_blocks::kNumThreads;
  step.dynamic_smem_bytes = quantize_blocks::smem_bytes(c);
  for (const char* const name : {"x", "values", "factors"}) step.parameters.push_back(pointer_parameter(name, name));
  for (const char* const size : {"rows", "k"})
    step.parameters.push_back(size_parameter(size, ParameterKind::i32, Expression::parse(size)));
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace

void QuantizeBlocksOperator::require_facts(const QuantizeBlocks& problem) {
  const quantize_blocks::Config c = config_of(problem);
  if (const Verdict verdict = why_invalid(c); !verdict.ok())
    throw Error(ErrorKind::unsupported, fmt::format("{}: {}", subject(c), explain(c, verdict)));
}

std::vector<quantize_blocks::Config> QuantizeBlocksOperator::candidates(const QuantizeBlocks& problem) {
  return {config_of(problem)};
}

double QuantizeBlocksOperator::score(const Config&, const QuantizeBlocks&) { return 1; }

std::string QuantizeBlocksOperator::merit(const Config&, const QuantizeBlocks&) { return "a block of 128 x 128 a CTA"; }

std::string QuantizeBlocksOperator::label(const Config& config) {
  return fmt::format("{}, factors for {}{}", to_word(config.dtype), to_word(config.scale_block),
                     config.scale_values == ScaleValues::pow2 ? ", powers of two" : "");
}

std::string QuantizeBlocksOperator::subject(const Config& config) { return "quantize_blocks " + label(config); }

std::string QuantizeBlocksOperator::explain(const Config& config, const Verdict& verdict) {
  switch (verdict.rule) {
    case quantize_blocks::Rule::ok:
      break;
    case quantize_blocks::Rule::dtype_not_floating:
      return fmt::format("{} elements of {} bytes: f32, f16 or bf16 needed", to_word(config.dtype), verdict.found);
    case quantize_blocks::Rule::scale_block_missing:
      return "scale_block none: 128x128 or 1x128 needed";
  }
  return "?";
}

std::string QuantizeBlocksOperator::kernel_name(Arch arch, const Config& config) {
  return fmt::format("tessera_quantize_blocks_{}_{}_{}{}", arch_name(arch.to_string()), to_word(config.dtype),
                     to_word(config.scale_block), config.scale_values == ScaleValues::pow2 ? "_pow2" : "");
}

void QuantizeBlocksOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {plain_operand("x", to_word(config.dtype), "read, dense"),
                   plain_operand("values", "e4m3", "written, dense"),
                   plain_operand("factors", "f32", fmt::format("written, one for {}", to_word(config.scale_block)))};
  if (const int bytes = quantize_blocks::smem_bytes(config); bytes > 0) {
    plan.smem = {
        {"largest magnitudes",
         0,
         bytes,
         1,
         {{"of each warp, being written", "quantise", "barrier of the CTA"}, {"of each warp", "quantise", "end"}}}};
    plan.smem_bytes = bytes;
  }
  plan.roles = {{.name = "quantise", .first_warp = 0, .warps = quantize_blocks::kNumThreads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string QuantizeBlocksOperator::launch_bounds() { return "tessera::quantize_blocks::kNumThreads"; }

std::string QuantizeBlocksOperator::call(const Config&) {
  return "tessera::quantize_blocks::kernel<kConfig>(x, values, factors, rows, k)";
}

std::vector<SourceFile> QuantizeBlocksOperator::generated_headers(const Config&) { return {}; }

std::span<const Selector> quantize_blocks_fields() {
  static const std::vector<Selector> table = {
      field<&QuantizeBlocks::arch>("arch", "arch", kArchHelp),
      offer(field<&QuantizeBlocks::dtype>("dtype", "dtype", "type of x"), {"f32", "f16", "bf16"}),
      offer(field<&QuantizeBlocks::scale_block>("scale-block", "scale_block", "elements that share a factor"),
            {"128x128", "1x128"}),
      field<&QuantizeBlocks::scale_values>("scale-values", "scale_values",
                                           "factors: any fp32 numbers, or powers of two alone"),
      field<&QuantizeBlocks::l>("l", "l", "expected number of matrices"),
      field<&QuantizeBlocks::rows>("rows", "rows", "expected number of rows"),
      field<&QuantizeBlocks::k>("k", "k", "expected elements of a row"),
  };
  return table;
}

namespace {

constexpr FamilyRow kBlockFamilies[] = {family_row<QuantizeBlocksOperator>("blocks", kAllTargets)};
constexpr OperatorType kBlockType = make_operator_type<QuantizeBlocks>(quantize_blocks_fields, kBlockFamilies);

}  // namespace

template <>
const OperatorType& operator_type<QuantizeBlocks>() noexcept {
  return kBlockType;
}

}  // namespace tessera
