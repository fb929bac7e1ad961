// Attention over two pools of keys, rows by a list and a window, in the emulator against float64: of every family.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"
#include "tests/support/sample.h"

namespace tessera::fmha_pools_test {
namespace {

using emulator::Schedule;
using testing::find_compiler;

constexpr const char* kArchs[] = {"sm_90a", "sm_100a"};

void check(const Fmha& problem, const reference::FmhaSizes& sizes, const testing::FmhaLaunchFacts& facts,
           Compiler& compiler) {
  testing::check_runs(problem, sizes, compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
}

Fmha problem_of(const char* arch, int head_dim, int heads, Mask mask) {
  Fmha problem;
  problem.arch = Arch::parse(arch);
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.pack_gqa = heads;
  problem.kv_pools = KvPools::sparse_window;
  return problem;
}

TEST_CASE("attention over pools: listed rows and a window in one softmax, with a sink") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : kArchs) {
    for (const Mask mask : {Mask::none, Mask::causal}) {
      check(problem_of(arch, 128, 128, mask), {2, 128, 1, 1, 500, 128}, {.topk = 130, .seqlen_swa = 3}, *compiler);
      check(problem_of(arch, 64, 10, mask), {3, 10, 1, 4, 90, 64}, {.topk = 60, .seqlen_swa = 300}, *compiler);
      check(problem_of(arch, 64, 256, mask), {1, 256, 1, 2, 300, 64}, {.topk = 129, .seqlen_swa = 20}, *compiler);
    }
    // As models have it: 128 heads of 512, a thousand listed rows, 128 keys of the window.
    check(problem_of(arch, 512, 128, Mask::causal), {1, 128, 1, 2, 3000, 512}, {.topk = 1024, .seqlen_swa = 128},
          *compiler);
    Fmha narrow = problem_of(arch, 64, 32, Mask::none);
    narrow.swizzle = Swizzle::b32;
    check(narrow, {1, 32, 1, 3, 300, 64}, {.topk = 140, .seqlen_swa = 100}, *compiler);
    check(problem_of(arch, 512, 64, Mask::causal), {1, 64, 1, 2, 500, 512}, {.topk = 50, .seqlen_swa = 30}, *compiler);
    Fmha half = problem_of(arch, 256, 16, Mask::causal);
    half.dtype = DType::f16;
    check(half, {2, 16, 1, 3, 300, 256}, {.topk = 100, .seqlen_swa = 100}, *compiler);
  }
}

TEST_CASE("attention over pools: any number of heads") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : kArchs) {
    for (const int heads : {1, 7, 130, 300})
      check(problem_of(arch, 64, heads, Mask::causal), {2, heads, 1, 3, 200, 64}, {.topk = 140, .seqlen_swa = 40},
            *compiler);
    // Halves of a pair with a row less than they have room for, one without a row, parts of a query in several tiles.
    for (const int heads : {96, 80, 129, 1}) {
      const Mask mask = heads % 2 == 0 ? Mask::none : Mask::causal;
      check(problem_of(arch, 512, heads, mask), {2, heads, 1, 1, 200, 512}, {.topk = 60, .seqlen_swa = 40}, *compiler);
    }
  }
  Fmha pair = problem_of("sm_100a", 256, 33, Mask::causal);
  pair.cta_group = 2;
  check(pair, {1, 33, 1, 3, 200, 256}, {.topk = 140, .seqlen_swa = 40}, *compiler);
}

TEST_CASE("attention over pools: pools that are empty, and sinks beyond all scores") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const arch : kArchs) {
    const Fmha problem = problem_of(arch, 64, 16, Mask::none);
    check(problem, {2, 16, 1, 3, 200, 64}, {.topk = 0, .seqlen_swa = 150}, *compiler);
    check(problem, {2, 16, 1, 3, 200, 64}, {.topk = 150, .seqlen_swa = 0}, *compiler);
    check(problem, {1, 16, 1, 3, 0, 64}, {.topk = 50, .seqlen_swa = 0}, *compiler);
    check(problem, {1, 16, 1, 3, 0, 64}, {.topk = 0, .seqlen_swa = 0}, *compiler);
    check(problem, {1, 16, 1, 0, 10, 64}, {.topk = 5, .seqlen_swa = 5}, *compiler);
    check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .has_sink = false}, *compiler);
    check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .sink = -1e30}, *compiler);
    check(problem, {1, 16, 1, 2, 200, 64}, {.topk = 100, .seqlen_swa = 50, .sink = 9.5}, *compiler);
  }
}

TEST_CASE("attention over pools on sm_90a: tiles, padded heads, scales that are not folded") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  // Blocks whose last word of bits is partly used, three warpgroups, one slot for K and V, columns behind the head's.
  Fmha three = problem_of("sm_90a", 64, 150, Mask::causal);
  three.tile_m = 192;
  three.tile_n = 80;
  check(three, {1, 150, 1, 3, 300, 64}, {.topk = 90, .seqlen_swa = 60}, *compiler);
  Fmha one_slot = problem_of("sm_90a", 128, 96, Mask::none);
  one_slot.tile_n = 176;
  one_slot.stages = 1;
  check(one_slot, {2, 96, 1, 2, 400, 128}, {.softmax_scale = -0.125, .topk = 150, .seqlen_swa = 70}, *compiler);
  check(problem_of("sm_90a", 72, 20, Mask::causal), {2, 20, 1, 4, 200, 72}, {.topk = 70, .seqlen_swa = 130}, *compiler);
  Fmha plain = problem_of("sm_90a", 16, 65, Mask::none);
  plain.swizzle = Swizzle::none;
  check(plain, {1, 65, 1, 2, 100, 16}, {.topk = 40, .seqlen_swa = 33}, *compiler);
}

TEST_CASE("attention over pools by mma.sync: types, head_dims, numbers of heads, tiles, empty pools, any scale") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  testing::Sample sample(6);
  std::uint64_t seed = 1;
  const auto check_mma = [&](Fmha problem, reference::FmhaSizes sizes, const testing::FmhaLaunchFacts& facts) {
    problem.arch = Arch::parse(++seed % 4 == 0 ? "sm_90a" : "sm_120a");
    if (problem.arch.number == 90) problem.mma_kind = MmaKind::mma_f16;
    if (sample.takes())
      testing::check_runs(problem, sizes, *compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
  };
  const testing::FmhaLaunchFacts kPools[] = {
      {.topk = 130, .seqlen_swa = 30}, {.topk = 0, .seqlen_swa = 150},
      {.topk = 150, .seqlen_swa = 0},  {.topk = 0, .seqlen_swa = 0},
      {.topk = 60, .seqlen_swa = 200}, {.softmax_scale = -0.125, .topk = 70, .seqlen_swa = 40}};
  for (const int head_dim : {128, 16, 32, 64, 72, 80, 96, 160, 192, 256})
    for (const int heads : {16, 1, 10, 65, 130, 256}) {
      const auto& facts = kPools[seed % std::size(kPools)];
      Fmha problem = problem_of("sm_120a", head_dim, heads, seed % 2 == 0 ? Mask::none : Mask::causal);
      if (seed % 3 == 0) problem.dtype = DType::f16;
      if (seed % 3 == 1) problem.tile_m = head_dim <= 128 && seed % 2 == 0 ? 256 : 64;
      if (seed % 5 == 2 && head_dim <= 128) problem.tile_n = 48;
      check_mma(problem, {2, heads, 1, 3, facts.topk > 0 ? 200 : 0, head_dim}, facts);
    }
}

}  // namespace
}  // namespace tessera::fmha_pools_test
