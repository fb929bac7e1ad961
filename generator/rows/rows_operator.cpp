// Row operators for the planner, but for the choice among candidates (rows_choice.cpp): which chains are refused and in
// which words, names, and what a kernel's entry is given.
#include "generator/rows/rows_operator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <cmath>

#include "base/hash.h"
#include "base/row_chain_rules.h"
#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/operator_words.h"
#include "generator/rows/rope_turns.h"
#include "generator/rows/rows_launch.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera::rows {

namespace {

constexpr std::size_t kMaxNameOfChain = 96;

/// "residual_store_rmsnorm_bf16": the chain in a name, and a hash where that is long.
std::string chain_name(const RowChain& chain) {
  const std::string text = to_text(chain);
  std::string name;
  for (const char c : text) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_word) name += c;
    if (!is_word && !name.empty() && name.back() != '_') name += '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.size() <= kMaxNameOfChain) return name;
  return fmt::format("{}_{}", name.substr(0, kMaxNameOfChain), sha256_hex(text).substr(0, 12));
}

/// A part that no number of threads makes right is told with its place in the chain's text.
void require_parts(const Rows& problem) {
  Config c{.dtype = problem.dtype, .columns = problem.columns, .chain = problem.chain};
  c.turns_of_row = problem.turns_of_row.value_or(problem.columns > kMostHeld ? 2 : 1);
  for (int i = 0; i < step_count(c.chain); ++i) {
    Verdict<Rule> verdict;
    for (const int threads : kThreadsOfRow) {
      c.threads_of_row = threads;
      const auto found = rows::why_invalid_step(c, i);
      if (found.ok()) {
        verdict = {};
        break;
      }
      if (verdict.ok() || verdict.rule == Rule::block_wider_than_threads) verdict = found;
    }
    if (verdict.ok()) continue;
    RowChain before, part;
    std::copy_n(c.chain.steps, i, before.steps);
    part.steps[0] = c.chain.steps[i];
    const std::string text = to_text(c.chain), word = to_text(part);
    const std::size_t at = i == 0 ? 0 : to_text(before).size() + 1;
    throw Error(ErrorKind::unsupported,
                fmt::format("chain = {}: {} (character {}): {}", text, word, at + 1, RowsOperator::explain(c, verdict)),
                {text, std::string(at, ' ') + std::string(word.size(), '^')});
  }
}

std::string use_of(const BufferSpec& buffer) {
  return buffer.role == BufferRole::input ? "read" : buffer.role == BufferRole::output ? "written" : "added to";
}

}  // namespace

void RowsOperator::require_facts(const Rows& problem) {
  if (!rows::is_floating(problem.dtype))
    throw Error(ErrorKind::unsupported,
                fmt::format("rows has no kernel for dtype {}: there are kernels for f32, f16 and bf16",
                            to_word(problem.dtype)));
  // A chain that was parsed has none.
  if (const std::optional<ChainMistake> mistake = chain_mistake(problem.chain))
    throw Error(ErrorKind::unsupported, fmt::format("chain = {}: {}", to_text(problem.chain), mistake->what));
  if (problem.columns % rows::kVector == 0 && !ends_in_product(problem.chain)) require_parts(problem);
}

std::string RowsOperator::merit(const Config& config, const Rows&) {
  if (ends_in_product(config.chain))
    return fmt::format("{} and {} columns a CTA", counted(config.rows_of_cta, "row"), rows::kPartColumns);
  const int reads = rows::reads_of_row(config);
  const std::string turns = config.turns_of_row == 1 ? ""
                                                     : fmt::format(", which reads its row {} in {}",
                                                                   reads == 1   ? "once"
                                                                   : reads == 2 ? "twice"
                                                                                : fmt::format("{} times", reads),
                                                                   counted(config.turns_of_row, "turn"));
  return fmt::format("{} of {} columns a thread, {} a CTA{}", counted(rows::vectors_of_thread(config), "vector"),
                     rows::kVector, counted(config.rows_of_cta, "row"), turns);
}

std::string RowsOperator::label(const Config& config) {
  const std::string turns = config.turns_of_row == 1 ? "" : fmt::format(", {}", counted(config.turns_of_row, "turn"));
  if (config.ctas_of_row > 1)
    return fmt::format("{} threads a row in {} CTAs{}", config.threads_of_row, config.ctas_of_row, turns);
  return fmt::format("{} threads a row, {} a CTA{}", config.threads_of_row, counted(config.rows_of_cta, "row"), turns);
}

std::string RowsOperator::subject(const Config& config) {
  return fmt::format("rows of {} {}, {}, {}", config.columns, to_word(config.dtype), to_text(config.chain),
                     label(config));
}

std::string RowsOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::dtype_not_floating:
    case Rule::store_not_floating:
      return fmt::format("elements of {} bytes that are no floating-point numbers: f32, f16 or bf16 needed", found);
    case Rule::columns_not_vectors:
      return fmt::format("{}, a multiple of {} needed: {} with padding", counted(verdict.found, "column"), bound,
                         grouped(round_up(std::max<long long>(verdict.found, 1), verdict.bound)));
    case Rule::threads_not_power_of_two:
      return fmt::format("{} threads a row: a power of two from {} on needed", found, bound);
    case Rule::threads_out_of_range:
      return fmt::format("{} threads in a CTA, {} allowed: take fewer threads or rows", found, bound);
    case Rule::threads_not_warps:
      return fmt::format("{} threads in a CTA, a multiple of {} needed (warp): take more rows", found, bound);
    case Rule::ctas_out_of_range:
      return fmt::format("{} CTAs for a row: a power of two up to {} needed", found, bound);
    case Rule::shared_rows_together:
      return fmt::format("{} rows in CTAs that share one: {} needed", found, bound);
    case Rule::too_many_vectors:
      return fmt::format(
          "{} vectors of {} columns in a thread, {} allowed: take more threads a row (which hold {} columns at most), "
          "or "
          "more turns",
          found, rows::kVector, bound, grouped(kMostHeld));
    case Rule::too_many_columns:
      return fmt::format("{} columns, {} allowed", found, bound);
    case Rule::turns_out_of_range:
      return fmt::format("{} turns for a row: 1 to {}", found, bound);
    case Rule::turns_beside_others:
      return fmt::format("rows of more than {} columns, or in turns, with join, mhc_*, pages or a cache",
                         grouped(kMostHeld));
    case Rule::turns_need_threads:
      return fmt::format("{} threads for a row in turns: {} needed", found, bound);
    case Rule::range_outside_row:
      return fmt::format("a part that works up to column {} in rows of {} columns", found, bound);
    case Rule::range_not_vectors:
      return fmt::format("a part that begins at, or has, {}: multiples of {} needed, the next is {}",
                         counted(verdict.found, "column"), bound, grouped(round_up(verdict.found, verdict.bound)));
    case Rule::source_after_others:
      return "gather, heads, gate, join, combine, compress, dequant and mhc_* say where a row comes from: they are the "
             "first "
             "parts, gather or heads before the others";
    case Rule::block_not_in_range:
      return fmt::format("{} columns of a part that takes blocks of {}: whole blocks needed, {} with padding", found,
                         bound, grouped(round_up(verdict.found, verdict.bound)));
    case Rule::block_wider_than_threads:
      return fmt::format(
          "blocks of {} columns, of which a warp's threads of one row have {} side by side: take more threads a row, "
          "or smaller blocks",
          found, bound);
    case Rule::block_off_boundary:
      return fmt::format("a part that begins at column {} and takes blocks of {}: it must begin at one", found, bound);
    case Rule::rope_pairs_apart:
      return fmt::format("rope of halves that lie {} columns apart: {} at least", found, bound);
    case Rule::rope_across_warps:
      return fmt::format(
          "rope of halves up to column {}, in rows whose columns lie with warps by {}: both halves must be with one",
          found, bound);
    case Rule::hadamard_size:
      return fmt::format("hadamard of {}: 64, 128 or 256", found);
    case Rule::softcap_not_positive:
      return fmt::format("softcap of {}: {} at least", found, bound);
    case Rule::cache_columns:
      return fmt::format("{} columns for a cache whose tokens have {}", found, bound);
    case Rule::mix_columns:
      return fmt::format("mhc_mix that begins at, or has, {} columns: {} needed", found, bound);
    case Rule::mix_out_of_range:
      return fmt::format("a mix over {} columns or iterations: {} at least", found, bound);
    case Rule::join_outside_row:
      return fmt::format("columns of x2 from {} on in rows of {}", found, bound);
    case Rule::combine_out_of_range:
    case Rule::compress_out_of_range:
    case Rule::gather_beside_rows:
    case Rule::paged_beside_others:
    case Rule::heads_beside_others:
    case Rule::paged_scales:
    case Rule::scale_not_power_of_two:
      return chain_mistake(config.chain).value_or(ChainMistake{}).what;
    case Rule::global_without_nvfp4:
      return fmt::format("a global scale for a format with blocks of {}: it goes with nvfp4", found);
    case Rule::product_not_bf16:
      return fmt::format("mhc_post(product) of elements of {} bytes: bf16 needed", found);
    case Rule::product_beside_others:
      return fmt::format("mhc_post(product) in a chain of {}: it stands alone", counted(verdict.found, "part"));
    case Rule::product_rows:
      if (rows::shares_tiles(config))
        return fmt::format("{} rows in a CTA: with mhc_post(product) and {} threads a row {} needed", found,
                           config.threads_of_row, bound);
      return fmt::format("{} rows in a CTA: with mhc_post(product) multiples of {} up to 256", found, bound);
    case Rule::product_smem:
      return fmt::format("{} rows in a CTA, for which {} bytes of shared memory are too few: take fewer rows", found,
                         bound);
    case Rule::no_sink:
      return "a chain that writes nothing: end it with bf16, nvfp4, ... ";
  }
  return fmt::format("{}?", config.columns);
}

std::string RowsOperator::kernel_name(Arch arch, const Config& config) {
  const std::string ctas = config.ctas_of_row > 1 ? fmt::format("_ctas{}", config.ctas_of_row) : "";
  const std::string turns = config.turns_of_row > 1 ? fmt::format("_turns{}", config.turns_of_row) : "";
  return fmt::format("tessera_rows_{}_{}_c{}_{}_t{}x{}{}{}", arch_name(arch.to_string()), to_word(config.dtype),
                     config.columns, chain_name(config.chain), config.threads_of_row, config.rows_of_cta, ctas, turns);
}

void RowsOperator::describe(const Config& config, Plan& plan) {
  plan.launch = rows_launch(config, plan.arch.to_string(), plan.kernel);
  for (const BufferSpec& buffer : plan.launch.buffers) {
    OperandPlan operand;
    operand.name = buffer.name;
    operand.dtype = buffer.dtype;
    operand.use = use_of(buffer);
    plan.operands.push_back(std::move(operand));
  }
  plan.smem_bytes = rows::smem_bytes(config);
  if (rows::shares_tiles(config)) {
    plan.smem.push_back({"sums of warps", 0, plan.smem_bytes, 1, {}});
  } else if (ends_in_product(config.chain)) {
    plan.smem.push_back({"weights, split", 0, rows::kSplitBytes, 1, {}});
    const int ring = rows::ring_of_product(config), stages = rows::stages_of_product(config);
    plan.smem.push_back({"mix of rows", rows::kSplitBytes, ring - rows::kSplitBytes, 1, {}});
    plan.smem.push_back({"streams", ring, plan.smem_bytes - ring, stages, {}});
  }
  if (ends_in_product(config.chain)) {
    plan.roles = {
        {.name = "rows", .first_warp = 0, .warps = rows::threads_of_cta(config) / rows::kWarp, .registers = 0}};
    return;
  }
  if (const int bytes = rows::sums_bytes(config); bytes > 0) plan.smem.push_back({"sums of warps", 0, bytes, 1, {}});
  if (rows::has_shared_sums(config))
    plan.smem.push_back(
        {"barriers", rows::barriers_at(config), rows::barriers_end(config) - rows::barriers_at(config), 1, {}});
  if (plan.smem_bytes > rows::barriers_end(config))
    plan.smem.push_back({begins_with_product(config.chain) ? "products of rows" : "mix of streams",
                         rows::remix_at(config),
                         plan.smem_bytes - rows::remix_at(config),
                         1,
                         {}});
  plan.roles = {{.name = "rows", .first_warp = 0, .warps = rows::threads_of_cta(config) / rows::kWarp, .registers = 0}};
}

std::string RowsOperator::launch_bounds() {
  return "tessera::rows::threads_of_cta(kConfig), tessera::rows::min_ctas(kConfig)";
}

std::string RowsOperator::call(const Config& config) {
  const RowChain& chain = config.chain;
  const auto given = [&](bool is_given, std::string_view text, std::string_view otherwise) {
    return std::string(is_given ? text : otherwise);
  };
  const bool is_gathered = has_part(chain, RowPart::gather), is_placed = has_placed_sink(chain);
  const bool has_rope = has_part(chain, RowPart::rope), is_paged = has_paged_sink(chain);
  const bool has_pages = is_paged || has_part(chain, RowPart::cache);
  std::vector<std::string> steps;
  const std::vector<RowStepNames> names = row_step_names(chain);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const RowStepNames& n = names[i];
    const RowStep& step = chain.steps[i];
    const auto pointer = [](const std::string& name) { return name.empty() ? std::string("nullptr") : name; };
    const auto stride = [](const std::string& name) { return name.empty() ? std::string("0") : name; };
    const bool is_by_columns = step.is_packed || (step.is_column_major && step.block > 0);
    const std::string out_stride =
        step.kind == RowPart::scaled_8 && is_by_columns ? n.out2 + "_stride_block" : stride(n.out_stride);
    std::string of_tokens;
    if (step.kind == RowPart::join && has_heads(chain)) of_tokens = ", x2_stride_seqlen, 0, 0";
    if (step.kind == RowPart::residual && has_heads(chain, step))
      of_tokens = fmt::format(", {}_stride_seqlen, 0, {}", n.in, step.is_stored ? n.out + "_stride_seqlen" : "0");
    if (step.kind == RowPart::store && has_heads(chain, step))
      of_tokens = fmt::format(", 0, 0, {}_stride_seqlen", n.out);
    if (step.has_table) of_tokens = ", 0, 0, 0, nullptr, nullptr, table_rows";
    if (step.is_paged) of_tokens = fmt::format(", 0, {0}_stride_page, {0}_stride_seqlen", n.out);
    if (step.has_product)
      of_tokens = fmt::format(", 0, 0, 0, {}, {}, {}", pointer(n.in4), pointer(n.out3),
                              step.kind == RowPart::mhc_pre ? "parts" : "0");
    steps.push_back(fmt::format("{{{}, {}, {}, {}, {}, {}, {}{}}}", pointer(n.in), pointer(n.in2), pointer(n.in3),
                                pointer(n.out), pointer(n.out2), stride(n.in_stride), out_stride, of_tokens));
  }
  return fmt::format(
      "tessera::rows::kernel<kConfig>(\n      {{x, {}, {}, {},\n       {}, {}, {}, {},\n       {}, {}, {}, "
      "rows,\n   "
      "    {{{}}}}})",
      has_heads(chain) ? "x_stride_head, x_stride_seqlen" : "x_stride_row, 0",
      given(is_gathered, "static_cast<const int*>(indices)", "nullptr"),
      given(rows::has_named_rows(chain), "x_rows", "0"),
      given(has_rope, "static_cast<const int*>(positions)", "nullptr"),
      given(has_rope || has_heads(chain), "heads", "1"),
      given(has_slots(chain), "static_cast<const int*>(slots)", "nullptr"), given(is_placed, "placed_rows", "0"),
      given(has_pages, "cache_slots", "0"), given(has_pages, "page_size", "1"), given(has_row_norm(chain), "eps", "0"),
      fmt::join(steps, ",\n        "));
}

std::vector<SourceFile> RowsOperator::generated_headers(const Config& config) {
  std::string text;
  for (int i = 0; i < step_count(config.chain); ++i) {
    const RowStep& step = config.chain.steps[i];
    if (step.kind != RowPart::rope || step.has_table) continue;
    std::vector<std::string> turns;
    for (const std::uint64_t turn : rope_turns(step, width(step, config.columns)))
      turns.push_back(fmt::format("{:#018x}ull", turn));
    text += fmt::format(
        "__device__ const __align__(16) unsigned long long kTurns{0}[] = {{\n    {1}}};\n\n"
        "template <>\nstruct RopeTurns<{0}> {{\n  static constexpr float kMagnitude = {2:a}f;\n"
        "  static __device__ __forceinline__ const unsigned long long* at(int pair) {{ return kTurns{0} + pair; }}\n"
        "}};\n\n",
        i, fmt::join(turns, ",\n    "), static_cast<float>(rope_magnitude(step)));
  }
  if (text.empty()) return {};
  return {{"rope_turns.cuh",
           "// Generated: frequencies of rope, in parts of a turn times 2^64.\n#pragma once\n\n"
           "#include \"rows/steps.cuh\"\n\nnamespace tessera::rows {\n\n" +
               text + "}  // namespace tessera::rows\n"}};
}

}  // namespace tessera::rows

namespace tessera {

std::span<const Selector> rows_fields() {
  static const std::vector<Selector> table = {
      field<&Rows::arch>("arch", "arch", kArchHelp),
      offer(field<&Rows::dtype>("dtype", "dtype", "type of x, residual and weights"), {"f32", "f16", "bf16"}),
      field<&Rows::columns>("columns", "columns", "columns of a row, after a gate: a multiple of 8"),
      field<&Rows::chain>("chain", "chain", "parts from source to sinks, joined by +: see docs/rows.md"),
      field<&Rows::threads_of_row>("threads-of-row", "threads_of_row", "threads that share a row: a power of two"),
      field<&Rows::rows_of_cta>("rows-of-cta", "rows_of_cta", "rows of a CTA"),
      field<&Rows::ctas_of_row>("ctas-of-row", "ctas_of_row", "CTAs of a cluster that share a row: 1, 2, 4 or 8"),
      field<&Rows::turns_of_row>("turns-of-row", "turns_of_row",
                                 "turns in which a row is read, once for each sum and once for its values; 1: once"),
      field<&Rows::rows>("rows", "rows", "expected number of rows"),
  };
  return table;
}

namespace {

constexpr FamilyRow kRowsFamilies[] = {family_row<RowsOperator>("rows", kAllTargets)};
constexpr OperatorType kRowsType = make_operator_type<Rows>(rows_fields, kRowsFamilies);

}  // namespace

template <>
const OperatorType& operator_type<Rows>() noexcept {
  return kRowsType;
}

}  // namespace tessera
