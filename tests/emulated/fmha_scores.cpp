// Attention whose scores are capped or lowered by distance, and whose keys come in chunks, in the emulator against
// float64.
#include <doctest/doctest.h>

#include <string_view>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_scores_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;
using testing::FmhaLaunchFacts;

struct Runs {
  const char* arch;
  Compiler& compiler;
  Softcap softcap = Softcap::none;
  Alibi alibi = Alibi::none;
  Window window = Window::none;

  Fmha problem(int head_dim, Mask mask) const {
    Fmha problem;
    problem.arch = Arch::parse(arch);
    problem.head_dim = head_dim;
    problem.mask = mask;
    problem.softcap = softcap;
    problem.alibi = alibi;
    problem.window = window;
    return problem;
  }
  void check(const Fmha& problem, reference::FmhaSizes sizes, FmhaLaunchFacts facts = {}) const {
    sizes.head_dim = problem.head_dim;
    if (facts.attention_chunk == 8192) facts.attention_chunk = 50;
    check_runs(problem, sizes, compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
  }

  void all() const {
    const Mask mask = window == Window::chunked ? Mask::causal : Mask::none;
    check(problem(64, mask), {2, 4, 2, 70, 129});
    check(problem(64, mask), {1, 2, 1, 5, 0});
    check(problem(64, Mask::causal), {1, 2, 1, 200, 130});  // the first rows see no key
    check(problem(72, Mask::causal), {1, 2, 2, 70, 200});
    check(problem(512, Mask::causal), {1, 3, 1, 70, 200});
    Fmha other = problem(128, Mask::causal);
    other.output = Output::unnormalized;
    other.dtype = DType::f16;
    check(other, {1, 2, 1, 130, 300});

    Fmha packed = problem(64, Mask::causal);
    packed.pack_gqa = 8;
    packed.sink = Sink::per_head;
    check(packed, {2, 16, 2, 20, 300});
    packed.seqused = UsedLengths::qk;
    packed.split_kv = SplitKv::on;
    check(packed, {3, 16, 2, 20, 300}, {.num_splits = 3, .seqused_q = {20, 0, 3}, .seqused_k = {300, 200, 1}});
    Fmha paged = problem(64, Mask::causal);
    paged.kv_layout = KvLayout::paged;
    paged.page_size = 16;
    paged.pack_gqa = 4;
    check(paged, {3, 8, 2, 5, 300}, {.seqused_k = {300, 131, 0}});
    for (const SplitKv split : {SplitKv::off, std::string_view(arch) == "sm_90a" ? SplitKv::dealt : SplitKv::on}) {
      Fmha step = paged;
      step.seqused = UsedLengths::k;
      step.q_layout = QueryLayout::ragged;
      step.split_kv = split;
      check(step, {5, 8, 2, 125, 300},
            {.seqused_k = {90, 300, 0, 257, 1}, .query_lengths = {90, 1, 0, 33, 1}, .num_sms = 3});
    }
  }
};

TEST_CASE("attention: capped scores") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : {"sm_90a", "sm_100a"}) {
    const Runs runs{arch, *compiler, Softcap::tanh};
    runs.all();
    const Fmha plain = runs.problem(64, Mask::causal);
    // Scales that no exponent could have folded, and caps that bend nothing or nearly all.
    for (const double scale : {-0.3, 0.0, 40.0}) runs.check(plain, {1, 2, 1, 70, 129}, {.softmax_scale = scale});
    for (const double cap : {1e4, 0.5}) runs.check(plain, {1, 2, 1, 70, 129}, {.softcap = cap});
  }
}

TEST_CASE("attention: scores lowered by distance") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : {"sm_90a", "sm_100a"}) {
    const Runs runs{arch, *compiler, Softcap::none, Alibi::per_head};
    runs.all();
    runs.check(runs.problem(64, Mask::none), {1, 2, 1, 70, 129}, {.softmax_scale = -0.3});
    const Runs both{arch, *compiler, Softcap::tanh, Alibi::per_head};
    both.check(both.problem(128, Mask::causal), {1, 4, 2, 130, 300});
    const Runs in_window{arch, *compiler, Softcap::none, Alibi::per_head, Window::sliding};
    in_window.check(in_window.problem(64, Mask::none), {1, 2, 1, 70, 300},
                    {.window_size_left = 100, .window_size_right = 20});
  }
}

TEST_CASE("attention: keys in chunks") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : {"sm_90a", "sm_100a"}) {
    const Runs runs{arch, *compiler, Softcap::none, Alibi::none, Window::chunked};
    runs.all();
    for (const std::int64_t chunk : {1, 64, 128, 129, 2000000000})
      runs.check(runs.problem(64, Mask::causal), {1, 2, 1, 150, 300}, {.attention_chunk = chunk});
  }
}

}  // namespace
}  // namespace tessera::fmha_scores_test
