// Attention of NVFP4 operands for sm_120 and sm_121, compiled to PTX by NVRTC and run in the emulator under each of its
// schedules and the race detector, against float64 that quantises P alike. Nothing here ran on Blackwell hardware.
#include <doctest/doctest.h>

#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/attention_quantize_cases.h"
#include "tests/support/fmha_nvfp4_cases.h"
#include "tests/support/sample.h"

namespace tessera::fmha_nvfp4_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Fill;

constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial};

std::unique_ptr<Compiler> find_compiler() {
  try {
    return make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return nullptr;
  }
}

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

}  // namespace

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
  Target attention(problem_for("sm_120a", 64, Mask::causal), "sm_120a", *compiler);
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
  // Near attention of what came, lse included: means are restored exactly.
  reference::FmhaCheck check;
  check.facts.head_dim = check.facts.head_dim_v = 64;
  check.facts.mask = Mask::causal;
  check.softmax_scale = 1.0 / 8;
  double dot = 0, found_square = 0, square = 0, lse_error = 0;
  for (std::int64_t row = 0; row < kShape.seqlen_q; row += 7) {
    const reference::FmhaRow exact =
        reference::fmha_row({made.q.view(), made.k.view(), made.v.view()}, check, 1, 3, row);
    for (std::int64_t c = 0; c < 64; ++c) {
      const double found = first.at("o").at(((140 + row) * 4 + 3) * 64 + c),
                   wanted = exact.o[static_cast<std::size_t>(c)];
      dot += found * wanted;
      found_square += found * found;
      square += wanted * wanted;
    }
    lse_error = std::max(lse_error, std::fabs(first.at("lse").at((4 + 3) * 140 + row) - exact.lse));
  }
  CHECK(dot / std::sqrt(found_square * square) > 0.97);
  CHECK(lse_error < 0.2);
}

}  // namespace tessera::fmha_nvfp4_test
