// Candidates are threads of a CTA and CTAs of a cluster, which have parts of a row. A model of the time chooses: more
// CTAs read a row sooner, and pay barriers of the cluster for each digit.
#include "generator/topk/topk_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "generator/block_scaled/block_operator.h"
#include "generator/candidates.h"
#include "generator/family.h"
#include "generator/field_table.h"
#include "generator/launch_limits.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "tessera/error.h"

namespace tessera::topk {

namespace {

constexpr int kThreads[] = {512, 1024};
constexpr int kCtas[] = {1, 2, 4, 8, 16};
constexpr std::int64_t kUsualRows = 64, kUsualColumns = 32768;  // where no hint says

Expression e(std::string_view text) { return Expression::parse(text); }

std::int64_t hint_or(Hint hint, std::int64_t otherwise) { return hint == Hint{kUnknownHint} ? otherwise : hint; }

void add_sizes(const Config& c, LaunchPlan& launch) {
  const auto size = [&](const char* name, std::int64_t min, std::int64_t max, std::optional<Expression> value,
                        const char* help) {
    launch.sizes.push_back({name, min, max, std::move(value), help});
  };
  size("m", 0, kMaxGridX / topk::kMaxCtas, {}, "rows");
  size("n", 0, kMaxExtent, {}, "columns");
  size("scores_stride_m", 0, kMaxStride, e("n"), "elements of scores from one row to the next");
  if (c.index_form == IndexForm::pages) {
    size("page_size", 1, kMaxExtent, e("64"), "columns of a page");
    size("max_pages", 0, kMaxExtent, e("ceil_div(n, page_size)"), "pages of a row of block_table");
    size("sequences", 0, kMaxExtent, e("m"), "rows of block_table");
    size("block_table_stride", 0, kMaxStride, e("max_pages"), "elements of block_table from one row to the next");
  }
  size("indices_stride_m", c.k, kMaxStride, Expression(c.k), "elements of indices from one row to the next");
  if (c.values == WithValues::on)
    size("values_stride_m", c.k, kMaxStride, Expression(c.k), "elements of values from one row to the next");
}

void add_buffers(const Config& c, LaunchPlan& launch) {
  const auto buffer = [&](const char* name, BufferRole role, std::string_view dtype, std::vector<Expression> shape,
                          std::vector<Expression> strides, int alignment, bool is_optional = false) {
    launch.buffers.push_back({.name = name,
                              .role = role,
                              .dtype = std::string(dtype),
                              .shape = std::move(shape),
                              .strides = std::move(strides),
                              .alignment = alignment,
                              .is_optional = is_optional});
  };
  const auto of_rows = [&](const char* name, bool is_optional = false) {
    buffer(name, BufferRole::input, "s32", {e("m")}, {Expression(1)}, 4, is_optional);
  };
  const auto of_results = [&](const char* name, std::string_view dtype, const char* stride, int alignment) {
    buffer(name, BufferRole::output, dtype, {e("m"), Expression(c.k)}, {e(stride), Expression(1)}, alignment);
  };
  buffer("scores", BufferRole::input, to_word(c.dtype), {e("m"), e("n")}, {e("scores_stride_m"), Expression(1)},
         dtype_bytes(c.dtype));
  if (c.range != RowRange::all) of_rows("lengths");
  if (c.range == RowRange::starts) of_rows("row_starts");
  if (c.index_form == IndexForm::pages) {
    buffer("block_table", BufferRole::input, "s32", {e("sequences"), e("max_pages")},
           {e("block_table_stride"), Expression(1)}, 4);
    of_rows("row_sequences", true);
  }
  if (c.index_form == IndexForm::offsets) of_rows("offsets");
  if (topk::has_guesses(c)) buffer("guesses", BufferRole::input, "f32", {e("m")}, {Expression(1)}, 4);
  of_results("indices", "s32", "indices_stride_m", 4);
  if (c.values == WithValues::on) of_results("values", to_word(c.dtype), "values_stride_m", dtype_bytes(c.dtype));
  if (topk::has_guesses(c)) buffer("kth", BufferRole::output, "f32", {e("m")}, {Expression(1)}, 4);
}

LaunchPlan launch_of(const Config& c, const std::string& arch, const std::string& kernel) {
  LaunchPlan launch;
  launch.op = "topk";
  launch.arch = arch;
  add_sizes(c, launch);
  add_buffers(c, launch);
  LaunchStep step;
  const auto has_size = [&](std::string_view name) {
    return std::any_of(launch.sizes.begin(), launch.sizes.end(), [&](const SizeSpec& s) { return s.name == name; });
  };
  const auto value = [&](const std::string& name, ParameterKind kind) {
    if (has_size(name)) step.parameters.push_back(size_parameter(name.c_str(), kind, e(name)));
  };
  for (const BufferSpec& buffer : launch.buffers) {
    step.parameters.push_back(pointer_parameter(buffer.name.c_str(), buffer.name.c_str()));
    value(buffer.name + "_stride_m", ParameterKind::i64);
    value(buffer.name + "_stride", ParameterKind::i64);
  }
  for (const char* const name : {"n", "sequences", "max_pages", "page_size"}) value(name, ParameterKind::i32);
  step.entry = kernel;
  step.grid[0] = expression("m * {}", c.ctas);
  step.cluster[0] = static_cast<std::uint32_t>(c.ctas);
  step.block[0] = static_cast<std::uint32_t>(c.threads);
  step.dynamic_smem_bytes = topk::smem_bytes(c);
  step.programmatic_stream_serialization = true;
  launch.steps.push_back(std::move(step));
  return launch;
}

/// Clusters that are at work at the same time on an H200, a CTA on each multiprocessor, and what one costs beside a CTA
/// alone: 1 to 16 CTAs.
struct ClusterCost {
  int ctas;
  double at_once, microseconds;
};
constexpr ClusterCost kClusters[] = {{1, 132, 0}, {2, 66, 2.8}, {4, 30, 3.1}, {8, 14, 3.4}, {16, 7, 4.3}};

/// Microseconds of a launch, fitted to those that an H200 took (bench/results/topk.md): of 32 shapes that were timed
/// with every candidate the choice is the fastest, or within 3 %.
double microseconds(const Config& c, std::int64_t m, std::int64_t n) {
  const ClusterCost& cluster = *std::find_if(std::begin(kClusters), std::end(kClusters),
                                             [&](const ClusterCost& of) { return of.ctas >= c.ctas; });
  const double thousands = static_cast<double>(n) / c.ctas / 1024,
               rows = static_cast<double>(std::max<std::int64_t>(m, 1));
  const bool fits = thousands * 1024 <= topk::kept_whole(c), is_narrow = c.threads <= 512;
  const double few = static_cast<double>(c.k) / topk::kMaxK;
  // Of one CTA. A part that is kept whole is looked at several times.
  double time =
      fits ? 2.2 + cluster.microseconds + 0.40 * thousands
           : 10.2 + 5 * few + (c.ctas > 1 ? 0.5 : 0) + (0.10 + 0.02 * few) * thousands * (is_narrow ? 1.45 : 1);
  // Two CTAs of 512 threads share a multiprocessor, those of a cluster even where others have nothing to do.
  const double at_once = cluster.at_once * (is_narrow ? 2 : 1);
  if (is_narrow) time *= c.ctas > 1 ? 1.3 : 1.02;
  const double rounds = std::ceil(rows / at_once), running = std::min(rows, at_once);
  time *= 1 + (is_narrow ? 0.7 : 0.35) * running / at_once;
  const double bytes = running * static_cast<double>(n) * dtype_bytes(c.dtype);
  return rounds * std::max(time, bytes / 3.6e6 + 2);
}

}  // namespace

void TopkOperator::require_facts(const Topk&) {}  // why_invalid() says it all

std::vector<Config> TopkOperator::candidates(const Topk& problem) {
  const bool is_small = problem.arch.compute_major() == 12;
  std::vector<Config> list;
  for (const int threads : kThreads)
    for (const int ctas : kCtas) {
      Config c{.dtype = problem.dtype,
               .k = problem.k,
               .ties = problem.ties,
               .order = problem.order,
               .range = problem.range,
               .index_form = problem.index_form,
               .values = problem.values,
               .guesses = problem.guesses,
               .threads = problem.threads.value_or(threads),
               .ctas = problem.ctas.value_or(ctas)};
      if (is_small && ctas > 8 && !problem.ctas) continue;
      const bool is_sound = c.k >= 1 && c.k <= topk::kMaxK && c.ctas >= 1 && c.ctas <= topk::kMaxCtas;
      if (is_sound)
        c.words = topk::words_within(c, is_small           ? kMaxSmemBytesOfSm120
                                        : c.threads <= 512 ? kMaxSmemBytesOfTwo
                                                           : kMaxSmemBytes);
      // With room for less than that beside a chunk, keys would be dropped all the time.
      if (topk::pairs(c) - topk::chunk(c) < 2 * c.k) c.elements = 8;
      list.push_back(c);
    }
  return list;
}

double TopkOperator::score(const Config& config, const Topk& problem) {
  return 1 / microseconds(config, hint_or(problem.m, kUsualRows), hint_or(problem.n, kUsualColumns));
}

std::string TopkOperator::merit(const Config& config, const Topk& problem) {
  const std::int64_t m = hint_or(problem.m, kUsualRows), n = hint_or(problem.n, kUsualColumns);
  return fmt::format("{} for a row, about {:.0f} us for {} rows of {}", counted(config.ctas, "CTA"),
                     microseconds(config, m, n), grouped(m), grouped(n));
}

std::string TopkOperator::label(const Config& config) {
  return fmt::format("{} threads, {} of a cluster", config.threads, counted(config.ctas, "CTA"));
}

std::string TopkOperator::subject(const Config& config) {
  return fmt::format("topk k {}, {}", config.k, label(config));
}

std::string TopkOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found), bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::ok:
      break;
    case Rule::dtype_not_floating:
      return fmt::format("scores of {}: f32, f16 or bf16 needed", to_word(config.dtype));
    case Rule::k_out_of_range:
      return fmt::format("k {}: 1 to {}", found, bound);
    case Rule::threads_not_offered:
      return fmt::format("{} threads: 512 or {}", found, bound);
    case Rule::elements_not_offered:
      return fmt::format("{} elements of a thread: 8 or {}", found, bound);
    case Rule::ctas_not_offered:
      return fmt::format("{} CTAs of a cluster: a power of two up to {} needed", found, bound);
    case Rule::words_too_few:
      return fmt::format("room for {} keys with their indices, {} needed: take fewer threads", found, bound);
    case Rule::smem_exceeded:
      return fmt::format("{} bytes of shared memory, {} available: take fewer threads", found, bound);
  }
  return fmt::format("{}?", config.k);
}

std::string TopkOperator::kernel_name(Arch arch, const Config& c) {
  std::string name = fmt::format("tessera_topk_{}_{}_k{}", arch_name(arch.to_string()), to_word(c.dtype), c.k);
  if (c.ties != Ties::smaller) name += "_larger";
  if (c.order != ResultOrder::index) name += fmt::format("_by_{}", to_word(c.order));
  if (c.range != RowRange::all) name += fmt::format("_{}", to_word(c.range));
  if (c.index_form != IndexForm::columns) name += fmt::format("_{}", to_word(c.index_form));
  if (c.values != WithValues::off) name += "_values";
  if (topk::has_guesses(c)) name += "_guesses";
  return name + fmt::format("_t{}_c{}", c.threads, c.ctas);
}

void TopkOperator::describe(const Config& c, Plan& plan) {
  plan.launch = launch_of(c, plan.arch.to_string(), plan.kernel);
  for (const BufferSpec& buffer : plan.launch.buffers)
    plan.operands.push_back(
        plain_operand(buffer.name, buffer.dtype, buffer.role == BufferRole::input ? "read" : "written"));
  const topk::SmemLayout layout = topk::smem_layout(c);
  plan.smem_bytes = layout.total;
  plan.smem = {{"keys", layout.keys, 4 * c.words, 1, {}}, {"histogram", layout.histogram, 4 * topk::kBins, 1, {}}};
  if (c.ctas > 1) plan.smem.push_back({"sums of the cluster", layout.sums, layout.sorted - layout.sums, 1, {}});
  if (topk::sorted_pairs(c) > 0)
    plan.smem.push_back({"sorted results", layout.sorted, layout.counts - layout.sorted, 1, {}});
  plan.smem.push_back({"counts", layout.counts, topk::kCountsBytes, 1, {}});
  plan.roles = {{.name = "choose", .first_warp = 0, .warps = topk::warps(c), .registers = 0}};
}

std::string TopkOperator::launch_bounds() { return "kConfig.threads, tessera::topk::min_ctas(kConfig)"; }

std::string TopkOperator::call(const Config& c) {
  const auto integers = [](bool is_given, const char* name) {
    return is_given ? fmt::format("static_cast<int*>({})", name) : std::string("nullptr");
  };
  const bool has_pages = c.index_form == IndexForm::pages, has_values = c.values == WithValues::on;
  return fmt::format(
      "tessera::topk::kernel<kConfig>(\n      {{scores, scores_stride_m, {}, {}, {},\n       {}, {}, {}, {},\n"
      "       {}, indices_stride_m, {}, {}, {}, n, {}}})",
      integers(c.range != RowRange::all, "lengths"), integers(c.range == RowRange::starts, "row_starts"),
      integers(has_pages, "block_table"), has_pages ? "block_table_stride" : "0", integers(has_pages, "row_sequences"),
      integers(c.index_form == IndexForm::offsets, "offsets"),
      topk::has_guesses(c) ? "static_cast<const float*>(guesses)" : "nullptr", integers(true, "indices"),
      has_values ? "values" : "nullptr", has_values ? "values_stride_m" : "0",
      topk::has_guesses(c) ? "static_cast<float*>(kth)" : "nullptr",
      has_pages ? "sequences, max_pages, page_size" : "0, 0, 0");
}

std::vector<SourceFile> TopkOperator::generated_headers(const Config&) { return {}; }

}  // namespace tessera::topk

namespace tessera {

std::span<const Selector> topk_fields() {
  static const std::vector<Selector> table = {
      field<&Topk::arch>("arch", "arch", kArchHelp),
      offer(field<&Topk::dtype>("dtype", "dtype", "type of scores"), {"f32", "f16", "bf16"}),
      field<&Topk::k>("k", "k", "how many of a row are taken: up to 2048"),
      field<&Topk::ties>("ties", "ties", "of equal scores those with the smaller or the larger index are taken"),
      field<&Topk::order>("order", "order", "order of a row's results: ascending index, or value, largest first"),
      field<&Topk::range>("range", "range", "a row's columns: all, as many as lengths says, from row_starts on"),
      field<&Topk::index_form>("index-form", "index_form",
                               "indices are columns, places in pages of block_table, or columns plus offsets"),
      field<&Topk::values>("values", "values", "whether the values are written too"),
      field<&Topk::guesses>("guesses", "guesses",
                            "whether each row has a guess of its k-th value, to be faster, and that value is written"),
      field<&Topk::threads>("threads", "threads", "threads of a CTA: 512 or 1024"),
      field<&Topk::ctas>("ctas", "ctas", "CTAs of a cluster, which share a row: 1, 2, 4, 8 or 16"),
      field<&Topk::m>("m", "m", "expected number of rows"),
      field<&Topk::n>("n", "n", "expected number of columns"),
  };
  return table;
}

namespace {

constexpr FamilyRow kTopkFamilies[] = {family_row<TopkOperator>("clusters", kAllTargets)};
constexpr OperatorType kTopkType = make_operator_type<Topk>(topk_fields, kTopkFamilies);

}  // namespace

template <>
const OperatorType& operator_type<Topk>() noexcept {
  return kTopkType;
}

}  // namespace tessera
