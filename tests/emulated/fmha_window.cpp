// Attention with a sliding window and valid lengths in memory, in the emulator against float64.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_window_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;

Fmha problem_of(const char* arch, int head_dim, Mask mask, Window window, UsedLengths seqused) {
  Fmha problem;
  problem.arch = Arch::parse(arch);
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.window = window;
  problem.seqused = seqused;
  return problem;
}

constexpr auto kTwo = {Schedule::lazy, Schedule::adversarial};
constexpr const char* kArchs[] = {"sm_90a", "sm_100a"};

void check_windows(const char* arch, Compiler& compiler) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    const Fmha problem = problem_of(arch, 64, mask, Window::sliding, UsedLengths::none);
    const auto check = [&](reference::FmhaSizes sizes, std::int64_t left, std::int64_t right) {
      sizes.head_dim = 64;
      check_runs(problem, sizes, compiler, kTwo, 1,
                 {.softmax_scale = {}, .window_size_left = left, .window_size_right = right});
    };
    check({1, 2, 1, 300, 900}, 100, 40);   // blocks left out on both sides
    check({1, 2, 1, 300, 900}, 0, 0);      // one key a row
    check({1, 1, 1, 700, 333}, 130, 600);  // more queries than keys: the first rows see none
    check({2, 1, 1, 600, 600}, -1, 10);    // one side is open
    check({2, 1, 1, 270, 600}, 128, -1);
    check({1, 1, 1, 130, 257}, 2147418112, 2147418112);
    check({1, 1, 1, 3, 1500}, 700, 0);
  }
  // A pair of CTAs.
  check_runs(problem_of(arch, 512, Mask::causal, Window::sliding, UsedLengths::none), {1, 1, 1, 150, 500, 512},
             compiler, kTwo, 1, {.softmax_scale = {}, .window_size_left = 200, .window_size_right = 0});
}

void check_used_lengths(const char* arch, Compiler& compiler) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (const Window window : {Window::none, Window::sliding}) {
      const auto check = [&](UsedLengths seqused, int head_dim, std::int64_t seqlen_q, std::int64_t seqlen_k,
                             std::vector<std::int64_t> used_q, std::vector<std::int64_t> used_k) {
        const auto batch = static_cast<std::int64_t>(used_k.size());
        testing::FmhaLaunchFacts facts;
        if (window == Window::sliding) {
          facts.window_size_left = 150;
          facts.window_size_right = 20;
        }
        if (seqused == UsedLengths::qk) facts.seqused_q = std::move(used_q);
        facts.seqused_k = std::move(used_k);
        check_runs(problem_of(arch, head_dim, mask, window, seqused), {batch, 2, 1, seqlen_q, seqlen_k, head_dim},
                   compiler, kTwo, 1, facts);
      };
      check(UsedLengths::k, 64, 70, 600, {}, {600, 1, 0, 129, 383});
      check(UsedLengths::qk, 64, 300, 600, {300, 1, 0, 131, 7}, {257, 600, 300, 0, 500});
      check(UsedLengths::qk, 128, 260, 400, {255, 3}, {130, 399});
    }
  }
  testing::FmhaLaunchFacts facts;
  facts.seqused_q = {90, 0};
  facts.seqused_k = {201, 77};
  check_runs(problem_of(arch, 512, Mask::causal, Window::none, UsedLengths::qk), {2, 1, 1, 150, 260, 512}, compiler,
             kTwo, 1, facts);
}

TEST_CASE("attention: a sliding window, beside each mask and alone") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : kArchs) check_windows(arch, *compiler);
  Fmha k_major = problem_of("sm_100a", 128, Mask::none, Window::sliding, UsedLengths::none);
  k_major.v_layout = Layout::k_major;
  check_runs(k_major, {1, 2, 1, 300, 700, 128}, *compiler, kTwo, 1,
             {.softmax_scale = {}, .window_size_left = 99, .window_size_right = 33});
}

TEST_CASE("attention: valid lengths of each sequence, with NaNs behind them") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : kArchs) check_used_lengths(arch, *compiler);
}

}  // namespace
}  // namespace tessera::fmha_window_test
