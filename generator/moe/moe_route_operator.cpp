// There is one way to route: nothing to choose but what the facts say.
#include "generator/moe/moe_route_operator.h"

#include <fmt/format.h>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera::moe_route {

namespace {

Expression e(std::string_view text) { return Expression::parse(text); }

/// CTAs of a step: chunks of tokens.
std::string chunks() {
  return fmt::format("max(min(ceil_div(m, {}), {}), 1)", moe_route::kTokensOfRound, moe_route::kMaxChunks);
}

void add_sizes(const Config& c, LaunchPlan& launch) {
  const auto size = [&](const char* name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        const char* help) {
    launch.sizes.push_back({name, min, max, std::move(value), help});
  };
  size("m", 0, kMaxExtent, {}, "tokens");
  size("logits_stride_m", c.experts, kMaxStride, Expression(c.experts),
       "elements of logits from one token to the next");
  const int elements = 16 / dtype_bytes(c.dtype);
  launch.domain.push_back({.lhs = e("logits_stride_m"),
                           .relation = Relation::multiple_of,
                           .rhs = Expression(elements),
                           .message = fmt::format("logits_stride_m must be a multiple of {} (16 bytes)", elements)});
  add_at_most(launch, expression("m * {}", c.top_k), kMaxExtent,
              fmt::format("m times top_k must be at most {}", kMaxExtent));
  if (c.grouping == Grouping::contiguous) {
    const Expression most = expression("m * {0} + min(m * {0}, {1}) * {2}", c.top_k, c.experts, c.alignment - 1);
    size("grouped_rows", 0, kMaxExtent, most, "rows of all groups, with what pads them");
    launch.domain.push_back(
        {.lhs = e("grouped_rows"),
         .relation = Relation::at_least,
         .rhs = most,
         .message = c.alignment == 1
                        ? std::string("grouped_rows must be at least m times top_k")
                        : fmt::format("grouped_rows must be at least m times top_k, and {} for each expert that "
                                      "tokens may have",
                                      c.alignment - 1)});
  }
  if (c.grouping == Grouping::masked) {
    size("rows_of_group", 0, kMaxExtent, e("m"), "rows of each group");
    add_at_most(launch, expression("rows_of_group * {}", c.experts), kMaxExtent,
                fmt::format("rows_of_group times experts must be at most {}", kMaxExtent));
  }
}

void add_buffers(const Config& c, LaunchPlan& launch) {
  const auto buffer = [&](const char* name, BufferRole role, std::string_view dtype, std::vector<Expression> shape,
                          std::vector<Expression> strides, int alignment) {
    launch.buffers.push_back({.name = name,
                              .role = role,
                              .dtype = std::string(dtype),
                              .shape = std::move(shape),
                              .strides = std::move(strides),
                              .alignment = alignment,
                              .is_optional = false});
  };
  const auto of_pairs = [&](const char* name, std::string_view dtype) {
    buffer(name, BufferRole::output, dtype, {e("m"), Expression(c.top_k)}, {Expression(c.top_k), Expression(1)}, 4);
  };
  const auto list = [&](const char* name, Expression extent) {
    buffer(name, BufferRole::output, "s32", {std::move(extent)}, {Expression(1)}, 4);
  };
  const auto of_rows = [&](const char* name, std::string_view dtype) {
    if (c.grouping == Grouping::contiguous) {
      buffer(name, BufferRole::output, dtype, {e("grouped_rows")}, {Expression(1)}, 4);
    } else {
      buffer(name, BufferRole::output, dtype, {Expression(c.experts), e("rows_of_group")},
             {e("rows_of_group"), Expression(1)}, 4);
    }
  };
  buffer("logits", BufferRole::input, to_word(c.dtype), {e("m"), Expression(c.experts)},
         {e("logits_stride_m"), Expression(1)}, 16);
  if (c.bias != Bias::none) buffer("bias", BufferRole::input, "f32", {Expression(c.experts)}, {Expression(1)}, 16);
  of_pairs("topk_experts", "s32");
  of_pairs("topk_weights", "f32");
  if (!has_lists(c)) return;
  list("groups", Expression(c.grouping == Grouping::contiguous ? c.experts + 1 : c.experts));
  if (c.grouping == Grouping::contiguous) list("counts", Expression(c.experts));
  of_rows("indices", "s32");
  of_rows("row_weights", "f32");
  of_pairs("slots", "s32");
}

LaunchPlan launch_of(const Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "moe_route";
  launch.arch = arch;
  add_sizes(c, launch);
  add_buffers(c, launch);
  launch.scalars.push_back({.name = "scale", .default_value = 1, .help = "factor of every weight"});
  LaunchStep step;
  for (const BufferSpec& buffer : launch.buffers) {
    step.parameters.push_back(pointer_parameter(buffer.name.c_str(), buffer.name.c_str()));
    if (buffer.name == "logits")
      step.parameters.push_back(size_parameter("logits_stride_m", ParameterKind::i64, e("logits_stride_m")));
  }
  if (has_lists(c)) {
    launch.workspace = {.bytes = expression("{} * {}", chunks(), 4 * c.experts), .alignment = 256};
    step.parameters.push_back(pointer_parameter("workspace", "workspace"));
  }
  step.parameters.push_back(
      {.name = "scale", .kind = ParameterKind::f32, .value = {}, .source = "scale", .offset_bytes = {}});
  step.parameters.push_back(size_parameter("m", ParameterKind::i32, e("m")));
  if (has_lists(c))
    step.parameters.push_back(size_parameter("rows", ParameterKind::i32,
                                             e(c.grouping == Grouping::contiguous ? "grouped_rows" : "rows_of_group")));
  step.block[0] = moe_route::kThreads;
  step.dynamic_smem_bytes = moe_route::smem_bytes(c);
  step.programmatic_stream_serialization = true;
  step.entry = kernel;
  step.grid[0] = e(chunks());
  launch.steps.push_back(step);
  if (has_lists(c)) {
    step.entry = kernel + "_lists";
    step.grid[0] = expression("{} * min(max(m - {}, 0), 1)", chunks(), moe_route::kTokensOfRound);
    launch.steps.push_back(step);
  }
  return launch;
}

}  // namespace

// why_invalid() says the rest.
void MoeRouteOperator::require_facts(const MoeRoute& problem) {
  if (problem.bias == Bias::group)
    throw Error(ErrorKind::unsupported, "moe_route: bias = group: must be none or column, a number for each expert");
}

std::vector<Config> MoeRouteOperator::candidates(const MoeRoute& problem) {
  return {{.dtype = problem.dtype,
           .experts = problem.experts,
           .top_k = problem.top_k,
           .expert_groups = problem.expert_groups,
           .topk_groups = problem.topk_groups,
           .scoring = problem.scoring,
           .bias = problem.bias,
           .renormalize = problem.renormalize,
           .grouping = problem.grouping,
           .alignment = problem.alignment}};
}

std::string MoeRouteOperator::merit(const Config& config, const MoeRoute&) {
  if (!has_lists(config)) return "a warp for each token, one launch";
  return fmt::format("a warp for each token; one launch for up to {} tokens, two for more", moe_route::kTokensOfRound);
}

std::string MoeRouteOperator::label(const Config& config) {
  return fmt::format("{} of {} experts", config.top_k, config.experts);
}

std::string MoeRouteOperator::subject(const Config& config) { return fmt::format("moe_route {}", label(config)); }

std::string MoeRouteOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::dtype_not_floating:
      return fmt::format("logits of {}: f32, f16 or bf16 needed", to_word(config.dtype));
    case Rule::experts_out_of_range:
      return fmt::format("{} experts: {} to {}", found, moe_route::kVector, bound);
    case Rule::experts_not_vectors:
      return fmt::format("{} experts, a multiple of {} needed: pad logits with columns of -inf", found, bound);
    case Rule::top_k_out_of_range:
      return fmt::format("top_k {}: 1 to {}", found, bound);
    case Rule::top_k_above_experts:
      return fmt::format("top_k {} of {} experts", found, bound);
    case Rule::groups_out_of_range:
      return fmt::format("{} groups of experts: 1 to {}", found, bound);
    case Rule::groups_uneven:
      return fmt::format("{} experts in {} groups: groups of one size needed", found, bound);
    case Rule::groups_not_lanes:
      return fmt::format("groups of {} experts: {} times a power of two up to 32 needed", found, bound);
    case Rule::topk_groups_out_of_range:
      return fmt::format("topk_groups {}: 1 to the {} that there are", found, bound);
    case Rule::top_k_above_groups:
      return fmt::format("top_k {} of the {} experts of topk_groups groups", found, bound);
    case Rule::alignment_out_of_range:
      return fmt::format("alignment {}: 1 to {}", found, bound);
    case Rule::alignment_without_lists:
      return fmt::format("alignment {} with grouping {}: only contiguous groups are padded", found,
                         to_word(config.grouping));
  }
  return fmt::format("{}?", config.experts);
}

std::string MoeRouteOperator::kernel_name(Arch arch, const Config& c) {
  std::string name = fmt::format("tessera_moe_route_{}_{}_e{}_k{}_{}", arch_name(arch.to_string()), to_word(c.dtype),
                                 c.experts, c.top_k, to_word(c.scoring));
  if (c.expert_groups > 1) name += fmt::format("_g{}of{}", c.topk_groups, c.expert_groups);
  if (c.bias != Bias::none) name += "_bias";
  if (c.renormalize == Renormalize::off) name += "_raw";
  name += fmt::format("_{}", to_word(c.grouping));
  if (c.alignment > 1) name += fmt::format("_a{}", c.alignment);
  return name;
}

void MoeRouteOperator::describe(const Config& config, Plan& plan) {
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
  for (const BufferSpec& buffer : plan.launch.buffers)
    plan.operands.push_back(
        plain_operand(buffer.name, buffer.dtype, buffer.role == BufferRole::input ? "read" : "written"));
  plan.smem_bytes = moe_route::smem_bytes(config);
  if (plan.smem_bytes > 0)
    plan.smem = {
        {"sums of chunks", 0, moe_route::kPartsBytes, 1, {}},
        {"experts", moe_route::kPartsBytes, moe_route::experts_bytes(config), 1, {}},
        {"sums of warps", moe_route::kPartsBytes + moe_route::experts_bytes(config), moe_route::kSumsBytes, 1, {}}};
  plan.roles = {{.name = "router", .first_warp = 0, .warps = moe_route::kWarps, .registers = 0}};
}

std::string MoeRouteOperator::launch_bounds() { return "tessera::moe_route::kThreads"; }

std::string MoeRouteOperator::call_of_step(const Config& config, std::size_t step) {
  const auto integers = [](bool is_given, const char* name) {
    return is_given ? fmt::format("static_cast<int*>({})", name) : std::string("nullptr");
  };
  const bool has_lists = moe_route::has_lists(config);
  return fmt::format(
      "tessera::moe_route::{}<kConfig>(\n      {{logits, logits_stride_m, {}, {}, topk_weights, {}, {},\n"
      "       {}, {}, {}, {},\n       scale, m, {}}})",
      step == 0 ? "route" : "list", config.bias == Bias::none ? "nullptr" : "bias", integers(true, "topk_experts"),
      integers(has_lists, "groups"), integers(config.grouping == Grouping::contiguous, "counts"),
      integers(has_lists, "indices"), has_lists ? "row_weights" : "nullptr", integers(has_lists, "slots"),
      integers(has_lists, "workspace"), has_lists ? "rows" : "0");
}

std::vector<SourceFile> MoeRouteOperator::generated_headers(const Config&) { return {}; }

}  // namespace tessera::moe_route

namespace tessera {

std::span<const Selector> moe_route_fields() {
  static const std::vector<Selector> table = {
      field<&MoeRoute::arch>("arch", "arch", kArchHelp),
      offer(field<&MoeRoute::dtype>("dtype", "dtype", "type of logits"), {"f32", "f16", "bf16"}),
      field<&MoeRoute::experts>("experts", "experts", "columns of logits: a multiple of 8 up to 512"),
      field<&MoeRoute::top_k>("top-k", "top_k", "experts of a token: up to 16"),
      field<&MoeRoute::expert_groups>("expert-groups", "expert_groups",
                                      "groups of experts, of which some are taken first"),
      field<&MoeRoute::topk_groups>("topk-groups", "topk_groups", "groups that a token's experts are from"),
      field<&MoeRoute::scoring>("scoring", "scoring", "from logits to the scores that are weights"),
      offer(field<&MoeRoute::bias>("bias", "bias", "column: added to scores for the choice of experts alone"),
            {to_word(Bias::none), to_word(Bias::column)}),
      field<&MoeRoute::renormalize>("renormalize", "renormalize", "whether a token's weights are divided by their sum"),
      field<&MoeRoute::grouping>("grouping", "grouping", "lists of each expert's rows, as gemm's grouping reads them"),
      field<&MoeRoute::alignment>("alignment", "alignment", "rows of a contiguous group are a multiple of it"),
      field<&MoeRoute::m>("m", "m", "expected number of tokens"),
  };
  return table;
}

namespace {

constexpr FamilyRow kMoeRouteFamilies[] = {family_row<MoeRouteOperator>("warps", kAllTargets)};
constexpr OperatorType kMoeRouteType = make_operator_type<MoeRoute>(moe_route_fields, kMoeRouteFamilies);

}  // namespace

template <>
const OperatorType& operator_type<MoeRoute>() noexcept {
  return kMoeRouteType;
}

}  // namespace tessera
