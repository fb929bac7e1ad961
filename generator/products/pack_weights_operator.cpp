#include "generator/products/pack_weights_operator.h"

#include <fmt/format.h>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera::pack_weights {

namespace {

bool is_int4(const Config& c) { return c.format == WeightFormat::int4; }
bool has_zeros(const Config& c) { return c.zero_points == ZeroPoints::given; }
BlockFormat block_format_of(const Config& c) { return block_format(operand_type(c.format)); }

/// [l, n, k / group], dense.
BufferSpec groups_buffer(const char* name, std::string_view dtype, int bytes, int group) {
  const Expression groups = expression("ceil_div(k, {})", group);
  return {.name = name,
          .role = BufferRole::input,
          .dtype = std::string(dtype),
          .shape = {Expression::parse("l"), Expression::parse("n"), groups},
          .strides = {expression("n * {}", groups.text()), groups, Expression(1)},
          .alignment = bytes};
}

Config config_of(const PackWeights& p) { return {p.format, p.scale_form, p.dtype, p.group, p.zero_points}; }

}  // namespace

LaunchPlan pack_weights_launch(const Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "pack_weights";
  launch.arch = arch;
  add_batch_size(launch);
  add_size(launch, "n", 0, kMaxExtent, "rows of the weights: columns of a product's d");
  add_size(launch, "k", 0, kMaxExtent, "weights of a row");
  const PackedWeights weights = pack_weights::weights(c);
  launch.buffers = {values_buffer("values", BufferRole::input, BlockFormat::mxfp4, "n")};
  launch.buffers.push_back(is_int4(c)
                               ? groups_buffer("scales", to_word(c.dtype), 2, c.group)
                               : scales_buffer("scales", BufferRole::input, block_format_of(c), c.scale_form, "n"));
  if (has_zeros(c)) launch.buffers.push_back(groups_buffer("zeros", "u8", 1, c.group));
  launch.buffers.push_back(packed_weights_buffer("packed", BufferRole::output, weight_block_bytes(weights)));
  launch.domain.push_back(
      {.lhs = Expression::parse("k"),
       .relation = Relation::multiple_of,
       .rhs = Expression(weights.group),
       .message = fmt::format("k must be a multiple of {}, the group of {} weights that shares a scale: pad the rows "
                              "with zeros",
                              weights.group, to_word(c.format))});
  const Expression blocks = expression("ceil_div(n, {}) * ceil_div(k, {})", kWeightRows, kWeightDepth);
  add_at_most(launch, blocks, kMaxGridX,
              fmt::format("the number of blocks of 64 x 128 must be at most {}", grouped(kMaxGridX)));
  LaunchStep step;
  step.entry = kernel;
  step.grid = {blocks, Expression::parse("l"), Expression(1)};
  step.block[0] = pack_weights::kNumThreads;
  step.parameters = {pointer_parameter("values", "values"), pointer_parameter("scales", "scales")};
  if (has_zeros(c)) step.parameters.push_back(pointer_parameter("zeros", "zeros"));
  step.parameters.push_back(pointer_parameter("packed", "packed"));
  for (const char* const size : {"n", "k"})
    step.parameters.push_back(size_parameter(size, ParameterKind::i32, Expression::parse(size)));
  launch.steps.push_back(std::move(step));
  return launch;
}

void PackWeightsOperator::require_facts(const PackWeights& problem) {
  const Config c = config_of(problem);
  if (const Verdict verdict = why_invalid(c); !verdict.ok())
    throw Error(ErrorKind::unsupported, fmt::format("{}: {}", subject(c), explain(c, verdict)));
}

std::vector<Config> PackWeightsOperator::candidates(const PackWeights& problem) { return {config_of(problem)}; }

double PackWeightsOperator::score(const Config&, const PackWeights&) { return 1; }

std::string PackWeightsOperator::merit(const Config&, const PackWeights&) { return "a block of 64 x 128 a CTA"; }

std::string PackWeightsOperator::label(const Config& config) {
  if (!is_int4(config)) return fmt::format("{}, scales {}", to_word(config.format), to_word(config.scale_form));
  return fmt::format("int4, scales {} for {}{}", to_word(config.dtype), config.group,
                     has_zeros(config) ? ", zero points" : "");
}

std::string PackWeightsOperator::subject(const Config& config) { return "pack_weights " + label(config); }

std::string PackWeightsOperator::explain(const Config& config, const Verdict& verdict) {
  switch (verdict.rule) {
    case pack_weights::Rule::ok:
      break;
    case pack_weights::Rule::facts_of_int4:
      return fmt::format("group and zero_points are for int4: {} has a scale for {}", to_word(config.format),
                         block_elements(block_format_of(config)));
    case pack_weights::Rule::form_of_int4:
      return "scale_form tile is for scales of mxfp4 and nvfp4: those of int4 are [l, n, k / group]";
    case pack_weights::Rule::dtype_of_int4:
      return fmt::format("scales of type {}: bf16 or f16 needed, the type of the activations", to_word(config.dtype));
    case pack_weights::Rule::group_of_int4:
      return fmt::format("group {}: 32, 64 or {} allowed", verdict.found, verdict.bound);
  }
  return "?";
}

std::string PackWeightsOperator::kernel_name(Arch arch, const Config& config) {
  std::string name = fmt::format("tessera_pack_weights_{}_{}", arch_name(arch.to_string()), to_word(config.format));
  if (!is_int4(config)) return fmt::format("{}_{}", name, scale_form_name(config.scale_form));
  return fmt::format("{}_{}_g{}{}", name, to_word(config.dtype), config.group, has_zeros(config) ? "_z" : "");
}

void PackWeightsOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {
      plain_operand("values", is_int4(config) ? "int4" : "e2m1", "read, two a byte"),
      is_int4(config)
          ? plain_operand("scales", to_word(config.dtype), fmt::format("one for {} along k", config.group))
          : scale_operand("scales", block_format_of(config), fmt::format("of values, {}", to_word(config.scale_form)))};
  if (has_zeros(config)) plan.operands.push_back(plain_operand("zeros", "u8", "taken off the values"));
  plan.operands.push_back(plain_operand("packed", "u8", "written, in blocks of 64 x 128"));
  plan.roles = {{.name = "pack", .first_warp = 0, .warps = pack_weights::kNumThreads / 32, .registers = 0}};
  plan.launch = pack_weights_launch(config, plan.arch.to_string(), plan.kernel);
}

std::string PackWeightsOperator::launch_bounds() { return "tessera::pack_weights::kNumThreads"; }

std::string PackWeightsOperator::call(const Config& config) {
  return fmt::format("tessera::pack_weights::kernel<kConfig>(values, scales, {}, packed, n, k)",
                     has_zeros(config) ? "zeros" : "nullptr");
}

std::vector<SourceFile> PackWeightsOperator::generated_headers(const Config&) { return {}; }

}  // namespace tessera::pack_weights

namespace tessera {

std::span<const Selector> pack_weights_fields() {
  static const std::vector<Selector> table = {
      field<&PackWeights::arch>("arch", "arch", "target: sm_90a"),
      field<&PackWeights::format>("format", "format", "format of the weights"),
      field<&PackWeights::scale_form>("scale-form", "scale_form", "where scales of mxfp4 and nvfp4 lie that are read"),
      offer(field<&PackWeights::dtype>("dtype", "dtype", "type of int4's scales: that of the activations"),
            {"bf16", "f16"}),
      field<&PackWeights::group>("group", "group", "int4 weights along k that share a scale: 32, 64 or 128"),
      field<&PackWeights::zero_points>("zero-points", "zero_points", "whether int4 weights have zero points"),
      field<&PackWeights::l>("l", "l", "expected number of matrices"),
      field<&PackWeights::n>("n", "n", "expected rows"),
      field<&PackWeights::k>("k", "k", "expected weights of a row"),
  };
  return table;
}

namespace {

constexpr FamilyRow kPackWeightsFamilies[] = {family_row<PackWeightsOperator>("rows", kWgmmaTargets)};
constexpr OperatorType kPackWeightsType = make_operator_type<PackWeights>(pack_weights_fields, kPackWeightsFamilies);

}  // namespace

template <>
const OperatorType& operator_type<PackWeights>() noexcept {
  return kPackWeightsType;
}

}  // namespace tessera
