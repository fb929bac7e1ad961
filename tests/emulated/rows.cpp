// Row operators for every target, compiled to PTX by NVRTC and run in the emulator, against float64. Nothing here ran
// on Blackwell hardware.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/rows_cases.h"
#include "tests/support/sample.h"

namespace tessera::rows_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

struct Target {
  EmulatedDevice device;
  Launcher launcher;
  Target(const Rows& problem, Compiler& compiler)
      : device{{.arch = problem.arch.to_string(), .detects_races = true}},
        launcher(device, make_plan(problem).launch, compiler.compile(emit(make_plan(problem)))) {}
};

/// Columns that threads divide and that they do not, parts in every place, ranges, all sinks.
constexpr std::pair<int, const char*> kChains[] = {
    {7168, "residual(store)+rmsnorm+e4m3"},
    {1536, "residual(store)+rmsnorm+e4m3(pow2,columns)"},
    {2048, "gate(silu)+nvfp4(global,tile)"},
    {1024, "gate(silu,limit=1)+e4m3(pow2)"},
    {640, "gate(gelu_tanh,interleaved)+mxfp8_e4m3"},
    {384, "gather+gate(gelu)+mxfp4(tile)+bf16"},
    {512, "rope(448..511,inverse)+nvfp4(0..447)+bf16(448..511)"},
    {128, "rmsnorm+rope(halves,base=500000,llama3=8)+bf16(scatter)"},
    {128, "rope(halves,yarn=16,trained=4096)+f16"},
    {128, "rope(inverse,yarn=40,magnitude=yarn)+f32"},
    {64, "rope(halves,magnitude=1.25)+f32"},
    {192, "rope(128..191,linear=4)+e4m3(scatter,row)"},
    {5120, "layernorm+mxfp4(tile)"},
    {256, "hadamard(256)+nvfp4(scatter)"},
    {1024, "gather+hadamard(64)+hadamard(128)+f32"},
    {576, "rmsnorm(0..511)+rope(512..575)+e4m3(0..511)+bf16(512..575)"},
    {4096, "factor+e4m3(tensor)+bf16"},
    {1536, "rmsnorm(plus_one)+f32+mxfp8_e5m2(tile)+nvfp4"},
    {64, "rope+bf16(scatter)+e4m3(block=64,scatter,columns)"},
    {72, "residual+rmsnorm(no_weight)"},
    {8, "factor+f32"},
    {16384, "residual+layernorm(8..8199,no_weight)+f16"},
    {128, "rope(halves,table)+f32"},
    {72, "rmsnorm+rope(8..71,inverse,table)+same"},
    {96, "rope(0..31,table)+rope(64..95,halves,table)+f32"},
    {192, "gate(gpt_oss,interleaved,limit=7)+f32(0..95)+mxfp8_e4m3"},
    {264, "rmsnorm+same(scatter,add)"},
    {384, "rmsnorm+e4m3(row,columns)"},
    {136, "e4m3(tensor,columns)+bf16"},
    {40, "factor+f32(8..39,scatter,add)+bf16(scatter,add)+f16"},
    {96, "gate(relu)+residual(32..95,store)+mxfp8_e4m3"},
    {512, "rmsnorm+rope(448..511)+mla_584"},
    {576, "rmsnorm(0..511)+rope(512..575)+mla_656"},
    {128, "layernorm+rope(0..63)+hadamard(128)+indexer_132+bf16(scatter)"},
    {256, "sqrt_softplus+f32"},
    {384, "softcap(30)+softmax+sigmoid(0..127)+f32"},
    {24, "mhc_mix+f32"},
    {24, "mhc_mix(hidden=4096,iterations=3)+f32"},
    {1280, "mhc_pre+rmsnorm+mxfp8_e4m3"},
    {640, "mhc_post+rmsnorm+mxfp8_e4m3(tile)+same"},
    {72, "gather+mhc_post+f32"},
    {328, "mhc_pre(product)+rmsnorm+mxfp8_e4m3(0..319)+f32"},
    {1280, "gather+mhc_pre(product,iterations=2)+same"},
    {256, "append_kv(128,halves)"},
    {192, "append_kv(96,halves)"},
    {160, "append_kv(80,halves,e4m3)"},
    {144, "append_kv(72,halves,inverse)"},
    {264, "rope(104..247,halves,yarn=16)+rope(8..23,halves,table)+rope(24..95,table,halves)+f32"},
    {64, "rope(8..39,halves)+same"},
    {128, "append_kv(64,e4m3,base=500000)"},
    {576, "join(512)+rmsnorm(0..511)+rope(512..575)+f16(paged)+e4m3(0..511)"},
    {88, "gather+join(64)+same"},
    {128, "heads+residual(store)+rmsnorm+rope(halves)+same+e4m3(tensor)"},
    {96, "heads+gate(silu)+nvfp4+f32(32..95)"},
    {256, "heads+append_kv(128,halves)+bf16(0..127)"},
    {1032, "combine(6)+rmsnorm+same"},
    {72, "combine(3,no_weight)+f32"},
    {2048, "combine(16)+mxfp8_e4m3"},
    {512, "compress(4,overlap)+rmsnorm+rope(448..511)+mla_584"},
    {128, "compress(4,overlap)+rmsnorm+rope(64..127)+hadamard(128)+indexer_68"},
    {264, "compress(128)+f32"},
    {40, "compress(2)+same"},
    {1024, "dequant(nvfp4,tile,global)+f32"},
    {544, "gather+dequant(mxfp4)+rmsnorm+same"},
    {96, "dequant(mxfp8_e4m3,tile)+f32+mxfp4"},
    {256, "dequant(mxfp8_e5m2)+nvfp4(tile)"},
    {384, "gather+dequant(e4m3,columns)+f32"},
    {192, "dequant(e4m3,block=64)+residual+e4m3(64)"},
    {136, "gather+dequant(e4m3,row)+f32"},
    {1664, "residual(store)+rmsnorm+e4m3(packed)"},
    {192, "e4m3(32,packed,scatter)+e4m3(0..127,packed)"},
    {64, "dequant(e4m3,tensor)+same"},
    {512, "rope(448..511)+mla_384"},
    {512, "rmsnorm+rope(448..511)+mla_528+mla_288"},
    {128, "hadamard(128)+indexer_68"},
};
constexpr const char* kTargets[] = {"sm_90a", "sm_100a", "sm_120a", "sm_103a", "sm_121a"};
constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};

/// A run takes both fills of 37 rows in turn, and one row or none.
void check(const Rows& problem, Compiler& compiler, std::uint64_t seed) {
  CAPTURE(planned_kernel(problem));
  Target target(problem, compiler);
  const std::uint64_t turn = seed / 10;
  for (const std::int64_t rows : {1, 0, 37})
    for (const Fill fill : {Fill::standard, Fill::uniform}) {
      const bool is_turn =
          (fill == Fill::standard) == (turn / 2 % 2 == 0) && (rows == 37 || (rows == 0) == (turn % 2 == 0));
      if (!is_turn && !testing::takes_all_cases()) continue;
      const Schedule schedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};
      target.device.set_schedule(schedules[seed % 4], seed);
      const reference::RowsRun run = rows_run(problem, rows, rows > 1 ? 3 : 1);
      for (const std::string& text : judge(target.device, target.launcher, run, rows_inputs(run, fill, seed)))
        FAIL_CHECK(text);
      ++seed;
    }
}

}  // namespace

TEST_CASE("rows: every part, on every target, with every type") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::size_t turn = 0;
  testing::Sample sample(12);
  for (const DType dtype : kTypes)
    for (const auto& [columns, chain] : kChains) {
      const std::size_t number = turn++;
      if (!sample.takes() && !(dtype == kTypes[number % 3])) continue;
      check({.arch = Arch::parse(kTargets[number % 5]),
             .dtype = dtype,
             .columns = columns,
             .chain = parse_row_chain(chain)},
            *compiler, 10 * number);
    }
}

TEST_CASE("rows: threads and rows of a CTA as pinned give the same values") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const auto& [threads, rows] : {std::pair(32, 3), std::pair(64, 4), std::pair(512, 2), std::pair(1024, 1)})
    check({.columns = 2048,
           .chain = parse_row_chain("residual(store)+rmsnorm+nvfp4(tile)+e4m3(row)"),
           .threads_of_row = threads,
           .rows_of_cta = rows},
          *compiler, 7);
}

TEST_CASE("rows: CTAs that share a row give the same values") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr const char* kShared[] = {"residual(store)+layernorm+rope(512..575)+nvfp4(tile)+e4m3(row)",
                                     "mhc_post+rmsnorm+mxfp8+softmax+same", "gate(silu)+mxfp4"};
  std::uint64_t seed = 70;
  testing::Sample sample(6);
  for (const auto& [threads, ctas] : {std::pair(256, 8), std::pair(512, 2), std::pair(1024, 4), std::pair(2048, 8)})
    for (std::size_t i = 0; i < 3; ++i) {
      ++seed;
      if (sample.takes() || i == static_cast<std::size_t>(ctas) % 3)
        check({.columns = 1088, .chain = parse_row_chain(kShared[i]), .threads_of_row = threads, .ctas_of_row = ctas},
              *compiler, seed);
    }
}

TEST_CASE("rows: a wide row's norm makes floats of what was read again") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  // Whole vectors and a tail, all columns and some, a source in front, a part that sums again behind.
  constexpr std::pair<int, const char*> kKept[] = {{4096, "rmsnorm+bf16"},
                                                   {3464, "gather+rmsnorm(plus_one)+e4m3(row)+same"},
                                                   {3080, "join(1032)+rmsnorm(1024..2055)+layernorm+f32"},
                                                   {3584, "rmsnorm(no_weight)+rmsnorm+mxfp8(tile)"}};
  std::uint64_t seed = 61;
  for (const auto& [columns, chain] : kKept) {
    const Rows problem{.arch = Arch::parse(kTargets[seed % 5]),
                       .dtype = seed % 2 == 0 ? DType::f16 : DType::bf16,
                       .columns = columns,
                       .chain = parse_row_chain(chain),
                       .threads_of_row = 128};
    REQUIRE(rows::keeps_as_read({.dtype = problem.dtype,
                                 .columns = problem.columns,
                                 .threads_of_row = 128,
                                 .rows_of_cta = 1,
                                 .chain = problem.chain}));
    CHECK(planned_kernel(problem).ends_with("_t128x1"));
    check(problem, *compiler, seed);
    seed += 21;
  }
}

TEST_CASE("rows: more columns than a CTA holds") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Rows problem{.columns = 100352, .chain = parse_row_chain("residual(store)+rmsnorm+e4m3")};
  Target target(problem, *compiler);
  const reference::RowsRun run = rows_run(problem, 2);
  for (const std::string& text : judge(target.device, target.launcher, run, rows_inputs(run, Fill::standard, 9)))
    FAIL_CHECK(text);
}

TEST_CASE("rows: a row in turns, read once for each sum and once for its values") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr const char* kChains[] = {"residual(store)+rmsnorm+mxfp8(tile)+e4m3(row)",
                                     "gate(silu)+layernorm+nvfp4+same",
                                     "gather+softmax(8..1079)+f32(scatter)+rmsnorm(0..511)+e4m3(64)",
                                     "heads+factor+rope(halves,8..103)+hadamard(0..1023)+same+e4m3(row,512..1087)",
                                     "compress(2)+sigmoid+e4m3(tensor)",
                                     "dequant(mxfp4)+e4m3(packed,0..1023)"};
  std::uint64_t seed = 90;
  testing::Sample sample(6);
  for (const auto& [threads, turns] : {std::pair(16, 3), std::pair(32, 5), std::pair(64, 2), std::pair(128, 2)})
    for (const char* const chain : kChains) {
      ++seed;
      if (sample.takes() || seed % 4 == 0)
        check({.columns = 1088, .chain = parse_row_chain(chain), .threads_of_row = threads, .turns_of_row = turns},
              *compiler, seed);
    }
  for (const int ctas : {2, 8})
    check({.columns = 1088,
           .chain = parse_row_chain("residual(store)+layernorm+softmax+e4m3(row)"),
           .threads_of_row = 256,
           .ctas_of_row = ctas,
           .turns_of_row = 3},
          *compiler, 99);
}

TEST_CASE("rows: a row that no cluster holds") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Rows problem{.columns = 1 << 20, .chain = parse_row_chain("residual(store)+rmsnorm+e4m3")};
  Target target(problem, *compiler);
  const reference::RowsRun run = rows_run(problem, 1);
  for (const std::string& text : judge(target.device, target.launcher, run, rows_inputs(run, Fill::standard, 10)))
    FAIL_CHECK(text);
}

/// Blocks of 16 whose scale is some e4m3 number or power of two: one number that says so, and others at and beside the
/// boundaries between two values.
void place_beside_boundaries(reference::Tensor& x, std::int64_t columns) {
  constexpr float kBoundaries[] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  const reference::CounterRandom random(77, 0);
  const auto drawn = [&](std::uint64_t i, int most) { return static_cast<int>(random.integer(i, 0, most)); };
  for (std::int64_t i = 2 * columns; i < x.elements(); ++i) {
    const auto block = static_cast<std::uint64_t>(i / 32);
    const float scale = std::ldexp(1 + static_cast<float>(drawn(4 * block, 7)) / 8, drawn(4 * block + 1, 12) - 6);
    const auto at = (1ULL << 40) + 4 * static_cast<std::uint64_t>(i);
    float value = i % 16 == 0 ? 6 * scale : kBoundaries[drawn(at, 6)] * scale;
    const int step = i % 16 == 0 ? 0 : drawn(at + 1, 2) - 1;
    if (step != 0) value = std::nextafter(value, step > 0 ? 1e30F : 0.0F);
    x.set(i, static_cast<double>(drawn(at + 2, 1) == 0 ? value : -value));
  }
}

TEST_CASE("rows: the bytes of e2m1 are those of quantize for the same rows") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [format, chain] :
         {std::pair(BlockFormat::nvfp4, "nvfp4(tile)"), std::pair(BlockFormat::mxfp4, "mxfp4(tile)")}) {
      CAPTURE(chain);
      const Rows problem{.dtype = dtype, .columns = 512, .chain = parse_row_chain(chain)};
      Target target(problem, *compiler);
      const reference::RowsRun run = rows_run(problem, 130);
      reference::Tensors inputs = rows_inputs(run, Fill::standard, 3);
      place_beside_boundaries(inputs.at("x"), 512);
      inputs.at("x").set(5, std::numeric_limits<double>::quiet_NaN());
      inputs.at("x").set(700, std::numeric_limits<double>::infinity());
      inputs.at("x").set(701, -0.0);
      std::vector<std::string> problems;
      const reference::Tensors found =
          launch_once(target.device, target.launcher, {{"rows", 130}}, {}, inputs, problems);
      for (const std::string& text : problems) FAIL_CHECK(text);
      const Quantize step{
          .dtype = dtype, .format = format, .scale_form = ScaleForm::tile, .scale_rounding = ScaleRounding::up};
      Launcher quantize(target.device, make_plan(step).launch, compiler->compile(emit(make_plan(step))));
      reference::Tensors x;
      x.emplace("x", inputs.at("x"));
      const reference::Tensors wanted =
          launch_once(target.device, quantize, {{"rows", 130}, {"k", 512}}, {}, x, problems);
      CHECK(found.at("y").bytes == wanted.at("values").bytes);
      CHECK(found.at("y_scales").bytes == wanted.at("scales").bytes);
    }
}

TEST_CASE("rows: NaN and infinity come out where they went in") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Rows problem{.columns = 256,
                     .chain = parse_row_chain("residual(store)+rope(64..127)+e4m3(row)+f32+mxfp8_e4m3")};
  Target target(problem, *compiler);
  const reference::RowsRun run = rows_run(problem, 9);
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const std::int64_t at : {0, 300, 256 * 8 + 70}) {
      reference::Tensors inputs = rows_inputs(run, Fill::normal, 5);
      inputs.at("x").set(at, value);
      const std::vector<std::string> problems = judge(target.device, target.launcher, run, inputs);
      if (std::isnan(value) || at % 256 < 64)
        for (const std::string& text : problems) FAIL_CHECK(text);
    }
}

TEST_CASE("rows: of infinite and of huge numbers comes what the arithmetic makes of them") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kHuge = 3e38;
  for (const char* const chain :
       {"sigmoid+f32", "sqrt_softplus+f32", "softmax+f32", "softcap+f32", "rmsnorm+f32", "layernorm+same", "e4m3",
        "e4m3(row)", "mxfp4+nvfp4", "gate(silu)+f32", "gate(relu,interleaved)+f16", "compress(4)+f32"}) {
    CAPTURE(std::string(chain));
    const Rows problem{.dtype = DType::f32, .columns = 128, .chain = parse_row_chain(chain)};
    Target target(problem, *compiler);
    const reference::RowsRun run = rows_run(problem, 5);
    reference::Tensors inputs = rows_inputs(run, Fill::normal, 8);
    // Each in a row of its own; of an entry's tokens the scores.
    reference::Tensor& x = inputs.at(has_part(problem.chain, RowPart::compress) ? "scores" : "x");
    const std::int64_t of_row = x.shape[1];
    x.set(3, -kInfinity);
    if (!has_part(problem.chain, RowPart::compress)) {
      x.set(of_row + 5, kInfinity);
      x.set(2 * of_row + 7, kHuge);
      x.set(3 * of_row + 9, -kHuge);
    }
    for (const std::string& text : judge(target.device, target.launcher, run, inputs)) FAIL_CHECK(text);
  }
}

TEST_CASE("rows: four streams of zeros below zero are one, and its sign is judged") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Rows problem{.columns = 128, .chain = parse_row_chain("mhc_pre(product)+mxfp8_e4m3")};
  Target target(problem, *compiler);
  const reference::RowsRun run = rows_run(problem, 3);
  reference::Tensors inputs = rows_inputs(run, Fill::normal, 6);
  for (const std::int64_t stream : {0, 1, 2, 3}) inputs.at("x").set((4 + stream) * 128 + 7, -0.0);
  for (const std::string& text : judge(target.device, target.launcher, run, inputs)) FAIL_CHECK(text);
}

TEST_CASE("rows: the root of softplus where e^x is a denormal number or none") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Rows problem{.dtype = DType::f32, .columns = 64, .chain = parse_row_chain("sqrt_softplus+f32")};
  Target target(problem, *compiler);
  const reference::RowsRun run = rows_run(problem, 1);
  reference::Tensors inputs = rows_inputs(run, Fill::normal, 8);
  for (std::int64_t i = 0; i < 64; ++i) inputs.at("x").set(i, -84 - 0.4 * static_cast<double>(i));
  for (const std::string& text : judge(target.device, target.launcher, run, inputs)) FAIL_CHECK(text);
}

TEST_CASE("rows: a mix of no row is zeros below zero where its coefficients are") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Rows problem{.columns = 128, .chain = parse_row_chain("gather+mhc_pre+mxfp4")};
  Target target(problem, *compiler);
  const reference::RowsRun run = rows_run(problem, 3);
  reference::Tensors inputs = rows_inputs(run, Fill::normal, 7);
  reference::Tensor& mix = inputs.at(row_step_names(problem.chain)[1].in);
  inputs.at("indices").set(1, -1);
  for (const std::int64_t stream : {0, 1, 2, 3}) mix.set(24 + stream, -0.5);
  for (const std::string& text : judge(target.device, target.launcher, run, inputs)) FAIL_CHECK(text);
}

}  // namespace tessera::rows_test
