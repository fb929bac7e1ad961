#include "generator/indexer/indexer_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/indexer/indexer_launch.h"
#include "generator/operator_words.h"
#include "generator/wgmma_header.h"
#include "generator/words.h"
#include "spec/indexer_tcgen05.h"
#include "tessera/error.h"

namespace tessera::indexer {

namespace {

constexpr int kTileQueries[] = {1, 2, 4, 8};
constexpr int kConsumers[] = {2, 3, 4}, kConsumersOfTcgen05[] = {2, 1, 3, 4};
constexpr int kStagesOfPages = 12, kLeastStagesOfPages = 8;
constexpr int kManyColumns = 128, kColumnsOfFour = 64;
constexpr Hint kManyQueries = 512;
constexpr int kColumnsOfMma = 128;  // more take registers of the weights alone

/// Only sm_120 multiplies mxfp4 by mma.sync, and wgmma does not at all.
IndexOperands operands_of(const Indexer& problem, MmaKind mma_kind) {
  const bool has_scaled_products =
      mma_kind == MmaKind::tcgen05_f16 || (problem.arch.compute_major() == 12 && mma_kind == MmaKind::mma_f16);
  return problem.format == IndexFormat::mxfp4 && !has_scaled_products ? IndexOperands::bf16 : IndexOperands::stored;
}

Config facts_of(const Indexer& problem, MmaKind mma_kind) {
  return {.heads = problem.heads,
          .head_dim = problem.head_dim,
          .format = problem.format,
          .score_dtype = problem.score_dtype,
          .kv_layout = problem.kv_layout,
          .page_size = problem.page_size,
          .next_n = problem.next_n,
          .context_lengths = problem.context_lengths,
          .score_columns = problem.score_columns,
          .outside = problem.outside,
          .mma_kind = mma_kind,
          .operands = operands_of(problem, mma_kind)};
}

/// As many as there is room for, every consumer with as many as the others. Pages come from memory, at whose speed more
/// than 100 KB on their way make the answers come later: 24 slots took 1.04 times as long as 12.
int best_stages(Config c) {
  c.stages = (indexer::is_paged(c) ? kStagesOfPages : indexer::kMaxStages) / c.consumers * c.consumers;
  while (c.stages > c.consumers && why_invalid(c).rule == Rule::smem_exceeded) c.stages -= c.consumers;
  if (indexer::is_paged(c) && indexer::min_ctas(c) == 1) {
    Config two = c;
    while (two.stages > kLeastStagesOfPages && indexer::min_ctas(two) == 1) two.stages -= c.consumers;
    if (indexer::min_ctas(two) == 2) return two.stages;
  }
  return c.stages;
}

std::vector<Config> candidates_of(const Indexer& problem, MmaKind mma_kind) {
  std::vector<Config> list;
  const std::span<const int> of_family =
      mma_kind == MmaKind::tcgen05_f16 ? std::span<const int>(kConsumersOfTcgen05) : kConsumers;
  for (const int tile_q : kTileQueries)
    for (const int consumers : of_family) {
      Config c = facts_of(problem, mma_kind);
      c.tile_q = problem.tile_q.value_or(indexer::is_paged(c) ? c.next_n : tile_q);
      c.consumers = problem.consumers.value_or(consumers);
      c.stages = problem.stages.value_or(c.consumers < 1 ? 1 : best_stages(c));
      list.push_back(c);
    }
  return list;
}

void refuse_mma_kind(const Indexer& problem) {
  throw Error(ErrorKind::unsupported,
              fmt::format("mma_kind {} with format {} for {}: indexer has wgmma.f16 for sm_90a, tcgen05.f16 for sm_100 "
                          "and sm_103, and {} for {}",
                          to_word(*problem.mma_kind), to_word(problem.format), problem.arch.to_string(),
                          to_word(IndexerOperator::kind_of(facts_of(problem, MmaKind::mma_f16))),
                          problem.arch.compute_major() == 12 ? "sm_120 and sm_121" : "every target"));
}

}  // namespace

MmaKind IndexerOperator::kind_of(const Config& c) {
  if (c.mma_kind != MmaKind::mma_f16 || indexer::widens(c)) return c.mma_kind;
  return indexer::is_fp4(c) ? MmaKind::mma_mxf4 : MmaKind::mma_f8;
}

bool IndexerOperator::serves(const Indexer& problem) { return !is_mma_sync(problem.mma_kind); }
bool IndexerTcgen05Operator::serves(const Indexer& problem) { return !is_mma_sync(problem.mma_kind); }
bool IndexerMmaOperator::serves(const Indexer&) { return true; }

void IndexerOperator::require_facts(const Indexer& problem) {
  if (problem.mma_kind && *problem.mma_kind != MmaKind::wgmma_f16) refuse_mma_kind(problem);
}
void IndexerTcgen05Operator::require_facts(const Indexer& problem) {
  if (problem.mma_kind && *problem.mma_kind != MmaKind::tcgen05_f16) refuse_mma_kind(problem);
}
void IndexerMmaOperator::require_facts(const Indexer& problem) {
  if (!problem.mma_kind) return;
  const MmaKind own = kind_of(facts_of(problem, MmaKind::mma_f16));
  if (!names_mma_sync(*problem.mma_kind, own, problem.arch)) refuse_mma_kind(problem);
}

std::vector<Config> IndexerOperator::candidates(const Indexer& problem) {
  return candidates_of(problem, MmaKind::wgmma_f16);
}
std::vector<Config> IndexerTcgen05Operator::candidates(const Indexer& problem) {
  return candidates_of(problem, MmaKind::tcgen05_f16);
}
std::vector<Config> IndexerMmaOperator::candidates(const Indexer& problem) {
  return candidates_of(problem, MmaKind::mma_f16);
}

// The share of columns that are of queries, of the instructions with most columns; then the fewest consumers.
double IndexerOperator::score(const Config& c, const Indexer& problem) {
  const double queries =
      indexer::is_paged(c) || problem.m < 0 ? c.tile_q : std::min<double>(c.tile_q, static_cast<double>(problem.m));
  const double columns = queries * c.heads;
  const bool is_mma = c.mma_kind == MmaKind::mma_f16 || indexer::widens(c);  // or keys take them
  const double wanted = is_mma ? kColumnsOfMma : indexer::kMaxColumns;
  double score = columns / (0.1 * wanted + indexer::columns_of_tile(c));
  if (is_mma && indexer::columns_of_tile(c) > kColumnsOfMma) score *= 0.5;
  // With one accumulator products wait until their sums have been taken.
  if (indexer::uses_tcgen05(c) && indexer::accumulators(c) == 1) score *= 0.5;
  // On an H200 pages, which come at the memory's speed, took 0.97 to 0.99 of two consumers' time with three, and 0.99
  // of that with four where each has 64 columns; where the board's power limit halves the clock, 0.92. Three took 0.84
  // where they widen keys (0.89 with 64 columns); else two are no slower.
  const int columns_of_one = indexer::columns_of_tile(c);
  int wanted_consumers = 2;
  if (indexer::uses_wgmma(c) && indexer::is_paged(c) && !indexer::widens(c)) {
    wanted_consumers = columns_of_one == kColumnsOfFour ? 4 : 3;
  } else if (!indexer::uses_tcgen05(c) && ((indexer::is_paged(c) && columns_of_one >= kManyColumns) ||
                                           (indexer::uses_wgmma(c) && indexer::widens(c)))) {
    wanted_consumers = 3;
  }
  // MXFP4 as it is: its products are over before two consumers have taken the sums. Predicted, 32 and 64 heads: an RTX
  // 5090 has 0.80 to 0.86 of their time with four, a B200 0.87 to 0.90 with three, but for few queries (1.05 with 128).
  if (indexer::is_fp4(c) && !indexer::is_paged(c) && !indexer::widens(c) && !indexer::uses_wgmma(c))
    wanted_consumers = !indexer::uses_tcgen05(c) ? 4 : problem.m < 0 || problem.m >= kManyQueries ? 3 : 2;
  return score * (1 - 0.02 * std::abs(c.consumers - wanted_consumers));
}

std::string IndexerOperator::merit(const Config& c, const Indexer&) {
  return fmt::format("{} of {} keys by {} columns", counted(c.consumers, "tile"), indexer::tile_keys(c),
                     indexer::columns_of_tile(c));
}

std::string IndexerOperator::label(const Config& c) {
  return fmt::format("{} a tile, {}, {}", c.tile_q == 1 ? "1 query" : fmt::format("{} queries", c.tile_q),
                     counted(c.consumers, "consumer"), counted(c.stages, "stage"));
}

std::string IndexerOperator::subject(const Config& c) {
  return fmt::format("indexer of {} heads, head_dim {}, {}", c.heads, c.head_dim, label(c));
}

std::string IndexerOperator::explain(const Config& c, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::heads:
      return fmt::format("{} heads: a multiple of 8 up to {} (fewer are padded with heads whose weights are 0)", found,
                         bound);
    case Rule::head_dim:
      return fmt::format("head_dim {}: 32, 64 or {}", found, bound);
    case Rule::head_dim_of_fp4:
      return fmt::format("head_dim {} with format mxfp4: {} or 128", found, bound);
    case Rule::score_dtype:
      return fmt::format("scores of {}: f32 or bf16", to_word(c.score_dtype));
    case Rule::kv_layout:
      return fmt::format("kv_layout {}: ragged or paged", to_word(c.kv_layout));
    case Rule::page_size:
      return fmt::format("pages of {} keys: a power of two from 8 to {}", found, bound);
    case Rule::page_size_without_pages:
      return fmt::format("page_size {} with kv_layout ragged, which has no pages", found);
    case Rule::next_n_out_of_range:
      return fmt::format("next_n {}: 1 to {}", found, bound);
    case Rule::next_n_without_pages:
      return fmt::format("next_n {} with kv_layout ragged: only sequences in pages have queries of their own", found);
    case Rule::lengths_without_pages:
      return "context_lengths query with kv_layout ragged: there ks and ke say what each query sees";
    case Rule::columns_of_pages:
      return "score_columns compressed with kv_layout paged: a sequence's keys begin at column 0";
    case Rule::mma_kind:
      return fmt::format("mma_kind {}: wgmma.f16, tcgen05.f16 or mma.f16", to_word(c.mma_kind));
    case Rule::operands_of_format:
      return fmt::format("operands {} of format {} by {}", to_word(c.operands), to_word(c.format), to_word(c.mma_kind));
    case Rule::tile_q_out_of_range:
      return fmt::format("{} queries in a tile: 1 to {}", found, bound);
    case Rule::tile_q_of_pages:
      return fmt::format("{} queries in a tile: with kv_layout paged the {} of a sequence", found, bound);
    case Rule::columns_out_of_range:
      return fmt::format("{} heads times {} queries are {} columns: at most {}", c.heads, c.tile_q, found, bound);
    case Rule::consumers_out_of_range:
      return fmt::format("{} consumers: 1 to {}", found, bound);
    case Rule::stages_out_of_range:
      return fmt::format("{} stages: 1 to {}", found, bound);
    case Rule::stages_of_consumers:
      return fmt::format("{} stages for {} consumers: as many for each needed", found, bound);
    case Rule::tensor_memory_exceeded:
      return fmt::format("{} columns of Tensor Memory, {} there: take fewer queries or consumers", found, bound);
    case Rule::registers_exceeded:
      return fmt::format("{} registers for accumulators and weights, {} there: take fewer queries or consumers", found,
                         bound);
    case Rule::smem_exceeded:
      return fmt::format("{} bytes of shared memory, {} available: take fewer queries or stages", found, bound);
  }
  return fmt::format("{}?", c.heads);
}

std::string IndexerOperator::kernel_name(Arch arch, const Config& c) {
  std::string name = fmt::format("tessera_indexer_{}_h{}_d{}_{}", arch_name(arch.to_string()), c.heads, c.head_dim,
                                 to_word(c.score_dtype));
  if (indexer::is_fp4(c)) name += "_mxfp4";
  if (indexer::is_paged(c)) {
    name += fmt::format("_p{}_n{}", c.page_size, c.next_n);
    if (c.context_lengths == ContextLengths::query) name += "_each";
  }
  if (c.score_columns == ScoreColumns::compressed) name += "_compressed";
  if (c.outside == Outside::unwritten) name += "_unwritten";
  const char* const family = indexer::uses_wgmma(c) ? "wgmma" : indexer::uses_tcgen05(c) ? "tcgen05" : "mma";
  return name + fmt::format("_{}_q{}_w{}_s{}", family, c.tile_q, c.consumers, c.stages);
}

/// Tensor Memory, and who multiplies.
static void describe_tcgen05(const Config& c, Plan& plan) {
  const indexer::SmemLayout layout = indexer::smem_layout(c);
  plan.smem.push_back({"TMEM address", layout.tmem_address, layout.total - layout.tmem_address, 1, {}});
  plan.roles.insert(plan.roles.begin() + 1, {.name = "multiply", .first_warp = 1, .warps = 1, .registers = 0});
  plan.roles.back().name = "sums";
  const indexer_tcgen05::TmemLayout tmem = indexer_tcgen05::tmem_layout(c);
  plan.tmem.push_back({.name = "products",
                       .columns = tmem.key_scales,
                       .slots = indexer::accumulators(c),
                       .phases = {{"products of a tile", "multiply", "barrier sums full"},
                                  {"products of a tile, read", "sums", "barrier sums empty"}}});
  if (indexer::is_fp4(c)) {
    plan.tmem.push_back({.name = "scales of keys",
                         .first_column = tmem.key_scales,
                         .columns = tmem.query_scales - tmem.key_scales,
                         .slots = indexer::accumulators(c),
                         .phases = {{"scales of a tile's keys", "multiply", "barrier sums empty"}}});
    plan.tmem.push_back({.name = "scales of q",
                         .first_column = tmem.query_scales,
                         .columns = tmem.used - tmem.query_scales,
                         .slots = indexer::kQuerySlots,
                         .phases = {{"scales of a tile's heads", "multiply", "barrier queries empty"}}});
  }
  plan.tmem_columns = tmem.allocated;
}

void IndexerOperator::describe(const Config& c, Plan& plan) {
  const bool is_paged = indexer::is_paged(c);
  const auto loaded = [&](const char* name, std::string_view dtype, const char* use, std::string_view swizzle) {
    OperandPlan operand = plain_operand(name, dtype, use);
    operand.tensor_map_type = dtype == "f32" ? "f32" : "u8";
    operand.swizzle = swizzle;
    plan.operands.push_back(std::move(operand));
  };
  const std::string_view rows = to_word(indexer::swizzle(c));
  const bool is_fp4 = indexer::is_fp4(c);
  const std::string_view codes = is_fp4 ? "u8" : "e4m3";
  loaded("q", codes, "TMA load, columns of the product", rows);
  loaded("weights", "f32", "TMA load", "none");
  if (is_fp4) {
    loaded("q_scales", "u8", "TMA load, four ue8m0 of a head", "none");
    plan.operands.back().tensor_map_type = "u32";
  }
  if (is_paged) {
    loaded("cache", "u8", "TMA load, rows of the product and their scales", rows);
    plan.operands.push_back(plain_operand("block_table", "s32", "read"));
    plan.operands.push_back(plain_operand("context_lens", "s32", "read"));
  } else {
    loaded("k", codes, "TMA load, rows of the product", rows);
    loaded("k_scales", is_fp4 ? "u8" : "f32", is_fp4 ? "TMA load, four ue8m0 of a key" : "TMA load", "none");
    if (is_fp4) plan.operands.back().tensor_map_type = "u32";
    plan.operands.push_back(plain_operand("ks", "s32", "read"));
    plan.operands.push_back(plain_operand("ke", "s32", "read"));
  }
  plan.operands.push_back(plain_operand("scores", to_word(c.score_dtype), "written"));
  plan.mma_kind = to_word(kind_of(c));
  plan.smem_bytes = indexer::smem_bytes(c);
  const indexer::SmemLayout layout = indexer::smem_layout(c);
  const int slots = indexer::kQuerySlots;
  plan.smem = {{"q", layout.q, layout.keys - layout.q, slots, {}},
               {"keys", layout.keys, layout.wide - layout.keys, c.stages, {}},
               {"weights", layout.weights, layout.q_scales - layout.weights, slots, {}},
               {"scales of keys", layout.scales, layout.ranges - layout.scales, c.stages, {}},
               {"ranges", layout.ranges, layout.deal - layout.ranges, slots, {}},
               {"share", layout.deal, layout.barriers - layout.deal, 1, {}},
               {"barriers", layout.barriers, layout.tmem_address - layout.barriers, 1, {}}};
  if (indexer::widens(c))
    plan.smem.insert(plan.smem.begin() + 2, {"queries in bf16", layout.wide, layout.weights - layout.wide, 1, {}});
  if (is_fp4)
    plan.smem.insert(
        std::find_if(plan.smem.begin(), plan.smem.end(), [](const auto& r) { return r.name == "scales of keys"; }),
        {"scales of q", layout.q_scales, layout.scales - layout.q_scales, slots, {}});
  const indexer::RegisterBudget budget = indexer::register_budget(c);
  plan.entry_registers = budget.entry;
  const int of_producer = budget.producer, of_consumer = budget.producer > 0 ? budget.consumer : 0;
  const int loaders = indexer::loaders(c), products = 4 * c.consumers;
  const int others = loaders > 1 ? 4 - loaders : indexer::fill_warps(c);
  plan.roles = {{.name = "load", .first_warp = 0, .warps = loaders, .registers = of_producer},
                {.name = "outside", .first_warp = 4 - others, .warps = others, .registers = of_producer},
                {.name = "product", .first_warp = 4, .warps = products, .registers = of_consumer}};
  if (others == 0) plan.roles.erase(plan.roles.begin() + 1);
  if (indexer::uses_tcgen05(c)) describe_tcgen05(c, plan);
  plan.launch = indexer_launch(c, plan.arch.to_string(), plan.kernel);
}

std::string IndexerOperator::launch_bounds() {
  return "tessera::indexer::threads(kConfig), tessera::indexer::min_ctas(kConfig)";
}

static std::string call_of(const Config& c, std::string_view templates) {
  return fmt::format(
      "tessera::{}::kernel<kConfig>(\n      {{q, weights, keys, scales, {}, static_cast<const int*>(first), "
      "static_cast<const int*>(last), scores,\n"
      "       scores_stride_m, table_stride, m, n, columns, max_pages}})",
      templates, indexer::is_fp4(c) ? "q_scales" : "q");
}
std::string IndexerOperator::call(const Config& c) { return call_of(c, kName); }
std::string IndexerTcgen05Operator::call(const Config& c) { return call_of(c, kTemplates); }

std::vector<SourceFile> IndexerOperator::generated_headers(const Config& c) {
  if (!indexer::uses_wgmma(c)) return {};
  const WgmmaShape shapes[] = {indexer::product_shape(c)};
  return {{"wgmma_shapes.cuh", wgmma_header(shapes)}};
}

}  // namespace tessera::indexer

namespace tessera {

std::span<const Selector> indexer_fields() {
  static const std::vector<Selector> table = {
      field<&Indexer::arch>("arch", "arch", kArchHelp),
      field<&Indexer::heads>("heads", "heads", "heads of a query: a multiple of 8 up to 64"),
      field<&Indexer::head_dim>("head-dim", "head_dim", "elements of a head of q, and of a key: 32, 64 or 128"),
      field<&Indexer::format>("format", "format",
                              "what q and keys are: e4m3, keys with an fp32 scale each, or mxfp4, e2m1 with a scale "
                              "ue8m0 for 32"),
      offer(field<&Indexer::score_dtype>("score-dtype", "score_dtype", "type of scores"), {"f32", "bf16"}),
      offer(field<&Indexer::kv_layout>("kv-layout", "kv_layout",
                                       "how keys lie: one behind the other, a range to each query (ragged), or in "
                                       "pages of a cache (paged)"),
            {"ragged", "paged"}),
      field<&Indexer::page_size>("page-size", "page_size", "paged: keys of a page, a power of two from 8 to 256"),
      field<&Indexer::next_n>("next-n", "next_n", "paged: queries of a sequence, 1 to 4"),
      field<&Indexer::context_lengths>("context-lengths", "context_lengths",
                                       "paged: a length for each sequence, or for each query"),
      field<&Indexer::score_columns>("score-columns", "score_columns",
                                     "column of a score: its key, or the key's place in the range (compressed)"),
      field<&Indexer::outside>("outside", "outside", "what columns outside of a query's range get"),
      offer(field<&Indexer::mma_kind>(
                "mma-kind", "mma_kind",
                "matrix instruction, as plan shows it (wgmma.f16, tcgen05.f16, mma.f16, mma.mxf4nvf4, ..)"),
            {"wgmma.f16", "tcgen05.f16", "mma.f16", "mma.f8", "mma.mxf4"}),
      field<&Indexer::tile_q>("tile-q", "tile_q", "queries of a tile"),
      field<&Indexer::consumers>("consumers", "consumers",
                                 "warpgroups that multiply or take sums, a tile of 64 keys each, 128 with tcgen05"),
      field<&Indexer::stages>("stages", "stages", "slots of the ring of keys, a tile each"),
      field<&Indexer::m>("m", "m", "expected number of queries"),
      field<&Indexer::n>("n", "n", "expected number of keys"),
      field<&Indexer::batch>("batch", "batch", "paged: expected number of sequences"),
      field<&Indexer::pages>("pages", "pages", "paged: expected pages of the cache"),
      field<&Indexer::max_pages>("max-pages", "max_pages", "paged: expected entries of a sequence in the table"),
      field<&Indexer::columns>("columns", "columns", "expected columns of scores"),
  };
  return table;
}

namespace {

constexpr FamilyRow kIndexerFamilies[] = {family_row<IndexerOperator>("wgmma", kWgmmaTargets),
                                          family_row<IndexerTcgen05Operator>("tcgen05", kTcgen05Targets),
                                          family_row<IndexerMmaOperator>("mma", kAllTargets)};
constexpr OperatorType kIndexerType = make_operator_type<Indexer>(indexer_fields, kIndexerFamilies);

}  // namespace

template <>
const OperatorType& operator_type<Indexer>() noexcept {
  return kIndexerType;
}

}  // namespace tessera
