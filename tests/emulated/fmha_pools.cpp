// Attention on tcgen05 over two pools of keys, rows by a list and a window, in the emulator against float64.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"

namespace tessera {
namespace {

using emulator::Schedule;
using testing::find_compiler;

void check(const Fmha& problem, const reference::FmhaSizes& sizes, const testing::FmhaLaunchFacts& facts,
           Compiler& compiler) {
  testing::check_runs(problem, sizes, compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
}

Fmha problem_of(int head_dim, int heads, Mask mask) {
  Fmha problem;
  problem.arch = Arch::parse("sm_100a");
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.pack_gqa = heads;
  problem.kv_pools = KvPools::sparse_window;
  return problem;
}

TEST_CASE("attention on tcgen05: listed rows and a window in one softmax, with a sink") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  // As models have it: 128 heads of 512, a thousand listed rows, 128 keys of the window.
  check(problem_of(512, 128, Mask::causal), {1, 128, 1, 2, 3000, 512}, {.topk = 1024, .seqlen_swa = 128}, *compiler);
  check(problem_of(512, 64, Mask::none), {2, 64, 1, 3, 500, 512}, {.topk = 200, .seqlen_swa = 77}, *compiler);
  for (const Mask mask : {Mask::none, Mask::causal}) {
    check(problem_of(128, 128, mask), {2, 128, 1, 3, 500, 128}, {.topk = 130, .seqlen_swa = 3}, *compiler);
    check(problem_of(64, 10, mask), {3, 10, 1, 4, 90, 64}, {.topk = 60, .seqlen_swa = 300}, *compiler);
    check(problem_of(64, 256, mask), {1, 256, 1, 2, 300, 64}, {.topk = 129, .seqlen_swa = 20}, *compiler);
  }
  Fmha half = problem_of(256, 16, Mask::causal);
  half.dtype = DType::f16;
  check(half, {2, 16, 1, 3, 300, 256}, {.topk = 100, .seqlen_swa = 100}, *compiler);
  Fmha narrow = problem_of(64, 32, Mask::none);
  narrow.swizzle = Swizzle::b32;
  check(narrow, {1, 32, 1, 3, 300, 64}, {.topk = 140, .seqlen_swa = 100}, *compiler);
}

TEST_CASE("attention on tcgen05: pools with any number of heads") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  // Halves of a pair with a row less than they have room for, one without a row, parts of a query in several tiles.
  for (const int heads : {96, 80, 129, 1}) {
    const Mask mask = heads % 2 == 0 ? Mask::none : Mask::causal;
    check(problem_of(512, heads, mask), {2, heads, 1, 2, 200, 512}, {.topk = 100, .seqlen_swa = 40}, *compiler);
  }
  for (const int heads : {1, 7, 130, 300})
    check(problem_of(64, heads, Mask::causal), {2, heads, 1, 3, 200, 64}, {.topk = 140, .seqlen_swa = 40}, *compiler);
  Fmha pair = problem_of(256, 33, Mask::causal);
  pair.cta_group = 2;
  check(pair, {1, 33, 1, 3, 200, 256}, {.topk = 140, .seqlen_swa = 40}, *compiler);
}

TEST_CASE("attention on tcgen05: pools that are empty, and sinks beyond all scores") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Fmha problem = problem_of(64, 16, Mask::none);
  check(problem, {2, 16, 1, 3, 200, 64}, {.topk = 0, .seqlen_swa = 150}, *compiler);
  check(problem, {2, 16, 1, 3, 200, 64}, {.topk = 150, .seqlen_swa = 0}, *compiler);
  check(problem, {1, 16, 1, 3, 0, 64}, {.topk = 50, .seqlen_swa = 0}, *compiler);
  check(problem, {1, 16, 1, 3, 0, 64}, {.topk = 0, .seqlen_swa = 0}, *compiler);
  check(problem, {1, 16, 1, 0, 10, 64}, {.topk = 5, .seqlen_swa = 5}, *compiler);
  check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .has_sink = false}, *compiler);
  check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .sink = -1e30}, *compiler);
  check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .sink = 9.5}, *compiler);
}

}  // namespace
}  // namespace tessera
