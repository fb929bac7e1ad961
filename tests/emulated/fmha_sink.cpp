// Attention with a sink for each head, in the emulator against float64.
#include <doctest/doctest.h>

#include <string_view>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_sink_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;
using testing::FmhaLaunchFacts;

Fmha problem_of(const char* arch, int head_dim, Mask mask) {
  Fmha problem;
  problem.arch = Arch::parse(arch);
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.sink = Sink::per_head;
  return problem;
}

void check_sinks(const char* arch, Compiler& compiler) {
  const auto check = [&](const Fmha& problem, reference::FmhaSizes sizes, const FmhaLaunchFacts& facts = {}) {
    sizes.head_dim = problem.head_dim;
    check_runs(problem, sizes, compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
  };
  const Fmha plain = problem_of(arch, 64, Mask::none);
  check(plain, {2, 4, 2, 70, 129});
  check(plain, {1, 3, 1, 5, 1}, {.softmax_scale = 1.0});
  check(plain, {1, 2, 1, 5, 0});
  check(plain, {1, 2, 1, 5, 90}, {.has_sink = false});
  // Far below all scores, above most, and so far above that every o is 0.
  for (const double sink : {-700.0, 9.5, 3e3}) check(plain, {1, 2, 1, 70, 129}, {.sink = sink});
  check(problem_of(arch, 128, Mask::causal), {1, 2, 1, 300, 200});  // the first rows see none
  check(problem_of(arch, 512, Mask::causal), {1, 3, 1, 70, 200});

  Fmha packed = problem_of(arch, 64, Mask::causal);
  packed.pack_gqa = 8;
  check(packed, {2, 16, 2, 20, 300});
  // Parts do not have it, their merging does: once.
  packed.split_kv = SplitKv::on;
  check(packed, {2, 16, 2, 5, 600}, {.num_splits = 3});
  check(packed, {1, 8, 1, 5, 600}, {.num_splits = 4, .sink = 9.5});
  Fmha used = problem_of(arch, 64, Mask::none);
  used.seqused = UsedLengths::qk;
  used.window = Window::sliding;
  used.split_kv = SplitKv::on;
  check(used, {3, 2, 1, 40, 300},
        {.window_size_left = 200, .num_splits = 2, .seqused_q = {40, 0, 3}, .seqused_k = {300, 200, 0}});
  Fmha paged = problem_of(arch, 64, Mask::causal);
  paged.kv_layout = KvLayout::paged;
  paged.page_size = 16;
  paged.pack_gqa = 4;
  check(paged, {3, 8, 2, 5, 300}, {.seqused_k = {300, 131, 0}});
  paged.split_kv = SplitKv::on;
  check(paged, {3, 8, 2, 5, 300}, {.num_splits = 3, .seqused_k = {300, 131, 0}});
  Fmha keys = problem_of(arch, 64, Mask::none);
  keys.kv_layout = KvLayout::ragged;
  check(keys, {3, 2, 1, 40, 300}, {.seqused_k = {176, 0, 300}});
  const bool is_hopper = std::string_view(arch) == "sm_90a";
  if (is_hopper) {
    // Whole tiles and parts of others in one launch.
    packed.seqused = UsedLengths::k;
    packed.split_kv = SplitKv::dealt;
    check(packed, {4, 16, 2, 1, 700}, {.seqused_k = {700, 65, 0, 301}, .num_sms = 3});
  }
  for (const SplitKv split : {SplitKv::off, is_hopper ? SplitKv::dealt : SplitKv::on}) {
    // Ragged queries: whole tiles leave by TMA, a sequence's last one from registers.
    Fmha step = paged;
    step.q_layout = QueryLayout::ragged;
    step.split_kv = split;
    check(step, {5, 8, 2, 125, 300},
          {.seqused_k = {90, 300, 0, 257, 1}, .query_lengths = {90, 1, 0, 33, 1}, .num_sms = 3});
  }
}

TEST_CASE("attention: a sink of each head, in the denominator alone") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : {"sm_90a", "sm_100a"}) check_sinks(arch, *compiler);
}

}  // namespace
}  // namespace tessera::fmha_sink_test
