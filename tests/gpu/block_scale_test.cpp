// Block-scaled operators on a GPU: a hundred random shapes each, and the shapes that the speed is measured with.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "tests/gpu/gpu_support.h"
#include "tests/support/block_scale_cases.h"

namespace tessera {

using namespace gpu;
using reference::BlockRun;
using reference::Range;

namespace {

constexpr BlockFormat kFormats[] = {BlockFormat::nvfp4, BlockFormat::mxfp4, BlockFormat::mxfp8_e4m3,
                                    BlockFormat::mxfp8_e5m2};
constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

/// Launchers by kernel, so that each is compiled once.
const Launcher& launcher_of(const Problem& problem) {
  static std::map<std::string, std::unique_ptr<Launcher>> launchers;
  std::unique_ptr<Launcher>& launcher = launchers[planned_kernel(problem)];
  if (!launcher) {
    const Plan plan = make_plan(problem);
    const Image image = compiler().compile(emit(plan));
    CHECK(image.report.notes.empty());
    launcher = std::make_unique<Launcher>(device(), plan.launch, image);
  }
  return *launcher;
}

void check(const char* op, const BlockRun& run, Range range) {
  const Problem problem = problem_of_run(op, Arch::parse(arch()), run);
  CAPTURE(planned_kernel(problem));
  CAPTURE(run.l);
  CAPTURE(run.rows);
  CAPTURE(run.k);
  CAPTURE(run.seed);
  for (const std::string& text : judge(device(), launcher_of(problem), op, run, range)) FAIL_CHECK(text);
}

BlockRun random_run(std::mt19937_64& random, bool is_gemv) {
  BlockRun run;
  run.seed = random();
  run.form = random() % 2 == 0 ? ScaleForm::plain : ScaleForm::tile;
  run.dtype = kTypes[random() % 3];
  run.l = static_cast<std::int64_t>(1 + random() % 3);
  run.rows = static_cast<std::int64_t>(1 + random() % 300);
  if (is_gemv) {
    run.k = static_cast<std::int64_t>(32 * (random() % (random() % 8 == 0 ? 1200 : 130)));
    run.b_rows = random() % 2 == 0 ? 1 : 128;
    run.format = kFormats[random() % 4];
    if (run.format != BlockFormat::nvfp4 && random() % 2 == 0) run.b_format = kFormats[1 + random() % 3];
    return run;
  }
  run.format = kFormats[random() % 4];
  run.k = static_cast<std::int64_t>(random() % 40) * block_elements(run.format);
  if (run.format == BlockFormat::nvfp4) {
    run.global_scale = static_cast<GlobalScale>(random() % 3);
  } else if (random() % 2 == 0) {
    run.rounding = ScaleRounding::floor;
  }
  return run;
}

}  // namespace

TEST_CASE("quantize and dequantize: random shapes, bit for bit") {
  std::mt19937_64 random(2024);
  constexpr Range kRanges[] = {Range::standard, Range::uniform, Range::edge, Range::wide};
  for (int i = 0; i < 100; ++i) {
    BlockRun run = random_run(random, false);
    check("quantize", run, kRanges[i % 4]);
    if (run.global_scale == GlobalScale::amax) run.global_scale = GlobalScale::given;
    run.rounding = ScaleRounding::up;
    check("dequantize", run, kRanges[i % 4]);
  }
}

TEST_CASE("quantize: every e2m1 rounding boundary under many divisors") {
  // Wide blocks of fp32 reach saturated and subnormal scales; given global scales make divisors of 24 bits.
  for (int i = 0; i < 12; ++i) {
    BlockRun run;
    run.seed = static_cast<std::uint64_t>(1000 + i);
    run.dtype = kTypes[i % 3];
    run.global_scale = i % 2 == 0 ? GlobalScale::given : GlobalScale::none;
    run.rows = 256;
    run.k = 1024;
    check("quantize", run, i % 4 < 2 ? Range::wide : Range::uniform);
  }
  for (int i = 0; i < 24; ++i) {
    BlockRun run;
    run.seed = static_cast<std::uint64_t>(2000 + i);
    run.dtype = kTypes[i % 3];
    run.form = i % 2 == 0 ? ScaleForm::plain : ScaleForm::tile;
    run.global_scale = static_cast<GlobalScale>(i / 6 % 3);
    run.rows = 300;
    run.k = 1536;
    check("quantize", run, Range::edge);
  }
}

TEST_CASE("convert_scales: random shapes") {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    BlockRun run = random_run(random, false);
    run.k = static_cast<std::int64_t>(1 + random() % 70);
    check("convert_scales", run, Range::normal);
  }
}

TEST_CASE("gemv: random shapes") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i)
    check("gemv", random_run(random, true), i % 3 == 0 ? Range::integer : i % 3 == 1 ? Range::standard : Range::wide);
}

TEST_CASE("gemv: the shapes that are measured") {
  const std::int64_t shapes[][3] = {{7168, 16384, 1}, {4096, 7168, 8}, {7168, 2048, 4}};
  for (const auto& [m, k, l] : shapes)
    for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
      BlockRun run;
      run.form = form;
      run.dtype = DType::f16;
      run.l = l;
      run.rows = m;
      run.k = k;
      run.b_rows = 128;
      check("gemv", run, Range::integer);
    }
}

}  // namespace tessera
