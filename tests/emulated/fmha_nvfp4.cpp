// Attention of NVFP4 operands for sm_120 and sm_121, compiled to PTX by NVRTC and run in the emulator under each of its
// schedules and the race detector, against float64 that quantises P alike. Nothing here ran on Blackwell hardware.
#include <doctest/doctest.h>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/attention_quantize_cases.h"
#include "tests/support/fmha_nvfp4_cases.h"
#include "tests/support/pairwise.h"
#include "tests/support/sample.h"

namespace tessera::fmha_nvfp4_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;
using testing::find_compiler;

constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};

struct Target {
  Plan plan;
  EmulatedDevice device;
  Launcher launcher;
  Target(const Problem& problem, const char* arch, Compiler& compiler)
      : plan(make_plan(problem)),
        device{{.arch = arch, .detects_races = true}},
        launcher(device, plan.launch, compiler.compile(emit(plan))) {}
};

Fmha problem_for(const char* arch, int head_dim, Mask mask, Window window = Window::none) {
  Fmha p{.arch = Arch::parse(arch), .head_dim = head_dim};
  p.format = BlockFormat::nvfp4;
  p.mask = mask;
  p.window = window;
  return p;
}

/// More queries than keys and the reverse, parts of blocks and whole ones, groups of heads, one row, nothing.
constexpr reference::FmhaSizes kShapes[] = {{.batch = 1, .heads_q = 4, .heads_kv = 2, .seqlen_q = 150, .seqlen_k = 300},
                                            {.batch = 2, .heads_q = 2, .heads_kv = 1, .seqlen_q = 130, .seqlen_k = 70},
                                            {.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 1, .seqlen_k = 513},
                                            {.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 128, .seqlen_k = 256},
                                            {.batch = 1, .heads_q = 2, .heads_kv = 2, .seqlen_q = 3, .seqlen_k = 0}};

void check(const Fmha& problem, const char* arch, Compiler& compiler, const Nvfp4Facts& facts = {}) {
  Target target(problem, arch, compiler);
  CAPTURE(target.plan.kernel);
  std::uint64_t seed = 1;
  for (const reference::FmhaSizes& shape : kShapes) {
    CAPTURE(shape.seqlen_q);
    CAPTURE(shape.seqlen_k);
    CAPTURE(seed);
    target.device.set_schedule(kSchedules[seed % 4], seed);
    const Fill fill = seed % 2 == 0 ? Fill::normal : Fill::standard;
    for (const std::string& text : judge(target.device, target.launcher, target.plan, shape, fill, seed, facts))
      FAIL_CHECK(text);
    ++seed;
  }
}

/// A choice of each fact that a Config has, as indices.
enum Axis : std::uint8_t { kHead, kTileM, kTileN, kKeysSeen, kCap, kSlope, kResult, kSplit, kAxes };
constexpr std::size_t kExtents[kAxes] = {2, 2, 2, 5, 2, 2, 3, 3};

Fmha problem_of(const std::vector<std::size_t>& at) {
  Fmha p = problem_for("sm_120a", at[kHead] == 0 ? 64 : 128, Mask::none);
  p.tile_m = at[kTileM] == 0 ? 128 : 64;
  p.tile_n = at[kTileN] == 0 ? 128 : 64;
  p.stages = at[kTileN] == 0 ? 2 : 3;
  if (at[kKeysSeen] == 1 || at[kKeysSeen] == 2) p.mask = Mask::causal;
  if (at[kKeysSeen] == 2) p.window = Window::chunked;
  if (at[kKeysSeen] == 3) p.window = Window::sliding;
  if (at[kKeysSeen] == 4) p.tree_mask = TreeMask::bits;
  if (at[kCap] == 1) p.softcap = Softcap::tanh;
  if (at[kSlope] == 1) p.alibi = Alibi::per_head;
  if (at[kResult] == 1) p.sink = Sink::per_head;
  if (at[kResult] == 2) p.output = Output::unnormalized;
  p.split_kv = at[kSplit] == 0 ? SplitKv::off : SplitKv::on;
  if (at[kSplit] == 2) p.split_size = 128;
  return p;
}

}  // namespace

TEST_CASE("fmha nvfp4: a pairwise cover of facts: sinks, caps, slopes, trees, chunks, split keys, sums") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  std::vector<std::vector<std::size_t>> choices;
  std::vector<std::size_t> at(kAxes, 0);
  for (std::size_t d = 0; d < kAxes;) {
    choices.push_back(at);
    for (d = 0; d < kAxes && ++at[d] == kExtents[d]; ++d) at[d] = 0;
  }
  constexpr reference::FmhaSizes kFactShapes[] = {
      {.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 140, .seqlen_k = 300},
      {.batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 40, .seqlen_k = 700},
      {.batch = 1, .heads_q = 2, .heads_kv = 2, .seqlen_q = 130, .seqlen_k = 3}};
  testing::Sample sample(6);
  std::uint64_t seed = 1;
  for (const std::size_t choice : testing::pairwise(choices)) {
    const std::uint64_t own = seed++;
    if (!sample.takes()) continue;
    Target target(problem_of(choices[choice]), "sm_120a", *compiler);
    CAPTURE(target.plan.kernel);
    for (const reference::FmhaSizes& shape : kFactShapes) {
      CAPTURE(shape.seqlen_q);
      target.device.set_schedule(kSchedules[own % 4], own);
      Nvfp4Facts facts{.window_size_left = 50, .window_size_right = 9, .common = own % 2 == 0 ? 8.0 : 0.0};
      if (own % 3 == 0 && target.plan.problem.as<Fmha>().split_size == 0) facts.num_splits = 5;
      if (own % 5 == 0) facts.softmax_scale = -0.2;
      for (const std::string& text :
           judge(target.device, target.launcher, target.plan, shape, Fill::normal, own, facts))
        FAIL_CHECK(text);
    }
  }
}

TEST_CASE("fmha nvfp4: parts of a size of their own give the same bits whatever else is in the batch") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha problem = problem_for("sm_120a", 64, Mask::causal);
  problem.split_size = 128;
  Target target(problem, "sm_120a", *compiler);
  reference::FmhaSizes shape{.batch = 3, .heads_q = 2, .heads_kv = 1, .seqlen_q = 70, .seqlen_k = 500, .head_dim = 64};
  const reference::FmhaTensors made = reference::make_inputs(shape, DType::bf16, Fill::normal, 9);
  const auto first_of = [](const reference::Tensor& all) {
    reference::Tensor one(all.dtype, all.shape);
    one.shape[0] = 1;
    one.bytes.resize(all.bytes.size() / static_cast<std::size_t>(all.shape[0]));
    std::copy_n(all.bytes.begin(), one.bytes.size(), one.bytes.begin());
    return one;
  };
  const reference::FmhaTensors alone{first_of(made.q), first_of(made.k), first_of(made.v)};
  const auto run = [&](const reference::FmhaTensors& of, std::int64_t batch, int num_sms, std::int64_t num_splits) {
    shape.batch = batch;
    reference::Tensors written;
    for (const std::string& text :
         judge(target.device, target.launcher, target.plan, shape,
               nvfp4_operands(reference::quantize_attention({of.q.view(), of.k.view(), of.v.view()})),
               {.num_sms = num_sms, .num_splits = num_splits}, &written))
      FAIL_CHECK(text);
    return written;
  };
  const reference::Tensors together = run(made, 3, 5, 0), single = run(alone, 1, 2, 7);
  CHECK(first_of(together.at("o")).bytes == single.at("o").bytes);
  CHECK(first_of(together.at("lse")).bytes == single.at("lse").bytes);
}

TEST_CASE("fmha nvfp4: head_dims, masks, tiles and slots") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr const char* kTargets[] = {"sm_120a", "sm_121a", "sm_120f"};
  testing::Sample sample(8);
  std::size_t turn = 0;
  for (const int head_dim : {128, 64})
    for (const Mask mask : {Mask::none, Mask::causal})
      for (const int tile_m : {128, 64})
        for (const int tile_n : {128, 64}) {
          const char* const arch = kTargets[turn % 3];
          Fmha problem = problem_for(arch, head_dim, mask);
          problem.tile_m = tile_m;
          problem.tile_n = tile_n;
          problem.stages = static_cast<int>(turn % 3) + 1;
          if (turn % 4 == 3) problem.o_dtype = DType::f16;
          if (sample.takes()) check(problem, arch, *compiler);
          ++turn;
        }
}

TEST_CASE("fmha nvfp4: the kernels that are planned where nothing is pinned") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  check(problem_for("sm_120a", 128, Mask::causal), "sm_120a", *compiler);
  check(problem_for("sm_120a", 64, Mask::none), "sm_120a", *compiler);
}

TEST_CASE("fmha nvfp4: windows, and scales of any sign") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  check(problem_for("sm_120a", 64, Mask::none, Window::sliding), "sm_120a", *compiler,
        {.window_size_left = 40, .window_size_right = 7});
  check(problem_for("sm_120a", 128, Mask::causal, Window::sliding), "sm_120a", *compiler,
        {.window_size_left = 0, .softmax_scale = -0.1});
  check(problem_for("sm_120a", 64, Mask::causal), "sm_120a", *compiler, {.softmax_scale = 1e-30, .num_sms = 1});
}

TEST_CASE("fmha nvfp4: what attention_quantize writes on the device, bits that do not depend on the schedule") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  constexpr reference::FmhaSizes kShape{
      .batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 140, .seqlen_k = 260, .head_dim = 64};
  Target quantize(AttentionQuantize{.arch = Arch::parse("sm_120a"), .head_dim = 64}, "sm_120a", *compiler);
  Fmha problem = problem_for("sm_120a", 64, Mask::causal);
  problem.sink = Sink::per_head;
  problem.alibi = Alibi::per_head;
  problem.softcap = Softcap::tanh;
  problem.split_kv = SplitKv::on;
  Target attention(problem_for("sm_120a", 64, Mask::causal), "sm_120a", *compiler);
  Target with_facts(problem, "sm_120a", *compiler);
  reference::FmhaTensors made = reference::make_inputs(kShape, DType::bf16, Fill::normal, 5);
  // What all keys have in common, and a block's queries: without means there would be no bits left for the rest.
  for (reference::Tensor* const x : {&made.q, &made.k})
    for (std::int64_t i = 0; i < x->elements(); ++i) x->set(i, x->at(i) + (i % 64 == 5 ? 30 : 0));
  std::vector<std::string> problems;
  const reference::Tensors units =
      launch_once(quantize.device, quantize.launcher,
                  {{"batch", 2}, {"heads_q", 4}, {"heads_kv", 2}, {"seqlen_q", 140}, {"seqlen_k", 260}}, {},
                  {{"q", made.q}, {"k", made.k}, {"v", made.v}}, problems);
  const reference::Tensors operands = nvfp4_operands(units);
  reference::Tensors first;
  std::uint64_t seed = 1;
  for (const Schedule schedule : kSchedules) {
    attention.device.set_schedule(schedule, seed++);
    reference::Tensors written;
    for (const std::string& text :
         judge(attention.device, attention.launcher, attention.plan, kShape, operands, {}, &written))
      problems.push_back(text);
    if (first.empty()) first = written;
    CHECK(written.at("o").bytes == first.at("o").bytes);
    CHECK(written.at("lse").bytes == first.at("lse").bytes);
  }
  for (const std::string& text : problems) FAIL_CHECK(text);
  // Near attention of what came, lse included: means are restored exactly. Caps and sinks compare with all of a score.
  reference::Tensors of_facts;
  for (const std::string& text :
       judge(with_facts.device, with_facts.launcher, with_facts.plan, kShape, operands, {.num_splits = 2}, &of_facts))
    FAIL_CHECK(text);
  for (const reference::Tensors* const outputs : {&first, &of_facts}) {
    reference::FmhaCheck check;
    check.facts.head_dim = check.facts.head_dim_v = 64;
    check.facts.mask = Mask::causal;
    check.softmax_scale = 1.0 / 8;
    reference::Tensor sink(DType::f32, {4}), slopes(DType::f32, {4});
    if (outputs == &of_facts) {
      for (std::int64_t head = 0; head < 4; ++head) {
        sink.set(head, 1.5 - 0.75 * static_cast<double>(head));
        slopes.set(head, 0.03 - 0.02 * static_cast<double>(head));
      }
      check.softcap = kNvfp4Softcap;
      check.alibi_slopes = slopes.view();
    }
    double dot = 0, found_square = 0, square = 0, lse_error = 0;
    for (std::int64_t row = 0; row < kShape.seqlen_q; row += 7) {
      const reference::FmhaRow exact =
          reference::fmha_row({made.q.view(), made.k.view(), made.v.view()}, check, 1, 3, row);
      const double share = outputs == &first ? 1 : 1 / (1 + std::exp(sink.at(3) - exact.lse));
      for (std::int64_t c = 0; c < 64; ++c) {
        const double found = outputs->at("o").at(((140 + row) * 4 + 3) * 64 + c),
                     wanted = exact.o[static_cast<std::size_t>(c)] * share;
        dot += found * wanted;
        found_square += found * found;
        square += wanted * wanted;
      }
      lse_error = std::max(lse_error, std::fabs(outputs->at("lse").at((4 + 3) * 140 + row) - exact.lse));
    }
    CHECK(dot / std::sqrt(found_square * square) > 0.97);
    CHECK(std::sqrt(found_square / square) == doctest::Approx(1).epsilon(0.05));
    CHECK(lse_error < 0.2);
  }
}

}  // namespace tessera::fmha_nvfp4_test
