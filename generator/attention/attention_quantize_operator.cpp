// One Config serves a Problem: what is done with each element is too little for a choice.
#include "generator/attention/attention_quantize_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "generator/attention/attention_quantize_cost.h"
#include "generator/attention/nvfp4_buffers.h"
#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr std::int64_t kQuantizeMaxHeads = 1 << 16, kQuantizeMaxStride = std::int64_t{1} << 40;
constexpr int kLoadElements = 8;  // 16 bytes

struct Source {
  const char *name, *heads, *seqlen;
  const char* units;  // what it becomes
};
constexpr Source kSources[] = {{"q", "heads_q", "seqlen_q", "q_units"},
                               {"k", "heads_kv", "seqlen_k", "k_units"},
                               {"v", "heads_kv", "seqlen_k", "v_units"}};

bool is_q(const Source& s) { return s.name == std::string_view("q"); }
bool is_paged(const attention_quantize::Config& c) { return c.kv_layout == KvLayout::paged; }
bool is_paged(const attention_quantize::Config& c, const Source& s) { return !is_q(s) && is_paged(c); }
bool is_ragged(const attention_quantize::Config& c, const Source& s) {
  return is_q(s) ? c.q_layout == QueryLayout::ragged : c.kv_layout == KvLayout::ragged;
}
Nvfp4Layouts layouts_of(const attention_quantize::Config& c) {
  return {c.q_layout == QueryLayout::ragged, c.kv_layout == KvLayout::ragged};
}

std::string stride_name(const Source& s, const char* step) { return fmt::format("{}_stride_{}", s.name, step); }
/// Steps of a tensor, the innermost first; the kernel takes three, of which the last is of sequences or pages.
std::vector<const char*> steps_of(const attention_quantize::Config& c, const Source& s) {
  if (is_ragged(c, s)) return {"head", "seqlen"};
  return {"head", "seqlen", is_paged(c, s) ? "page" : "batch"};
}

/// Sizes of the launch beside strides.
std::vector<const char*> counts_of(const attention_quantize::Config& c) {
  std::vector<const char*> counts{"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k"};
  if (c.kv_layout == KvLayout::ragged) counts.push_back("tokens_k");
  if (is_paged(c)) counts.insert(counts.end(), {"pages", "max_pages"});
  return counts;
}

void add_sizes(const attention_quantize::Config& c, LaunchPlan& launch) {
  const auto size = [&](std::string name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        std::string help) {
    launch.sizes.push_back({std::move(name), min, max, std::move(value), std::move(help)});
  };
  const bool has_ragged_queries = c.q_layout == QueryLayout::ragged;
  size("batch", 0, kMaxLength, {}, "sequences");
  size("heads_q", 1, kQuantizeMaxHeads, {}, "query heads: a multiple of heads_kv");
  size("heads_kv", 1, kQuantizeMaxHeads, {}, "key and value heads");
  size("seqlen_q", 0, kMaxLength, {}, has_ragged_queries ? "queries of all sequences" : "queries of a sequence");
  if (is_paged(c)) {
    size("pages", 0, kMaxLength, {}, "pages of the pool");
    size("max_pages", 0, kMaxLength, {}, "entries of a sequence in block_table");
    size("seqlen_k", 0, kMaxLength, expression("max_pages * {}", c.page_size), "most keys of a sequence");
  } else if (c.kv_layout == KvLayout::ragged) {
    size("tokens_k", 0, kMaxLength, {}, "keys of all sequences together");
    size("seqlen_k", 0, kMaxLength, Expression::parse("tokens_k"), "most keys of a sequence");
  } else {
    size("seqlen_k", 0, kMaxLength, {}, "keys of a sequence");
  }
  for (const Source& s : kSources) {
    const auto stride = [&](const char* step, Expression value, const char* what) {
      size(stride_name(s, step), 0, kQuantizeMaxStride, std::move(value),
           fmt::format("elements of {} from one {} to the next", s.name, what));
    };
    stride("head", Expression(c.head_dim), "head");
    stride("seqlen", expression("{} * {}", s.heads, c.head_dim), "row");
    if (is_paged(c, s)) {
      stride("page", expression("heads_kv * {}", std::int64_t{c.page_size} * c.head_dim), "page");
    } else if (!is_ragged(c, s)) {
      stride("batch", expression("max({}, 1) * {} * {}", s.seqlen, s.heads, c.head_dim), "sequence");
    }
  }
}

BufferSpec source_buffer(const attention_quantize::Config& c, const Source& s) {
  BufferSpec buffer{.name = s.name,
                    .role = BufferRole::input,
                    .dtype = std::string(to_word(c.dtype)),
                    .shape = {Expression::parse(s.heads), Expression(c.head_dim)},
                    .strides = {Expression::parse(stride_name(s, "head")), Expression(1)}};
  const auto outside = [&](Expression extent, const char* step) {
    buffer.shape.insert(buffer.shape.begin(), std::move(extent));
    buffer.strides.insert(buffer.strides.begin(), Expression::parse(stride_name(s, step)));
  };
  if (is_paged(c, s)) {
    outside(Expression(c.page_size), "seqlen");
    outside(Expression::parse("pages"), "page");
  } else if (is_ragged(c, s)) {
    outside(Expression::parse(is_q(s) ? "seqlen_q" : "tokens_k"), "seqlen");
  } else {
    outside(Expression::parse(s.seqlen), "seqlen");
    outside(Expression::parse("batch"), "batch");
  }
  return buffer;
}

/// Where sequences begin and end, and their pages.
std::vector<BufferSpec> places_of(const attention_quantize::Config& c) {
  std::vector<BufferSpec> places;
  if (c.q_layout == QueryLayout::ragged) places.push_back(nvfp4_numbers("cu_seqlens_q", "batch + 1"));
  if (c.kv_layout == KvLayout::ragged) places.push_back(nvfp4_numbers("cu_seqlens_k", "batch + 1"));
  if (c.seqused == UsedLengths::qk) places.push_back(nvfp4_numbers("seqused_q", "batch"));
  // Pages need lengths, which say where a sequence ends.
  if (c.seqused != UsedLengths::none || is_paged(c)) places.push_back(nvfp4_numbers("seqused_k", "batch"));
  if (is_paged(c)) {
    places.push_back(nvfp4_numbers("block_table", "batch"));
    places.back().shape.push_back(Expression::parse("max_pages"));
    places.back().strides = {Expression::parse("max_pages"), Expression(1)};
  }
  return places;
}

/// The quantised operands have the names of attention's buffers with "_units" behind: q, k and v are what comes.
void add_buffers(const attention_quantize::Config& c, LaunchPlan& launch) {
  const Nvfp4Layouts layouts = layouts_of(c);
  for (const Source& s : kSources) launch.buffers.push_back(source_buffer(c, s));
  for (BufferSpec& place : places_of(c)) launch.buffers.push_back(std::move(place));
  for (const Source& s : kSources) {
    BufferSpec units = nvfp4_units(s.name, BufferRole::output, c.head_dim, layouts);
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
  mean("q_mean", "heads_q", nvfp4_query_blocks(layouts, nvfp4::kBlockRows));
  mean("k_mean", "heads_kv", "batch");
  launch.buffers.push_back(nvfp4_delta_s(BufferRole::output, layouts));
  launch.buffers.push_back(nvfp4_statistic("row_shift", BufferRole::output, layouts));
}

/// Each rule keeps the products of the next within 64 bits.
void add_domain(const attention_quantize::Config& c, LaunchPlan& launch) {
  const auto at_most = [&](const std::string& product, const char* what) {
    add_at_most(launch, Expression::parse(product), kMaxLength, fmt::format("{} must be at most {}", what, kMaxLength));
  };
  launch.domain.push_back({.lhs = Expression::parse("heads_q"),
                           .relation = Relation::multiple_of,
                           .rhs = Expression::parse("heads_kv"),
                           .message = "heads_q must be a multiple of heads_kv"});
  at_most("batch * heads_q", "batch * heads_q");
  at_most("seqlen_q + seqlen_k", "seqlen_q + seqlen_k");
  if (is_paged(c))
    launch.domain.push_back(
        {.lhs = Expression::parse("seqlen_k"),
         .relation = Relation::at_most,
         .rhs = expression("max_pages * {}", c.page_size),
         .message = fmt::format("seqlen_k must be at most max_pages times page_size, which is {}", c.page_size)});
  at_most(fmt::format("heads_q * ({} + 2 * {})", nvfp4_query_blocks(layouts_of(c), nvfp4::kBlockRows),
                      nvfp4_key_blocks(layouts_of(c))),
          "the number of blocks of all heads");
  for (const Source& s : kSources)
    for (const char* const step : steps_of(c, s))
      launch.domain.push_back(
          {.lhs = Expression::parse(stride_name(s, step)),
           .relation = Relation::multiple_of,
           .rhs = Expression(kLoadElements),
           .message = fmt::format("{} must be a multiple of {} (16 bytes)", stride_name(s, step), kLoadElements)});
}

LaunchPlan launch_of(const attention_quantize::Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "attention_quantize";
  launch.arch = arch;
  add_sizes(c, launch);
  add_buffers(c, launch);
  add_domain(c, launch);
  const std::string of_q = fmt::format("heads_q * {}", nvfp4_query_blocks(layouts_of(c), nvfp4::kBlockRows));
  const std::string of_k = fmt::format("heads_kv * {}", nvfp4_key_blocks(layouts_of(c)));
  launch.workspace = {.bytes = expression("{} * {}", of_k, 4 * c.head_dim), .alignment = 256};
  LaunchStep step;
  step.block[0] = attention_quantize::kThreads;
  for (const BufferSpec& buffer : launch.buffers)
    step.parameters.push_back(pointer_parameter(buffer.name.c_str(), buffer.name.c_str()));
  step.parameters.push_back(pointer_parameter("workspace", "workspace"));
  for (const char* const name : counts_of(c))
    step.parameters.push_back(size_parameter(name, ParameterKind::i32, Expression::parse(name)));
  for (const Source& s : kSources)
    for (const char* const of : steps_of(c, s)) {
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

std::vector<attention_quantize::Config> AttentionQuantizeOperator::candidates(const AttentionQuantize& problem) {
  return {{.head_dim = problem.head_dim,
           .dtype = problem.dtype,
           .q_layout = problem.q_layout,
           .kv_layout = problem.kv_layout,
           .page_size = problem.page_size.value_or(0),
           .seqused = problem.seqused,
           .conversion = conversion_of(problem.arch)}};
}

std::string AttentionQuantizeOperator::merit(const Config&, const AttentionQuantize&) {
  return "a CTA for each block of 128 queries, keys and values";
}

std::vector<CostSheet> AttentionQuantizeOperator::costs(const Config& config, const AttentionQuantize& problem) {
  std::vector<CostSheet> sheets;
  if (problem.arch.compute_major() != 12) return sheets;
  for (const MmaDevice& device : mma_devices_of(problem.arch)) {
    const attention_quantize::AttentionQuantizeCost cost =
        attention_quantize::attention_quantize_cost(config, problem, device);
    sheets.push_back(cost_sheet(device, cost.us, cost.work));
  }
  return sheets;
}

std::string AttentionQuantizeOperator::label(const Config& config) {
  return fmt::format("{} threads, head_dim {}", attention_quantize::kThreads, config.head_dim);
}

std::string AttentionQuantizeOperator::subject(const Config& config) {
  return fmt::format("attention_quantize head_dim {}, {}", config.head_dim, to_word(config.dtype));
}

std::string AttentionQuantizeOperator::explain(const Config& config, const Verdict& verdict) {
  switch (verdict.rule) {
    case attention_quantize::Rule::ok:
      break;
    case attention_quantize::Rule::dtype_not_16_bit:
      return fmt::format("{} elements: bf16 or f16 needed", to_word(config.dtype));
    case attention_quantize::Rule::head_dim_not_64_or_128:
      return fmt::format("head_dim {}, 64 or {} needed (one or two steps of 64 products)", grouped(verdict.found),
                         grouped(verdict.bound));
    case attention_quantize::Rule::page_size_unknown:
      return fmt::format(
          "page_size {} with kv_layout {}: pages have 1, 8, 16, 32, 64, 128 or {} keys, and nothing else "
          "has pages",
          grouped(verdict.found), to_word(config.kv_layout), grouped(verdict.bound));
    case attention_quantize::Rule::ragged_queries_used:
      return "seqused qk with q_layout ragged: cu_seqlens_q says how many queries a sequence has; take k";
  }
  return "?";
}

std::string AttentionQuantizeOperator::kernel_name(Arch arch, const Config& config) {
  std::string name = fmt::format("tessera_attention_quantize_{}_d{}_{}", arch_name(arch.to_string()), config.head_dim,
                                 to_word(config.dtype));
  if (config.q_layout == QueryLayout::ragged) name += "_ragged";
  if (config.kv_layout == KvLayout::ragged) name += "_raggedk";
  if (config.kv_layout == KvLayout::paged) name += fmt::format("_paged{}", config.page_size);
  if (config.seqused != UsedLengths::none) name += config.seqused == UsedLengths::qk ? "_usedqk" : "_usedk";
  return name;
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
  for (const BufferSpec& place : places_of(config))
    plan.operands.push_back(plain_operand(place.name, "s32", "where the rows of sequences lie"));
  plan.smem = {{"keys of a block",
                0,
                attention_quantize::smem_bytes(config),
                1,
                {{"keys without their mean, being written", "quantise", "barrier of the CTA"},
                 {"keys without their mean", "quantise", "end"}}}};
  plan.smem_bytes = attention_quantize::smem_bytes(config);
  plan.max_registers = registers_of_bounds(attention_quantize::kThreads, attention_quantize::kMinCtas);
  plan.roles = {{.name = "quantise", .first_warp = 0, .warps = attention_quantize::kThreads / 32, .registers = 0}};
  plan.launch = launch_of(config, plan.arch.to_string(), plan.kernel);
}

std::string AttentionQuantizeOperator::launch_bounds() {
  return "tessera::attention_quantize::kThreads, tessera::attention_quantize::kMinCtas";
}

std::string AttentionQuantizeOperator::call_of_step(const Config& config, std::size_t step) {
  constexpr const char* kKernels[] = {"means_kernel", "mean_of_keys_kernel", "quantize_kernel"};
  std::string places, counts, strides;
  const auto is_place = [&](std::string_view name) {
    for (const BufferSpec& place : places_of(config))
      if (place.name == name) return true;
    return false;
  };
  for (const char* const name : {"cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "block_table"})
    places += is_place(name) ? fmt::format("static_cast<const int*>({}), ", name) : "nullptr, ";
  for (const char* const name : {"tokens_k", "pages", "max_pages"}) {
    const std::vector<const char*> known = counts_of(config);
    const bool is_known = std::find(known.begin(), known.end(), std::string_view(name)) != known.end();
    counts += is_known ? fmt::format(", {}", name) : ", 0";
  }
  for (const Source& s : kSources) {
    std::string of_source;
    for (const char* const of : steps_of(config, s)) of_source += stride_name(s, of) + ", ";
    if (is_ragged(config, s)) of_source += "0, ";
    strides += fmt::format(",\n       {{{}}}", of_source.substr(0, of_source.size() - 2));
  }
  return fmt::format(
      "tessera::attention_quantize::{}<kConfig>(\n      {{q, k, v,\n       {}\n       q_units, k_units, v_units, "
      "q_mean, "
      "k_mean, delta_s, row_shift,\n       static_cast<float*>(workspace), batch, heads_q, heads_kv, seqlen_q, "
      "seqlen_k{}{}}})",
      kKernels[step], places.substr(0, places.size() - 1), counts, strides);
}

std::vector<SourceFile> AttentionQuantizeOperator::generated_headers(const Config&) { return {}; }

std::span<const Selector> attention_quantize_fields() {
  static const std::vector<Selector> table = {
      field<&AttentionQuantize::arch>("arch", "arch", kArchHelp),
      field<&AttentionQuantize::head_dim>("head-dim", "head_dim", "elements of a head of q, k and v: 64 or 128"),
      offer(field<&AttentionQuantize::dtype>("dtype", "dtype", "type of q, k and v"), {"bf16", "f16"}),
      field<&AttentionQuantize::seqused>("seqused", "seqused",
                                         "valid lengths of each sequence in memory: of keys (k), of both (qk)"),
      field<&AttentionQuantize::q_layout>("q-layout", "q_layout",
                                          "how queries of sequences lie: each in seqlen_q places, or one after the "
                                          "other (ragged)"),
      field<&AttentionQuantize::kv_layout>("kv-layout", "kv_layout",
                                           "how keys lie: dense, in pages of a pool (paged), packed with cu_seqlens_k "
                                           "(ragged)"),
      field<&AttentionQuantize::page_size>("page-size", "page_size", "keys of a page: 1, 8, 16, 32, 64, 128 or 256"),
      field<&AttentionQuantize::batch>("batch", "batch", "expected number of sequences"),
      field<&AttentionQuantize::heads_q>("heads-q", "heads_q", "expected number of query heads"),
      field<&AttentionQuantize::heads_kv>("heads-kv", "heads_kv", "expected number of key and value heads"),
      field<&AttentionQuantize::seqlen_q>("seqlen-q", "seqlen_q", "expected number of queries"),
      field<&AttentionQuantize::seqlen_k>("seqlen-k", "seqlen_k", "expected number of keys"),
      field<&AttentionQuantize::pages>("pages", "pages", "expected pages of a pool"),
      field<&AttentionQuantize::max_pages>("max-pages", "max_pages",
                                           "expected entries of a sequence in the table of pages"),
      field<&AttentionQuantize::tokens_k>("tokens-k", "tokens_k",
                                          "expected keys of all sequences together, where they are ragged"),
  };
  return table;
}

namespace {

constexpr FamilyRow kAttentionQuantizeFamilies[] = {family_row<AttentionQuantizeOperator>("rows", kAllTargets)};
constexpr OperatorType kQuantizeType =
    make_operator_type<AttentionQuantize>(attention_quantize_fields, kAttentionQuantizeFamilies);

}  // namespace

template <>
const OperatorType& operator_type<AttentionQuantize>() noexcept {
  return kQuantizeType;
}

}  // namespace tessera
