// An indexer's scores, both forms and every family, compiled to PTX by NVRTC and run in the emulator, against float64.
// Nothing here ran on Blackwell hardware.
#include "reference/indexer.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "base/file.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/block_scale_cases.h"
#include "tests/support/indexer_sweep.h"
#include "tests/support/sample.h"

namespace tessera::indexer_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

/// Queries or sequences, keys or entries of the table, columns: more than there are keys, fewer, none.
struct Shape {
  std::int64_t rows, keys, columns;
};
constexpr Shape kRagged[] = {{1, 1, 1}, {19, 331, 331}, {6, 700, 500}, {9, 130, 200},
                             {3, 0, 5}, {0, 10, 10},    {4, 64, 0}};
// Of 8 keys the fourth's pages are more than a loading warp has of a table at a time, twice.
constexpr Shape kPaged[] = {{1, 1, 1}, {5, 9, 140}, {3, 3, 999}, {2, 99, 780}, {2, 0, 7}, {0, 2, 9}};

reference::IndexerRun run_of(const Indexer& problem, const Plan& plan, const Shape& shape) {
  reference::IndexerRun run = indexer_sweep::run_of(plan);
  run.m = shape.rows * problem.next_n;
  run.columns = shape.columns;
  if (run.is_paged) {
    run.max_pages = shape.keys;
    run.pages = shape.rows * shape.keys;
  } else {
    run.n = shape.keys;
  }
  return run;
}

NamedSizes sizes_of(const reference::IndexerRun& run) {
  NamedSizes sizes = indexer_sweep::sizes_of(run);
  sizes["num_sms"] = 3;
  return sizes;
}

std::vector<std::string> problems_of(EmulatedDevice& device, const Launcher& launcher, const reference::IndexerRun& run,
                                     Fill fill, std::uint64_t seed) {
  const reference::Tensors inputs = reference::indexer_inputs(run, fill, seed);
  std::vector<std::string> problems;
  const reference::Tensors outputs = launch_once(device, launcher, sizes_of(run), {}, inputs, problems);
  const reference::Comparison result = reference::check_indexer(run, inputs, outputs.at("scores").view(), 1);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  if (result.rel_error > 3 * result.rel_bound && run.m * run.columns > 500)
    problems.push_back("relative error beyond what roundings explain");
  return problems;
}

void check(const Indexer& problem, Compiler& compiler) {
  const Plan plan = make_plan(problem);
  CAPTURE(plan.kernel);
  EmulatedDevice device{{.arch = problem.arch.to_string(), .detects_races = true}};
  const Launcher launcher(device, plan.launch, compiler.compile(emit(plan)));
  constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
  std::uint64_t seed = 1;
  const std::span<const Shape> shapes = problem.kv_layout == KvLayout::paged ? std::span<const Shape>(kPaged) : kRagged;
  for (const Shape& shape : shapes) {
    CAPTURE(shape.rows);
    CAPTURE(shape.keys);
    CAPTURE(shape.columns);
    device.set_schedule(kSchedules[seed % 4], seed);
    const Fill fill = seed % 2 == 0 ? Fill::uniform : Fill::normal;
    for (const std::string& text : problems_of(device, launcher, run_of(problem, plan, shape), fill, seed))
      FAIL_CHECK(text);
    ++seed;
  }
}

/// Every pair of facts at least once in a family: heads, head_dim, scores, columns, outside; pages, queries, lengths.
std::vector<Indexer> cover(const char* arch, std::optional<MmaKind> mma_kind) {
  std::vector<Indexer> problems;
  constexpr int kHeads[] = {64, 8, 32, 16}, kDims[] = {128, 64, 32}, kPages[] = {64, 8, 256, 32, 16, 128, 64, 32};
  constexpr int kOddHeads[] = {24, 40, 56, 48};  // ragged, in pages, ragged, in pages
  for (int i = 0; i < 16; ++i) {
    Indexer one{.arch = Arch::parse(arch), .heads = (i < 12 ? kHeads : kOddHeads)[i % 4], .head_dim = kDims[i % 3]};
    one.mma_kind = mma_kind;
    one.score_dtype = (i / 2 + i) % 2 == 0 ? DType::f32 : DType::bf16;
    one.outside = (i / 3) % 2 == 0 ? Outside::minus_inf : Outside::unwritten;
    if (i % 2 == 0) {
      one.score_columns = i / 2 % 2 == 0 ? ScoreColumns::keys : ScoreColumns::compressed;
    } else {
      one.kv_layout = KvLayout::paged;
      one.page_size = kPages[i / 2];
      one.next_n = 1 + (i / 2) % 4;
      one.context_lengths = i / 2 % 3 == 1 ? ContextLengths::query : ContextLengths::sequence;
    }
    problems.push_back(one);
  }
  return problems;
}

/// The same in mxfp4.
std::vector<Indexer> cover_of_fp4(const char* arch, std::optional<MmaKind> mma_kind) {
  std::vector<Indexer> problems = cover(arch, mma_kind);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    problems[i].format = IndexFormat::mxfp4;
    problems[i].head_dim = i % 3 == 0 ? 64 : 128;
  }
  return problems;
}

}  // namespace

TEST_CASE("indexer: wgmma") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  testing::Sample sample(2);
  check({}, *compiler);
  check({.kv_layout = KvLayout::paged, .next_n = 2}, *compiler);
  for (Indexer problem : cover("sm_90a", MmaKind::wgmma_f16)) {
    if (!sample.takes()) continue;
    check(problem, *compiler);
  }
  check({.heads = 32, .tile_q = 2, .consumers = 3, .stages = 3}, *compiler);
  check({.heads = 8, .tile_q = 16, .consumers = 1, .stages = 2}, *compiler);
}

TEST_CASE("indexer: mma.sync") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  testing::Sample sample(2);
  check({.arch = Arch::parse("sm_120a")}, *compiler);
  constexpr const char* kTargets[] = {"sm_120a", "sm_100a", "sm_90a", "sm_103a", "sm_121a"};
  std::size_t turn = 0;
  for (const Indexer& problem : cover("sm_120a", MmaKind::mma_f8)) {
    if (!sample.takes()) continue;
    Indexer one = problem;
    one.arch = Arch::parse(kTargets[turn++ % 5]);
    if (one.arch.compute_major() != 12) one.mma_kind = MmaKind::mma_f16;
    check(one, *compiler);
  }
}

TEST_CASE("indexer: tcgen05, both formats") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  testing::Sample sample(4);
  constexpr const char* kTargets[] = {"sm_100a", "sm_103a", "sm_100f"};
  const Arch arch = Arch::parse("sm_100a");
  check({.arch = arch, .tile_q = 2, .stages = 2}, *compiler);
  check({.arch = arch, .format = IndexFormat::mxfp4, .kv_layout = KvLayout::paged, .page_size = 32, .next_n = 3},
        *compiler);
  std::size_t turn = 0;
  for (const std::vector<Indexer>& problems : {cover("sm_100a", {}), cover_of_fp4("sm_100a", {})})
    for (Indexer problem : problems) {
      problem.arch = Arch::parse(kTargets[turn++ % 3]);
      if (sample.takes()) check(problem, *compiler);
    }
  // A query more is loaded; one accumulator; tiles of few and of many queries, three consumers and one.
  check({.arch = arch, .heads = 8, .head_dim = 32, .tile_q = 1, .stages = 2}, *compiler);
  check({.arch = arch, .format = IndexFormat::mxfp4, .kv_layout = KvLayout::paged, .next_n = 4}, *compiler);
  if (sample.takes()) check({.arch = arch, .heads = 8, .tile_q = 5, .consumers = 3, .stages = 3}, *compiler);
  if (sample.takes()) check({.arch = arch, .heads = 16, .tile_q = 16, .consumers = 1, .stages = 3}, *compiler);
}

TEST_CASE("indexer: mxfp4 as it is, and widened for wgmma and mma.sync") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  testing::Sample sample(6);
  constexpr IndexFormat kFp4 = IndexFormat::mxfp4;
  check({.arch = Arch::parse("sm_120a"), .format = kFp4}, *compiler);
  check({.format = kFp4}, *compiler);
  if (sample.takes()) check({.format = kFp4, .kv_layout = KvLayout::paged, .next_n = 4}, *compiler);
  check({.arch = Arch::parse("sm_100a"),
         .heads = 16,
         .format = kFp4,
         .kv_layout = KvLayout::paged,
         .next_n = 2,
         .mma_kind = MmaKind::mma_f16},
        *compiler);
  constexpr const char* kTargets[] = {"sm_120a", "sm_90a"};
  for (const char* const arch : kTargets)
    for (const Indexer& problem : cover_of_fp4(arch, {}))
      if (sample.takes()) check(problem, *compiler);
  if (sample.takes()) check({.format = kFp4, .mma_kind = MmaKind::mma_f16}, *compiler);
  if (sample.takes()) check({.heads = 8, .format = kFp4, .tile_q = 16, .consumers = 3, .stages = 3}, *compiler);
}

TEST_CASE("indexer: drawn facts, sizes and strides, twice the same bits") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr const char* kTargets[] = {"sm_90a", "sm_120a", "sm_90a", "sm_100a"};
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    rows_sweep::Draw draw(seed);
    const Plan plan = make_plan(indexer_sweep::drawn_problem(draw, Arch::parse(kTargets[seed % 4])));
    EmulatedDevice device{{.arch = plan.arch.to_string(), .detects_races = true}};
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan)));
    for (int i = 0; i < 2; ++i)
      for (const std::string& text : indexer_sweep::judged_case(plan, device, launcher, draw, 400, 12).problems)
        FAIL_CHECK(text);
  }
}

struct ScoreFault {
  const char *file, *from, *to;
  const char* cause;
};
constexpr ScoreFault kFaults[] = {
    {"consumer", "ptx::ld_shared_v2(from + 32 * i, low, high);", "ptx::ld_shared_v2(from + 32 * i, high, low);",
     "weights of neighbouring heads are exchanged"},
    {"consumer", "return column == 0 ? ptx::max_nan(x, 0.0f) : x + fabsf(x);", "return column == 0 ? x : x + x;",
     "negative products are not left out"},
    {"consumer", "kept[i] * (half == 0 ? scales[0] : scales[1])", "kept[i]", "scales of keys are left out"},
    {"consumer", "ptx::ld_shared_u32(slot + 4 * static_cast<unsigned>(key))",
     "ptx::ld_shared_u32(slot + 4 * static_cast<unsigned>((key + 1) % kTileKeys))",
     "a key has the scale of the next one"},
    {"producer", "own = place + lane;", "own = place + lane + 1;", "keys of the table's next page are taken"},
    {"consumer", "__shfl_xor_sync(0xffffffffu, is_odd ?", "__shfl_xor_sync(0xffffffffu, !is_odd ?", nullptr},
    {"consumer", "const int key = first_key + 8 * half;", "const int key = first_key + 8 - 8 * half;", nullptr},
    {"consumer", "if (range.begin <= key && key < range.end)", "if (range.begin <= key && key <= range.end)", nullptr},
    {"consumer", "turn -= tiles;", "turn = 0;", nullptr},
    {"producer", "if (place < first + kWarp) return;", "if (place <= first + kWarp) return;", nullptr},
    {"producer", "? static_cast<int>(page) : -1;", "? static_cast<int>(page) : 0;",
     "an entry of the table that is no page is taken for page 0"},
    {"ranges", "const long long begin = total / ctas * cta + min(cta, total % ctas);",
     "const long long begin = total / ctas * cta;", nullptr},
    {"ranges", "range.end = min(static_cast<int>(ptx::ld_global_u32(p.last + query)), p.n);",
     "range.end = static_cast<int>(ptx::ld_global_u32(p.last + query));", nullptr},
    {"outside", "fill<C>(row, max(begin, seen.end), end);", "fill<C>(row, max(begin, seen.end + 1), end);", nullptr},
    {"outside", "if (tail + lane < end)", "if (tail + lane < end - 1)", nullptr},
};

TEST_CASE("indexer: planted slips are seen, and named") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::uint64_t seed = 40;
  testing::Sample sample(2);
  for (const ScoreFault& fault : kFaults) {
    ++seed;
    CAPTURE(std::string(fault.from));
    const std::string file = "indexer/" + std::string(fault.file) + ".cuh";
    std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / file);
    const std::size_t at = text.find(fault.from);
    REQUIRE(at != std::string::npos);
    if (!sample.takes()) continue;
    text.replace(at, std::string_view(fault.from).size(), fault.to);
    const bool is_of_pages = fault.file == std::string_view("producer");
    Indexer problem{.heads = 16, .head_dim = 64, .tile_q = 4};
    if (is_of_pages)
      problem = {.heads = 16, .head_dim = 64, .kv_layout = KvLayout::paged, .page_size = 32, .next_n = 2};
    EmulatedDevice device({.arch = "sm_90a", .detects_races = true});
    const Plan plan = make_plan(problem);
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan, {{file, text}})));
    const Shape shape = is_of_pages ? Shape{4, 45, 1440} : Shape{23, 400, 450};
    std::string all;
    for (const std::string& one : problems_of(device, launcher, run_of(problem, plan, shape), Fill::normal, seed))
      all += one + "\n";
    CAPTURE(all);
    CHECK_FALSE(all.empty());
    if (fault.cause != nullptr)
      CHECK(all.find(std::string("likely cause: ") + fault.cause + " (gives") != std::string::npos);
  }
}

struct Tcgen05Fault {
  const char *file, *from, *to;
  IndexFormat format;
  const char* text;  // in what is said; null: anything
};
constexpr IndexFormat kE4m3 = IndexFormat::e4m3, kMxfp4 = IndexFormat::mxfp4;
constexpr Tcgen05Fault kTcgen05Faults[] = {
    {"consumer", "w = ptx::ld_shared_v4(weights + 4 * column);",
     "v = ptx::ld_shared_v4(weights + 4 * column), w{v.y, v.x, v.w, v.z};", kE4m3,
     "likely cause: weights of neighbouring heads are exchanged (gives"},
    {"consumer", "column % 2 == 0 ? ptx::max_nan(x, 0.0f) : x + fabsf(x);", "column % 2 == 0 ? x : x + x;", kMxfp4,
     "likely cause: negative products are not left out (gives"},
    {"consumer", "store_score<C>(row, column, sum * scale);", "store_score<C>(row, column, sum);", kE4m3,
     "likely cause: scales of keys are left out (gives"},
    {"consumer", "% kLanes ^ 1;", "% kLanes ^ 3;", kE4m3, nullptr},
    {"consumer", "0.5f * (sums[1] + sums[3])", "(sums[1] + sums[3])", kE4m3, nullptr},
    {"consumer", "if ((column + 4) % C.heads == 0) {", "if ((column + 8) % C.heads == 0) {", kMxfp4, nullptr},
    {"consumer", "turn -= tiles;", "turn = 0;", kE4m3, nullptr},
    {"consumer", "(static_cast<unsigned>(warp) * kWarp << 16)", "(static_cast<unsigned>(warp ^ 1) * kWarp << 16)",
     kE4m3, nullptr},
    {"consumer", "ptx::mbarrier_wait_parity(sums_full, sums.parity);", "", kE4m3, nullptr},
    {"multiplier", "ptx::mbarrier_wait_parity(common::empty_behind<accumulators(C)>(full), sums.parity ^ 1);", "",
     kE4m3, nullptr},
    {"multiplier", "ptx::mbarrier_wait_parity(key_barrier<C>(smem, ring.slot), ring.parity);", "", kE4m3, nullptr},
    {"multiplier", "const int row = i * kWarp + lane;", "const int row = lane * kWords + i;", kMxfp4, nullptr},
    {"multiplier", "ptx::fence_proxy_async_shared();", "", kMxfp4, nullptr},
    {"multiplier", "__syncwarp();  // all have read before one writes", "", kMxfp4, nullptr},
    {"multiplier", "of_q.slot * query_scale_columns(C);", "0;", kMxfp4, nullptr},
    {"multiplier", "advance(q, 32 * kStep),\n", "q,\n", kMxfp4, nullptr},
};

TEST_CASE("indexer: slips planted in the kernels of tcgen05 are seen") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::uint64_t seed = 80;
  testing::Sample sample(2);
  for (const Tcgen05Fault& fault : kTcgen05Faults) {
    ++seed;
    CAPTURE(std::string(fault.from));
    const std::string file = "indexer_tcgen05/" + std::string(fault.file) + ".cuh";
    std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / file);
    const std::size_t at = text.find(fault.from);
    REQUIRE(at != std::string::npos);
    if (!sample.takes()) continue;
    text.replace(at, std::string_view(fault.from).size(), fault.to);
    const Indexer problem{.arch = Arch::parse("sm_100a"),
                          .heads = fault.format == kMxfp4 ? 16 : 64,  // two accumulators, or four
                          .head_dim = fault.format == kMxfp4 ? 128 : 64,
                          .format = fault.format,
                          .tile_q = 4,
                          .stages = 4};
    EmulatedDevice device({.arch = "sm_100a", .detects_races = true});
    device.set_schedule(Schedule::adversarial, seed);
    const Plan plan = make_plan(problem);
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan, {{file, text}})));
    std::string all;
    for (const std::string& one :
         problems_of(device, launcher, run_of(problem, plan, {23, 900, 950}), Fill::normal, seed))
      all += one + "\n";
    CAPTURE(all);
    CHECK_FALSE(all.empty());
    if (fault.text != nullptr) CHECK(all.find(fault.text) != std::string::npos);
  }
}

TEST_CASE("indexer: the check sees a column too many, one too few, and a small error of every score") {
  reference::IndexerRun run;
  run.heads = 8;
  run.head_dim = 32;
  run.m = 8;
  run.n = run.columns = 96;
  run.fraction_bits = 24;
  const reference::Tensors in = reference::indexer_inputs(run, Fill::normal, 4);
  const auto passes = [&](auto&& change) {
    reference::Tensor scores(DType::f32, {run.m, run.columns});
    for (std::int64_t i = 0; i < run.m; ++i) {
      const reference::KeyRange range = reference::indexer_range(run, in, i);
      for (std::int64_t j = 0; j < run.columns; ++j) {
        double sum = -std::numeric_limits<double>::infinity();
        if (j >= range.begin && j < range.end) {
          sum = 0;
          for (std::int64_t h = 0; h < run.heads; ++h) {
            double dot = 0;
            for (std::int64_t e = 0; e < run.head_dim; ++e)
              dot += in.at("q").at((i * run.heads + h) * run.head_dim + e) * in.at("k").at(j * run.head_dim + e);
            sum += in.at("weights").at(i * run.heads + h) * std::max(dot, 0.0);
          }
          sum *= in.at("k_scales").at(j);
        }
        scores.set(i * run.columns + j, change(sum, range, j));
      }
    }
    return reference::check_indexer(run, in, scores.view(), 1).pass;
  };
  using reference::KeyRange;
  CHECK(passes([](double x, const KeyRange&, std::int64_t) { return x; }));
  CHECK_FALSE(passes(
      [](double x, const KeyRange& range, std::int64_t j) { return range.end > 0 && j == range.end ? 1.0 : x; }));
  CHECK_FALSE(passes([](double x, const KeyRange& range, std::int64_t j) {
    return j + 1 == range.end ? -std::numeric_limits<double>::infinity() : x;
  }));
  CHECK_FALSE(passes([](double x, const KeyRange&, std::int64_t) { return x * 1.001; }));
}

}  // namespace tessera::indexer_test
