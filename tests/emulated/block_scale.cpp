// Block-scaled kernels for every target, compiled to PTX by NVRTC and run in the emulator: quantised bytes equal the
// host's, products are within the roundings that the order of additions explains. Nothing here ran on Blackwell
// hardware.
#include <doctest/doctest.h>

#include <random>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tessera/plan.h"
#include "tests/emulated/compiler.h"
#include "tests/support/block_scale_cases.h"
#include "tests/support/sample.h"

namespace tessera::block_scale_test {
namespace {

using emulator::EmulatedDevice;
using reference::BlockRun;
using reference::Range;
using testing::find_compiler;

constexpr const char* kArchs[] = {"sm_90a", "sm_100a", "sm_120a"};

/// Compiles once, runs with every range and both shapes.
void check(Compiler& compiler, const char* arch, const char* op, BlockRun run,
           const std::vector<std::vector<std::int64_t>>& shapes) {
  EmulatedDevice device({.arch = arch});
  run.l = shapes[0][0];
  run.rows = shapes[0][1];
  run.k = shapes[0][2];
  const Plan plan = make_plan(problem_of_run(op, Arch::parse(arch), run));
  CAPTURE(plan.kernel);
  const Launcher launcher(device, plan.launch, compiler.compile(emit(plan)));
  for (const std::vector<std::int64_t>& shape : shapes) {
    run.l = shape[0];
    run.rows = shape[1];
    run.k = shape[2];
    run.b_rows = shape.size() > 3 ? shape[3] : 1;
    CAPTURE(run.rows);
    CAPTURE(run.k);
    for (const Range range : {Range::standard, Range::integer, Range::edge, Range::wide}) {
      CAPTURE(static_cast<int>(range));
      ++run.seed;
      for (const std::string& problem : judge(device, launcher, op, run, range)) FAIL_CHECK(problem);
    }
  }
}

}  // namespace

TEST_CASE("quantize and dequantize: every target, format, form and type") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
  std::size_t type = 0;
  testing::Sample sample(8);
  for (const char* const arch : kArchs)
    for (const BlockFormat format : {BlockFormat::nvfp4, BlockFormat::mxfp4, BlockFormat::mxfp8_e4m3,
                                     BlockFormat::mxfp8_e5m2, BlockFormat::mxfp6_e3m2, BlockFormat::mxfp6_e2m3})
      for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
        if (!sample.takes()) continue;
        BlockRun run{.format = format, .form = form};
        run.dtype = kTypes[type++ % 3];
        const std::vector<std::vector<std::int64_t>> shapes{{2, 5, 96}, {1, 131, 32}, {1, 0, 64}};
        check(*compiler, arch, "quantize", run, shapes);
        check(*compiler, arch, "dequantize", run, shapes);
      }
}

TEST_CASE("quantize and dequantize: six bits by instructions and without, both rules") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const std::vector<std::vector<std::int64_t>> shapes{{2, 5, 96}, {1, 131, 32}, {1, 3, 160}};
  constexpr DType kTypes[] = {DType::bf16, DType::f32, DType::f16};
  std::size_t type = 0;
  for (const char* const arch : {"sm_90a", "sm_120a"})
    for (const BlockFormat format : {BlockFormat::mxfp6_e3m2, BlockFormat::mxfp6_e2m3})
      for (const ScaleRounding rounding : {ScaleRounding::up, ScaleRounding::floor}) {
        BlockRun run{.format = format, .form = type % 2 == 0 ? ScaleForm::plain : ScaleForm::tile};
        run.rounding = rounding;
        run.dtype = kTypes[type++ % 3];
        check(*compiler, arch, "quantize", run, shapes);
        check(*compiler, arch, "dequantize", run, shapes);
      }
}

TEST_CASE("quantize: the floor rule, and global scales") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  testing::Sample sample(8);
  for (const char* const arch : kArchs) {
    if (!sample.takes()) continue;
    check(*compiler, arch, "quantize",
          {.format = BlockFormat::mxfp4, .rounding = ScaleRounding::floor, .dtype = DType::f32}, {{1, 7, 128}});
    check(*compiler, arch, "quantize",
          {.form = ScaleForm::tile, .global_scale = GlobalScale::given, .dtype = DType::f32}, {{2, 3, 112}});
    check(*compiler, arch, "dequantize", {.global_scale = GlobalScale::given, .dtype = DType::f16}, {{2, 3, 112}});
    check(*compiler, arch, "quantize",
          {.form = ScaleForm::tile, .global_scale = GlobalScale::amax, .dtype = DType::f32},
          {{2, 9, 80}, {1, 0, 16}, {1, 3, 0}});
    check(*compiler, arch, "quantize", {.global_scale = GlobalScale::amax, .dtype = DType::f16}, {{3, 50, 64}});
    for (const DType dtype : {DType::bf16, DType::f16})
      check(*compiler, arch, "quantize", {.global_scale = GlobalScale::given, .dtype = dtype},
            {{1, 40, 512}, {2, 3, 48}});
    // Longer than a CTA's columns, and more than one tile of rows.
    check(*compiler, arch, "quantize",
          {.form = ScaleForm::tile, .global_scale = GlobalScale::amax, .dtype = DType::bf16}, {{2, 131, 1200}});
  }
}

TEST_CASE("quantize: global scales whose quotients are or nearly are ties") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  // Powers of two, numbers of few digits whose products with scales and boundaries have few, too, thirds, fifths and
  // sevenths, what lies beside a power of two (a reciprocal that a Newton step alone rounds wrongly), and both ends of
  // the range in which blocks are divided at once. Some are too large for blocks of f16 to saturate.
  constexpr float kScales[] = {1.0F,          0.7F,           3.0F,      444.7F,    0.375F,   1.0F / 3,
                               2.0F / 7,      1e-3F,          0x1.5p-9F, 1500.0F,   37958.0F, 0x1.fffffep0F,
                               0x1.000002p0F, 0x1.fffffep-7F, 0x1p80F,   0x1.8p81F, 0x1p-81F};
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
      BlockRun run{.form = form, .global_scale = GlobalScale::given, .dtype = dtype, .l = 1, .rows = 66, .k = 208};
      EmulatedDevice device({.arch = "sm_90a"});
      const Plan plan = make_plan(problem_of_run("quantize", Arch::parse("sm_90a"), run));
      const Launcher launcher(device, plan.launch, compiler->compile(emit(plan)));
      for (const float g : kScales) {
        CAPTURE(plan.kernel);
        CAPTURE(g);
        run.given_scale = g;
        ++run.seed;
        for (const Range range : {Range::edge, Range::wide})
          for (const std::string& problem : judge(device, launcher, "quantize", run, range)) FAIL_CHECK(problem);
      }
    }
}

TEST_CASE("convert_scales: both ways, ragged") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const ScaleForm to : {ScaleForm::plain, ScaleForm::tile})
    check(*compiler, "sm_90a", "convert_scales", {.form = to}, {{1, 1, 1}, {2, 129, 5}, {3, 40, 13}, {1, 256, 8}});
}

TEST_CASE("gemv: every target and form, ragged, with a padded vector") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : kArchs)
    for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
      BlockRun run{.form = form};
      run.dtype = form == ScaleForm::plain ? DType::f32 : DType::f16;
      check(*compiler, arch, "gemv", run, {{2, 37, 32}, {1, 130, 1056, 128}, {1, 3, 2080}, {1, 9, 0}});
    }
  // Longer than a panel of the vector, and few rows: several warps share one.
  BlockRun run;
  run.dtype = DType::bf16;
  check(*compiler, "sm_90a", "gemv", run, {{1, 5, 17408}});
  check(*compiler, "sm_100a", "gemv", run, {{1, 5, 9248}});
}

TEST_CASE("gemv: MX formats, alike and mixed, of every target and form") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr BlockFormat kFormats[] = {BlockFormat::mxfp4, BlockFormat::mxfp8_e4m3, BlockFormat::mxfp8_e5m2};
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
  std::size_t turn = 0;
  for (const BlockFormat a : kFormats)
    for (const BlockFormat b : kFormats) {
      // Of three targets and two forms each pair has one; the others come with the next pairs.
      BlockRun run{.format = a, .form = turn % 2 == 0 ? ScaleForm::plain : ScaleForm::tile, .dtype = kTypes[turn % 3]};
      if (a != b) run.b_format = b;
      check(*compiler, kArchs[(turn + turn / 3) % 3], "gemv", run, {{2, 37, 64}, {1, 130, 1056, 128}, {1, 9, 0}});
      ++turn;
    }
  // Longer than a panel of the vector, and few rows: several warps share one.
  check(*compiler, "sm_120a", "gemv", {.format = BlockFormat::mxfp8_e4m3, .dtype = DType::bf16}, {{1, 3, 9248}});
  check(*compiler, "sm_90a", "gemv",
        {.format = BlockFormat::mxfp4,
         .form = ScaleForm::tile,
         .dtype = DType::bf16,
         .b_format = BlockFormat::mxfp8_e4m3},
        {{1, 5, 8736}});
}

}  // namespace tessera::block_scale_test
