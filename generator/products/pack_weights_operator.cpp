#include "generator/products/pack_weights_operator.h"

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

using pack_weights::Config;

LaunchPlan launch_of(const Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "pack_weights";
  launch.arch = arch;
  add_batch_size(launch);
  add_size(launch, "n", 0, kMaxExtent, "rows of the weights: columns of a product's d");
  add_size(launch, "k", 0, kMaxExtent, "weights of a row");
  launch.buffers = {values_buffer("values", BufferRole::input, c.format, "n"),
                    scales_buffer("scales", BufferRole::input, c.format, c.scale_form, "n"),
                    packed_weights_buffer("packed", BufferRole::output, weight_block_bytes(pack_weights::weights(c)))};
  const int block = block_elements(c.format);
  launch.domain.push_back(
      {.lhs = Expression::parse("k"),
       .relation = Relation::multiple_of,
       .rhs = Expression(block),
       .message = fmt::format("k must be a multiple of {}, the block of {} that shares a scale: pad the rows with zeros",
                              block, to_word(c.format))});
  const Expression blocks = expression("ceil_div(n, {}) * ceil_div(k, {})", kWeightRows, kWeightDepth);
  add_at_most(launch, blocks, kMaxGridX, fmt::format("the number of blocks of 64 x 128 must be at most {}", grouped(kMaxGridX)));
  LaunchStep step;
  step.entry = kernel;
  step.grid = {blocks, Expression::parse("l"), Expression(1)};
  step.block[0] = pack_weights::kNumThreads;
  step.parameters = {pointer_parameter("values", "values"), pointer_parameter("scales", "scales"),
                     pointer_parameter("packed", "packed"),
                     size_parameter("n", ParameterKind::i32, Expression::parse("n")),
                     size_parameter("k", ParameterKind::i32, Expression::parse("k"))};
  launch.steps.push_back(std::move(step));
  return launch;
}

}  // namespace

void PackWeightsOperator::require_facts(const PackWeights& problem) {
  const Config c{problem.format, problem.scale_form};
  if (const Verdict verdict = why_invalid(c); !verdict.ok())
    throw Error(ErrorKind::unsupported, fmt::format("{}: {}", subject(c), explain(c, verdict)));
}

std::vector<Config> PackWeightsOperator::candidates(const PackWeights& problem) {
  return {{problem.format, problem.scale_form}};
}

double PackWeightsOperator::score(const Config&, const PackWeights&) { return 1; }

std::string PackWeightsOperator::merit(const Config&, const PackWeights&) { return "a block of 64 x 128 a CTA"; }

std::string PackWeightsOperator::label(const Config& config) {
  return fmt::format("{}, scales {}", to_word(config.format), to_word(config.scale_form));
}

std::string PackWeightsOperator::subject(const Config& config) { return "pack_weights " + label(config); }

std::string PackWeightsOperator::explain(const Config&, const Verdict& verdict) {
  return fmt::format("values of {} bits, {} needed: take mxfp4 or nvfp4", verdict.found, verdict.bound);
}

std::string PackWeightsOperator::kernel_name(Arch arch, const Config& config) {
  return fmt::format("tessera_pack_weights_{}_{}_{}", arch_name(arch.to_string()), to_word(config.format),
                     scale_form_name(config.scale_form));
}

void PackWeightsOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {scaled_operand("values", config.format, config.scale_form, "read"),
                   scale_operand("scales", config.format, fmt::format("of values, {}", to_word(config.scale_form))),
                   plain_operand("packed", "u8", "written, in blocks of 64 x 128")};
  plan.roles = {{.name = "pack", .first_warp = 0, .warps = pack_weights::kNumThreads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string PackWeightsOperator::launch_bounds() { return "tessera::pack_weights::kNumThreads"; }

std::string PackWeightsOperator::call(const Config&) {
  return "tessera::pack_weights::kernel<kConfig>(values, scales, packed, n, k)";
}

std::vector<SourceFile> PackWeightsOperator::generated_headers(const Config&) { return {}; }

std::span<const Selector> pack_weights_fields() {
  static const std::vector<Selector> table = {
      field<&PackWeights::arch>("arch", "arch", "target: sm_90a"),
      offer(field<&PackWeights::format>("format", "format", "format of the weights"), {"mxfp4", "nvfp4"}),
      field<&PackWeights::scale_form>("scale-form", "scale_form", "where the scales lie that are read"),
      field<&PackWeights::l>("l", "l", "expected number of matrices"),
      field<&PackWeights::n>("n", "n", "expected rows"),
      field<&PackWeights::k>("k", "k", "expected weights of a row"),
  };
  return table;
}

namespace {

constexpr FamilyRow kFamilies[] = {family_row<PackWeightsOperator>("rows", kWgmmaTargets)};
constexpr OperatorType kType = make_operator_type<PackWeights>(pack_weights_fields, kFamilies);

}  // namespace

template <>
const OperatorType& operator_type<PackWeights>() noexcept {
  return kType;
}

}  // namespace tessera
