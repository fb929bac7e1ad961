// Attention on wgmma with packed heads that are neither a divisor of 64 nor one of its multiples, and with more than
// 64, in the emulator against float64. Divisors: fmha.cpp, fmha_split.cpp, fmha_hopper.cpp.
#include <doctest/doctest.h>

#include <numeric>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_groups_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;

constexpr auto kTwo = {Schedule::lazy, Schedule::adversarial};

Fmha problem_of(int head_dim, Mask mask, int pack_gqa) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.pack_gqa = pack_gqa;
  return problem;
}

class Checker {
 public:
  void operator()(const Fmha& problem, reference::FmhaSizes sizes, const testing::FmhaLaunchFacts& facts = {}) const {
    if (!compiler_) return;
    sizes.head_dim = problem.head_dim;
    sizes.head_dim_v = problem.head_dim_v.value_or(problem.head_dim);
    check_runs(problem, sizes, *compiler_, kTwo, 1, facts);
  }

 private:
  std::unique_ptr<Compiler> compiler_ = find_compiler();
};

TEST_CASE("attention on wgmma: any number of heads packed into the rows of a tile") {
  const Checker check;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    check(problem_of(64, mask, 3), {2, 6, 2, 100, 300});  // tiles that begin within a query
    check(problem_of(128, mask, 5), {3, 10, 2, 1, 200});  // one query
    check(problem_of(64, mask, 12), {1, 24, 2, 30, 150});
    check(problem_of(64, mask, 100), {1, 100, 1, 5, 200});  // a query in two warpgroups, or in two tiles
    check(problem_of(64, mask, 128), {2, 128, 1, 5, 200});  // and in whole ones
    check(problem_of(512, mask, 7), {1, 7, 1, 30, 100});    // a pair of CTAs, half of the columns each
    check(problem_of(512, mask, 128), {1, 128, 1, 2, 100});
  }
  check(problem_of(72, Mask::causal, 6), {2, 12, 2, 20, 130});  // a row that zeros follow
  Fmha other = problem_of(64, Mask::causal, 5);
  other.dtype = DType::f16;
  other.output = Output::unnormalized;
  other.window = Window::sliding;
  check(other, {2, 10, 2, 60, 200}, {.window_size_left = 90, .window_size_right = 0});
  other.pack_gqa = 128;
  check(other, {1, 128, 1, 4, 200}, {.window_size_left = 90, .window_size_right = 0});
}

TEST_CASE("attention on wgmma: any number of packed heads over split keys and lengths in memory") {
  const Checker check;
  Fmha split = problem_of(64, Mask::causal, 7);
  split.split_kv = SplitKv::on;
  split.seqused = UsedLengths::qk;
  split.sink = Sink::per_head;
  split.alibi = Alibi::per_head;
  check(split, {3, 14, 2, 20, 600}, {.num_splits = 3, .seqused_q = {20, 0, 3}, .seqused_k = {600, 200, 1}});
  split.pack_gqa = 128;
  check(split, {3, 128, 1, 2, 600}, {.num_splits = 3, .seqused_q = {2, 0, 1}, .seqused_k = {600, 200, 1}});
  for (const int heads : {6, 128}) {
    Fmha dealt = problem_of(64, Mask::none, heads);
    dealt.tile_m = 64;
    dealt.tile_n = 64;
    dealt.split_kv = SplitKv::dealt;
    dealt.seqused = UsedLengths::k;
    dealt.sink = Sink::per_head;
    check(dealt, {4, heads, 1, 2, 600}, {.seqused_k = {600, 65, 0, 301}, .num_sms = 3});
  }
  Fmha tree = problem_of(64, Mask::none, 3);
  tree.tree_mask = TreeMask::bits;
  check(tree, {2, 6, 2, 20, 200});
}

TEST_CASE("attention on wgmma: any number of packed heads over keys in places and of 8 bits") {
  const Checker check;
  for (const int heads : {5, 128}) {
    Fmha paged = problem_of(128, Mask::causal, heads);
    paged.kv_layout = KvLayout::paged;
    paged.page_size = 16;
    paged.seqused = UsedLengths::k;
    check(paged, {3, heads, 1, 3, 300}, {.seqused_k = {300, 17, 0}});
    paged.page_size = 1;  // no tensor map of anything but Q
    paged.split_kv = SplitKv::dealt;
    check(paged, {3, heads, 1, 3, 300}, {.seqused_k = {300, 17, 0}, .num_sms = 3});
    paged.kv_dtype = DType::e4m3;
    paged.split_kv = SplitKv::off;
    check(paged, {3, heads, 1, 3, 300}, {.seqused_k = {300, 17, 0}});
    Fmha widened = problem_of(64, Mask::causal, heads);
    widened.kv_dtype = DType::e4m3;
    check(widened, {2, heads, 1, 30, 200});
  }
}

TEST_CASE("attention on wgmma: any number of packed heads over ragged queries") {
  const Checker check;
  for (const int heads : {7, 128}) {
    const std::vector<std::int64_t> queries{33, 1, 0, 20};
    const std::int64_t all = std::accumulate(queries.begin(), queries.end(), std::int64_t{9});
    Fmha ragged = problem_of(64, Mask::causal, heads);
    ragged.q_layout = QueryLayout::ragged;
    ragged.seqused = UsedLengths::k;
    ragged.tile_m = 128;
    const testing::FmhaLaunchFacts facts{.seqused_k = {300, 20, 7, 150}, .query_lengths = queries, .num_sms = 3};
    check(ragged, {4, heads, 1, all, 300}, facts);
    ragged.split_kv = SplitKv::dealt;
    check(ragged, {4, heads, 1, all, 300}, facts);
    ragged.kv_layout = KvLayout::paged;
    ragged.page_size = 64;
    check(ragged, {4, heads, 1, all, 300}, facts);
  }
}

}  // namespace
}  // namespace tessera::fmha_groups_test
