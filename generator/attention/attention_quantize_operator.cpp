// One Config serves a Problem: what is done with each element is too little for a choice.
#include "generator/attention/attention_quantize_operator.h"

#include <fmt/format.h>

#include "generator/attention/nvfp4_buffers.h"
#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

using attention_quantize::Config;
using attention_quantize::Rule;

constexpr std::int64_t kMaxLength = 2147418112;  // as attention's
constexpr std::int64_t kMaxHeads = 1 << 16, kMaxStride = std::int64_t{1} << 40;
constexpr int kLoadElements = 8;  // 16 bytes

struct Source {
  const char *name, *heads, *seqlen;
  const char* units;  // what it becomes
};
constexpr Source kSources[] = {{"q", "heads_q", "seqlen_q", "q_units"},
                               {"k", "heads_kv", "seqlen_k", "k_units"},
                               {"v", "heads_kv", "seqlen_k", "v_units"}};
constexpr const char* kSteps[] = {"head", "seqlen", "batch"};

std::string stride_name(const Source& s, const char* step) { return fmt::format("{}_stride_{}", s.name, step); }

void add_sizes(const Config& c, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  size("batch", 0, kMaxLength, {}, "sequences");
  size("heads_q", 1, kMaxHeads, {}, "query heads: a multiple of heads_kv");
  size("heads_kv", 1, kMaxHeads, {}, "key and value heads");
  size("seqlen_q", 0, kMaxLength, {}, "queries of a sequence");
  size("seqlen_k", 0, kMaxLength, {}, "keys of a sequence");
  for (const Source& s : kSources) {
    const auto stride = [&](const char* step, Expression value, const char* what) {
      size(stride_name(s, step), 0, kMaxStride, std::move(value),
           fmt::format("elements of {} from one {} to the next", s.name, what));
    };
    stride("head", Expression(c.head_dim), "head");
    stride("seqlen", expression("{} * {}", s.heads, c.head_dim), "row");
    stride("batch", expression("max({}, 1) * {} * {}", s.seqlen, s.heads, c.head_dim), "sequence");
  }
}

/// The quantised operands have the names of attention's buffers with "_units" behind: q, k and v are what comes.
void add_buffers(const Config& c, LaunchPlan& launch) {
  for (const Source& s : kSources)
    launch.buffers.push_back(
        {.name = s.name,
         .role = BufferRole::input,
         .dtype = std::string(to_word(c.dtype)),
         .shape = {Expression::parse("batch"), Expression::parse(s.seqlen), Expression::parse(s.heads),
                   Expression(c.head_dim)},
         .strides = {Expression::parse(stride_name(s, "batch")), Expression::parse(stride_name(s, "seqlen")),
                     Expression::parse(stride_name(s, "head")), Expression(1)}});
  for (const Source& s : kSources) {
    BufferSpec units = nvfp4_units(s.name, BufferRole::output, c.head_dim);
    units.name = s.units;
    launch.buffers.push_back(std::move(units));
  }
  const auto mean = [&](const char* name, const char* heads, const std::string& rows) {
    launch.buffers.push_back(
        {.name = name,
         .role = BufferRole::output,
         .dtype = "f32",
         .shape = {Expression::parse(heads), Expression::parse(rows), Expression(c.head_dim)},
         .strides = {expression("{} * {}", rows, c.head_dim), Expression(c.head_dim), Expression(1)}});
  };
  mean("q_mean", "heads_q", nvfp4_query_blocks());
  mean("k_mean", "heads_kv", "batch");
  launch.buffers.push_back(nvfp4_delta_s(BufferRole::output));
  launch.buffers.push_back(nvfp4_row_shift(BufferRole::output));
}

/// Each rule keeps the products of the next within 64 bits.
void add_domain(LaunchPlan& launch) {
  const auto at_most = [&](const std::string& product, const char* what) {
    add_at_most(launch, Expression::parse(product), kMaxLength, fmt::format("{} must be at most {}", what, kMaxLength));
  };
  launch.domain.push_back({.lhs = Expression::parse("heads_q"),
                           .relation = Relation::multiple_of,
                           .rhs = Expression::parse("heads_kv"),
                           .message = "heads_q must be a multiple of heads_kv"});
  at_most("batch * heads_q", "batch * heads_q");
  at_most("seqlen_q + seqlen_k", "seqlen_q + seqlen_k");
  at_most("heads_q * batch * (ceil_div(seqlen_q, 128) + 2 * ceil_div(seqlen_k, 128))",
          "the number of blocks of all heads");
  for (const Source& s : kSources)
    for (const char* const step : kSteps)
      launch.domain.push_back(
          {.lhs = Expression::parse(stride_name(s, step)),
           .relation = Relation::multiple_of,
           .rhs = Expression(kLoadElements),
           .message = fmt::format("{} must be a multiple of {} (16 bytes)", stride_name(s, step), kLoadElements)});
}

LaunchPlan launch_of(const Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "attention_quantize";
  launch.arch = arch;
  add_sizes(c, launch);
  add_buffers(c, launch);
  add_domain(launch);
  const std::string of_q = fmt::format("heads_q * {}", nvfp4_query_blocks());
  const std::string of_k = fmt::format("heads_kv * {}", nvfp4_key_blocks());
  launch.workspace = {.bytes = expression("{} * {}", of_k, 4 * c.head_dim), .alignment = 256};
  LaunchStep step;
  step.block[0] = attention_quantize::kThreads;
  for (const BufferSpec& buffer : launch.buffers)
    step.parameters.push_back(pointer_parameter(buffer.name.c_str(), buffer.name.c_str()));
  step.parameters.push_back(pointer_parameter("workspace", "workspace"));
  for (const char* const name : {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"})
    step.parameters.push_back(size_parameter(name, ParameterKind::i32, Expression::parse(name)));
  for (const Source& s : kSources)
    for (const char* const of : kSteps) {
      const std::string name = stride_name(s, of);
      step.parameters.push_back(size_parameter(name.c_str(), ParameterKind::i64, Expression::parse(name)));
    }
  const auto add_step = [&](const char* suffix, Expression ctas, int smem_bytes) {
    step.entry = kernel + suffix;
    step.grid[0] = std::move(ctas);
    step.dynamic_smem_bytes = smem_bytes;
    launch.steps.push_back(step);
  };
  add_step("_means", expression("{} + {}", of_q, of_k), attention_quantize::sums_bytes(c));
  add_step("_mean_of_keys", Expression::parse("heads_kv * batch"), 0);
  add_step("", expression("{} + 2 * {}", of_q, of_k), attention_quantize::smem_bytes(c));
  return launch;
}

}  // namespace

void AttentionQuantizeOperator::require_facts(const AttentionQuantize&) {}  // why_invalid() says it all

std::vector<Config> AttentionQuantizeOperator::candidates(const AttentionQuantize& problem) {
  return {{.head_dim = problem.head_dim, .dtype = problem.dtype, .conversion = conversion_of(problem.arch)}};
}

std::string AttentionQuantizeOperator::merit(const Config&, const AttentionQuantize&) {
  return "a CTA for each block of 128 queries, keys and values";
}

std::string AttentionQuantizeOperator::label(const Config& config) {
  return fmt::format("{} threads, head_dim {}", attention_quantize::kThreads, config.head_dim);
}

std::string AttentionQuantizeOperator::subject(const Config& config) {
  return fmt::format("attention_quantize head_dim {}, {}", config.head_dim, to_word(config.dtype));
}

std::string AttentionQuantizeOperator::explain(const Config& config, const Verdict& verdict) {
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::dtype_not_16_bit:
      return fmt::format("{} elements: bf16 or f16 needed", to_word(config.dtype));
    case Rule::head_dim_not_64_or_128:
      return fmt::format("head_dim {}, 64 or {} needed (one or two steps of 64 products)", grouped(verdict.found),
                         grouped(verdict.bound));
  }
  return "?";
}

std::string AttentionQuantizeOperator::kernel_name(Arch arch, const Config& config) {
  return fmt::format("tessera_attention_quantize_{}_d{}_{}", arch_name(arch.to_string()), config.head_dim,
                     to_word(config.dtype));
}

void AttentionQuantizeOperator::describe(const Config& config, Plan& plan) {
  const std::string_view dtype = to_word(config.dtype);
  plan.operands = {plain_operand("q", dtype, "read, 16 columns a thread"),
                   plain_operand("k", dtype, "read, 16 columns a thread"),
                   plain_operand("v", dtype, "read, 16 keys of a column a thread"),
                   plain_operand("q_units", "e2m1", "written: A of S = Q K^T as lanes take it, ue4m3 for 16 columns"),
                   plain_operand("k_units", "e2m1", "written: B of S = Q K^T as lanes take it, ue4m3 for 16 columns"),
                   plain_operand("v_units", "e2m1", "written: B of O = P V as lanes take it, ue4m3 for 16 keys"),
                   plain_operand("q_mean", "f32", "written: mean of each block of queries"),
                   plain_operand("k_mean", "f32", "written: mean of each sequence's keys"),
                   plain_operand("delta_s", "f32", "written: what scores are less by because of q_mean"),
                   plain_operand("row_shift", "f32", "written: what scores are less by because of k_mean")};
  plan.smem = {{"keys of a block",
                0,
                attention_quantize::smem_bytes(config),
                1,
                {{"keys without their mean, being written", "quantise", "barrier of the CTA"},
                 {"keys without their mean", "quantise", "end"}}}};
  plan.smem_bytes = attention_quantize::smem_bytes(config);
  plan.roles = {{.name = "quantise", .first_warp = 0, .warps = attention_quantize::kThreads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string AttentionQuantizeOperator::launch_bounds() {
  return "tessera::attention_quantize::kThreads, tessera::attention_quantize::kMinCtas";
}

std::string AttentionQuantizeOperator::call_of_step(const Config&, std::size_t step) {
  constexpr const char* kKernels[] = {"means_kernel", "mean_of_keys_kernel", "quantize_kernel"};
  std::string strides;
  for (const Source& s : kSources) {
    strides += fmt::format(",\n       {{");
    for (const char* const of : kSteps) strides += (of == kSteps[0] ? "" : ", ") + stride_name(s, of);
    strides += "}";
  }
  return fmt::format(
      "tessera::attention_quantize::{}<kConfig>(\n      {{q, k, v, q_units, k_units, v_units, q_mean, k_mean, delta_s, "
      "row_shift,\n       static_cast<float*>(workspace), batch, heads_q, heads_kv, seqlen_q, seqlen_k{}}})",
      kKernels[step], strides);
}

std::vector<SourceFile> AttentionQuantizeOperator::generated_headers(const Config&) { return {}; }

std::span<const Selector> attention_quantize_fields() {
  static const std::vector<Selector> table = {
      field<&AttentionQuantize::arch>("arch", "arch", "target: sm_90a, or sm_100, sm_103, sm_120, sm_121 with a or f"),
      field<&AttentionQuantize::head_dim>("head-dim", "head_dim", "elements of a head of q, k and v: 64 or 128"),
      offer(field<&AttentionQuantize::dtype>("dtype", "dtype", "type of q, k and v"), {"bf16", "f16"}),
      field<&AttentionQuantize::batch>("batch", "batch", "expected number of sequences"),
      field<&AttentionQuantize::heads_q>("heads-q", "heads_q", "expected number of query heads"),
      field<&AttentionQuantize::heads_kv>("heads-kv", "heads_kv", "expected number of key and value heads"),
      field<&AttentionQuantize::seqlen_q>("seqlen-q", "seqlen_q", "expected number of queries"),
      field<&AttentionQuantize::seqlen_k>("seqlen-k", "seqlen_k", "expected number of keys"),
  };
  return table;
}

namespace {

constexpr FamilyRow kFamilies[] = {family_row<AttentionQuantizeOperator>("rows", kAllTargets)};
constexpr OperatorType kType = make_operator_type<AttentionQuantize>(attention_quantize_fields, kFamilies);

}  // namespace

template <>
const OperatorType& operator_type<AttentionQuantize>() noexcept {
  return kType;
}

}  // namespace tessera
