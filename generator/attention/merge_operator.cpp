// Candidates are threads of a CTA by parts loaded at once. A merge moves bytes and waits for them: all parts at once is
// best as far as registers allow, and more only costs them. Rows too few for the device go to more, smaller CTAs.
#include "generator/attention/merge_operator.h"

#include <fmt/format.h>

#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr int kThreads[] = {256, 128, 512};
constexpr int kAtOnce[] = {4, 2, 8};
constexpr int kDefaultThreads = 256, kFewThreads = 128, kDefaultAtOnce = 4, kMostAtOnce = 8;
constexpr Hint kManyThreads = 1 << 15;  // of a launch: what 128 multiprocessors take with a CTA of 256 each

int wanted_at_once(const Merge& problem) {
  if (problem.parts < 0) return kDefaultAtOnce;
  return problem.parts <= 2 ? 2 : problem.parts <= 4 ? 4 : kMostAtOnce;
}

/// Below kManyThreads in all a CTA of half the size leaves no multiprocessor without one.
int wanted_threads(const merge::Config& c, const Merge& problem) {
  if (problem.batch < 0 || problem.heads_q < 0 || problem.seqlen_q < 0) return kDefaultThreads;
  const double rows =
      static_cast<double>(problem.batch) * static_cast<double>(problem.heads_q) * static_cast<double>(problem.seqlen_q);
  return rows * merge::threads_of_row(c) < static_cast<double>(kManyThreads) ? kFewThreads : kDefaultThreads;
}

void add_sizes(const merge::Config& c, LaunchPlan& launch) {
  const auto size = [&](const char* name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({name, min, max, std::move(value), std::move(help)});
  };
  size("parts", 0, kMaxParts, {}, "parts of each row's keys");
  size("batch", 0, kMaxLength, Expression(1), "sequences; 1 where their queries follow each other (ragged)");
  size("heads_q", 1, kMaxHeads, {}, "query heads");
  size("seqlen_q", 0, kMaxLength, {}, "queries of a sequence");
  // Outputs don't take a stride of 0.
  for (const std::string tensor : {"o_parts", "o"}) {
    const bool is_output = tensor == "o";
    const auto stride = [&](const char* step, Expression value, const char* what) {
      launch.sizes.push_back({fmt::format("{}_stride_{}", tensor, step), is_output ? 1 : 0, kMaxStride,
                              std::move(value), fmt::format("elements of {} from one {} to the next", tensor, what)});
    };
    stride("head", Expression(c.head_dim_v), "head");
    stride("seqlen", expression("heads_q * {}", c.head_dim_v), "row");
    stride("batch", expression("max(seqlen_q, 1) * heads_q * {}", c.head_dim_v), "sequence");
    if (!is_output) stride("part", expression("max(batch, 1) * max(seqlen_q, 1) * heads_q * {}", c.head_dim_v), "part");
  }
  const auto stride = [&](const char* step, const char* value) {
    launch.sizes.push_back({fmt::format("lse_parts_stride_{}", step), 0, kMaxStride, Expression::parse(value),
                            fmt::format("elements of lse_parts from one {} to the next", step)});
  };
  stride("head", "seqlen_q");
  stride("batch", "heads_q * seqlen_q");
  stride("part", "batch * heads_q * seqlen_q");
}

std::vector<Expression> expressions(std::initializer_list<const char*> texts) {
  std::vector<Expression> list;
  for (const char* const text : texts) list.push_back(Expression::parse(text));
  return list;
}

void add_buffers(const merge::Config& c, LaunchPlan& launch) {
  const auto buffer = [&](const char* name, BufferRole role, DType dtype, std::vector<Expression> shape,
                          std::vector<Expression> strides, int alignment, bool is_optional) {
    launch.buffers.push_back({.name = name,
                              .role = role,
                              .dtype = std::string(to_word(dtype)),
                              .shape = std::move(shape),
                              .strides = std::move(strides),
                              .alignment = alignment,
                              .is_optional = is_optional});
  };
  std::vector<Expression> rows = expressions({"batch", "seqlen_q", "heads_q"});
  rows.emplace_back(c.head_dim_v);
  std::vector<Expression> parts = rows;
  parts.insert(parts.begin(), Expression::parse("parts"));
  buffer(
      "o_parts", BufferRole::input, c.dtype, parts,
      expressions({"o_parts_stride_part", "o_parts_stride_batch", "o_parts_stride_seqlen", "o_parts_stride_head", "1"}),
      16, false);
  buffer("lse_parts", BufferRole::input, DType::f32, expressions({"parts", "batch", "heads_q", "seqlen_q"}),
         expressions({"lse_parts_stride_part", "lse_parts_stride_batch", "lse_parts_stride_head", "1"}), 4, false);
  buffer("o", BufferRole::output, c.o_dtype, rows,
         expressions({"o_stride_batch", "o_stride_seqlen", "o_stride_head", "1"}), 16, false);
  buffer("lse", BufferRole::output, DType::f32, expressions({"batch", "heads_q", "seqlen_q"}),
         expressions({"heads_q * seqlen_q", "seqlen_q", "1"}), 4, true);
  if (c.sink != Sink::none)
    buffer("sink", BufferRole::input, DType::f32, expressions({"heads_q"}), expressions({"1"}), 4, true);
}

/// Each rule keeps the products of the next within 64 bits.
void add_domain(const merge::Config& c, LaunchPlan& launch) {
  const auto at_most = [&](const char* product, const char* what) {
    launch.domain.push_back({.lhs = Expression::parse(product),
                             .relation = Relation::at_most,
                             .rhs = Expression(kMaxLength),
                             .message = fmt::format("{} must be at most {}", what, kMaxLength)});
  };
  at_most("batch * heads_q", "batch * heads_q");
  at_most("batch * heads_q * seqlen_q", "the number of rows");
  for (const char* const step : {"part", "batch", "seqlen", "head"})
    for (const std::string tensor : {"o_parts", "o"}) {
      if (tensor == "o" && step == std::string_view("part")) continue;
      const int elements = merge::kLoadBytes / dtype_bytes(tensor == "o" ? c.o_dtype : c.dtype);
      const std::string stride = fmt::format("{}_stride_{}", tensor, step);
      launch.domain.push_back({.lhs = Expression::parse(stride),
                               .relation = Relation::multiple_of,
                               .rhs = Expression(elements),
                               .message = fmt::format("{} must be a multiple of {} (16 bytes)", stride, elements)});
    }
}

LaunchPlan launch_of(const merge::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "merge";
  launch.arch = arch;
  add_sizes(c, launch);
  add_buffers(c, launch);
  add_domain(c, launch);
  LaunchStep step;
  step.entry = kernel;
  const auto pointer = [&](const char* name) {
    step.parameters.push_back(
        {.name = name, .kind = ParameterKind::pointer, .value = {}, .source = name, .offset_bytes = {}});
  };
  const auto size = [&](const char* name, ParameterKind kind, const char* value) {
    step.parameters.push_back(
        {.name = name, .kind = kind, .value = Expression::parse(value), .source = {}, .offset_bytes = {}});
  };
  for (const char* const name : {"o_parts", "lse_parts", "o", "lse"}) pointer(name);
  if (c.sink != Sink::none) pointer("sink");
  size("parts", ParameterKind::i32, "parts");
  size("rows", ParameterKind::i32, "batch * heads_q * seqlen_q");
  size("heads_q", ParameterKind::i32, "heads_q");
  size("seqlen_q", ParameterKind::i32, "seqlen_q");
  for (const char* const stride : {"o_parts_stride_part", "o_parts_stride_batch", "o_parts_stride_seqlen",
                                   "o_parts_stride_head", "lse_parts_stride_part", "lse_parts_stride_batch",
                                   "lse_parts_stride_head", "o_stride_batch", "o_stride_seqlen", "o_stride_head"})
    size(stride, ParameterKind::i64, stride);
  step.grid[0] = expression("ceil_div(batch * heads_q * seqlen_q, {})", merge::rows_of_cta(c));
  step.block[0] = static_cast<std::uint32_t>(c.threads);
  step.programmatic_stream_serialization = true;
  launch.steps.push_back(std::move(step));
  return launch;
}

OperandPlan operand(const char* name, DType dtype, const char* use) {
  OperandPlan operand;
  operand.name = name;
  operand.dtype = to_word(dtype);
  operand.use = use;
  return operand;
}

}  // namespace

void MergeOperator::require_facts(const Merge& problem) {
  for (const DType dtype : {problem.dtype, problem.o_dtype.value_or(problem.dtype)})
    if (!merge::is_floating(dtype))
      throw Error(ErrorKind::unsupported,
                  fmt::format("merge has no kernel for {} {}: there are kernels for f32, f16 and bf16",
                              dtype == problem.dtype ? "dtype" : "o_dtype", to_word(dtype)));
}

std::vector<merge::Config> MergeOperator::candidates(const Merge& problem) {
  std::vector<merge::Config> list;
  for (const int threads : kThreads)
    for (const int at_once : kAtOnce)
      list.push_back({.head_dim_v = problem.head_dim_v,
                      .dtype = problem.dtype,
                      .o_dtype = problem.o_dtype.value_or(problem.dtype),
                      .sink = problem.sink,
                      .threads = problem.threads.value_or(threads),
                      .at_once = problem.at_once.value_or(at_once)});
  return list;
}

double MergeOperator::score(const Config& config, const Merge& problem) {
  double score = 1;
  if (config.threads != wanted_threads(config, problem)) score -= 0.05;
  if (config.at_once != wanted_at_once(problem)) score -= 0.1;
  return score;
}

std::string MergeOperator::merit(const Config& config, const Merge&) {
  return fmt::format("16 bytes of {} at once for each of {} threads", counted(config.at_once, "part"), config.threads);
}

std::string MergeOperator::label(const Config& config) {
  return fmt::format("{} threads, {} at once", config.threads, counted(config.at_once, "part"));
}

std::string MergeOperator::subject(const Config& config) {
  return fmt::format("merge head_dim_v {}, {} to {}, {}", config.head_dim_v, to_word(config.dtype),
                     to_word(config.o_dtype), label(config));
}

std::string MergeOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case merge::Rule::ok:
      break;
    case merge::Rule::dtype_not_floating:
    case merge::Rule::o_dtype_not_floating:
      return fmt::format("elements of {} bytes that are no floating-point numbers: f32, f16 or bf16 needed", found);
    case merge::Rule::row_not_whole_loads:
      return fmt::format("rows of {} bytes, a multiple of {} needed: make head_dim_v a multiple of {}", found, bound,
                         merge::elements_of_thread(config));
    case merge::Rule::threads_not_multiple_of_32:
      return fmt::format("{} threads, a multiple of {} needed (warp)", found, bound);
    case merge::Rule::threads_out_of_range:
      return fmt::format("{} threads, 32 to {} allowed", found, bound);
    case merge::Rule::row_longer_than_cta:
      return fmt::format("{} threads for a row, {} in a CTA: take more threads", found, bound);
    case merge::Rule::at_once_out_of_range:
      return fmt::format("{} at once, 1 to {} allowed", counted(verdict.found, "part"), bound);
  }
  return "?";
}

std::string MergeOperator::kernel_name(Arch arch, const Config& config) {
  std::string name =
      fmt::format("tessera_merge_{}_d{}_{}", arch_name(arch.to_string()), config.head_dim_v, to_word(config.dtype));
  if (config.o_dtype != config.dtype) name += fmt::format("_to_{}", to_word(config.o_dtype));
  if (config.sink != Sink::none) name += "_sink";
  return name + fmt::format("_t{}_p{}", config.threads, config.at_once);
}

void MergeOperator::describe(const Config& config, Plan& plan) {
  plan.operands = {operand("o_parts", config.dtype, "read, 16 bytes a thread"),
                   operand("lse_parts", DType::f32, "read: weights of the parts"),
                   operand("o", config.o_dtype, "written"), operand("lse", DType::f32, "written if not null")};
  if (config.sink != Sink::none) plan.operands.push_back(operand("sink", DType::f32, "read if not null"));
  plan.roles = {{.name = "merge", .first_warp = 0, .warps = config.threads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string MergeOperator::launch_bounds() { return "kConfig.threads, tessera::merge::min_ctas(kConfig)"; }

std::string MergeOperator::call(const Config& config) {
  return fmt::format(
      "tessera::merge::kernel<kConfig>(\n      {{o_parts, lse_parts, o, lse, {}, parts, rows, heads_q, seqlen_q,\n"
      "       o_parts_stride_part, o_parts_stride_batch, o_parts_stride_seqlen, o_parts_stride_head,\n"
      "       lse_parts_stride_part, lse_parts_stride_batch, lse_parts_stride_head, o_stride_batch, o_stride_seqlen,\n"
      "       o_stride_head}})",
      config.sink == Sink::none ? "nullptr" : "sink");
}

std::vector<SourceFile> MergeOperator::generated_headers(const Config&) { return {}; }

std::span<const Selector> merge_fields() {
  static const std::vector<Selector> table = {
      field<&Merge::arch>("arch", "arch", kArchHelp),
      field<&Merge::head_dim_v>("head-dim-v", "head_dim_v", "elements of a row of o: a multiple of 8, of 4 for f32"),
      offer(field<&Merge::dtype>("dtype", "dtype", "type of the parts"), {"f32", "f16", "bf16"}),
      offer(field<&Merge::o_dtype>("o-dtype", "o_dtype", "type of o (auto: dtype)"), {"f32", "f16", "bf16"}),
      field<&Merge::sink>("sink", "sink", "whether each head has a logit that joins the sum that o is divided by"),
      field<&Merge::threads>("threads", "threads", "threads of a CTA"),
      field<&Merge::at_once>("at-once", "at_once", "parts that a thread loads at the same time"),
      field<&Merge::parts>("parts", "parts", "expected number of parts"),
      field<&Merge::batch>("batch", "batch", "expected number of sequences"),
      field<&Merge::heads_q>("heads-q", "heads_q", "expected number of query heads"),
      field<&Merge::seqlen_q>("seqlen-q", "seqlen_q", "expected number of queries"),
  };
  return table;
}

namespace {

constexpr FamilyRow kMergeFamilies[] = {family_row<MergeOperator>("rows", kAllTargets)};
constexpr OperatorType kMergeType = make_operator_type<Merge>(merge_fields, kMergeFamilies);

}  // namespace

template <>
const OperatorType& operator_type<Merge>() noexcept {
  return kMergeType;
}

}  // namespace tessera
