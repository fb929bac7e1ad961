// Attention over keys that do not lie dense: pages of every size, of pools in every layout, whose unused parts
// are NaN, behind tables whose entries may be none of the pool.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_paged_test {
namespace {

using emulator::Schedule;
using PoolLayout = testing::FmhaLaunchFacts::PoolLayout;

Fmha paged(int page_size, int head_dim = 64) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.kv_layout = KvLayout::paged;
  problem.page_size = page_size;
  problem.seqused = UsedLengths::k;
  problem.tile_m = 64;
  return problem;
}

TEST_CASE("paged keys: every size of a page, loaded either way") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const int page_size : kPageSizes)
    for (const KvCopy copy : {KvCopy::tma, KvCopy::cp_async}) {
      if (copy == KvCopy::tma && page_size < 8) continue;
      Fmha problem = paged(page_size);
      problem.kv_copy = copy;
      // A sequence that ends with a page and a block, one that is a key longer, an empty one, one of a key.
      testing::check_runs(problem, {4, 2, 1, 5, 384, 64}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                          {.seqused_k = {256, 257, 0, 1}});
    }
}

TEST_CASE("paged keys: pools by strides, entries that are no page, lengths beyond the table") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const auto& [page_size, copy] :
       {std::pair(64, KvCopy::tma), std::pair(16, KvCopy::tma), std::pair(1, KvCopy::cp_async)})
    for (const PoolLayout layout : {PoolLayout::token_major, PoolLayout::head_major, PoolLayout::one_pool})
      for (const bool has_foreign_pages : {false, true}) {
        Fmha problem = paged(page_size);
        problem.kv_copy = copy;
        problem.pack_gqa = 2;
        testing::check_runs(
            problem, {3, 4, 2, 9, 200, 64}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
            {.seqused_k = {200, 1000000, 77}, .pool_layout = layout, .has_foreign_pages = has_foreign_pages});
      }
  // No page at all: nothing may be loaded through a map of nothing.
  testing::check_runs(paged(16), {2, 2, 1, 5, 40, 64}, *compiler, {Schedule::fair}, 1,
                      {.seqused_k = {0, 0}, .spare_pages = 0});
}

TEST_CASE("paged keys: every head_dim, beside masks, windows, packed heads, queries of their own and split keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}, {512, 512}};
  int turn = 0;
  for (const auto& dims : kHeadDims)
    for (const int page_size : {1, 8, 32, 128}) {
      ++turn;
      Fmha problem = paged(page_size, dims[0]);
      problem.head_dim_v = dims[1];
      problem.mask = turn % 2 == 0 ? Mask::causal : Mask::none;
      problem.window = turn % 3 == 0 ? Window::sliding : Window::none;
      problem.output = turn % 5 == 0 ? Output::unnormalized : Output::normalized;
      problem.split_kv = static_cast<SplitKv>(turn % 3);
      problem.pack_gqa = turn % 3 == 1 ? 4 : 1;
      if (turn % 2 == 0) problem.seqused = UsedLengths::qk;
      if (turn % 7 == 0) problem.tile_m.reset();
      testing::FmhaLaunchFacts facts;
      facts.input_seed = static_cast<std::uint64_t>(turn);
      facts.seqused_k = {300, 131, 0};
      if (problem.seqused == UsedLengths::qk) facts.seqused_q = {40, 0, 33};
      if (problem.window == Window::sliding) facts.window_size_left = 100, facts.window_size_right = 7;
      if (problem.split_kv == SplitKv::on) facts.num_splits = 3;
      facts.has_foreign_pages = turn % 6 == 0;
      testing::check_runs(problem, {3, 4, 1, 40, 300, dims[0], dims[1]}, *compiler,
                          {Schedule::lazy, Schedule::adversarial}, 1, facts);
    }
}

TEST_CASE("paged keys: one slot for two warpgroups that take turns") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = paged(16);
  problem.mask = Mask::causal;
  problem.tile_m = 128;
  problem.stages = 1;
  testing::check_runs(problem, {2, 2, 1, 150, 260, 64}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                      {.seqused_k = {260, 150}});
}

TEST_CASE("paged keys and ragged keys on tcgen05") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : kPageSizes)
    for (const KvCopy copy : {KvCopy::tma, KvCopy::cp_async}) {
      if (copy == KvCopy::tma && page_size < 8) continue;
      ++turn;
      Fmha problem = paged(page_size, turn % 4 == 0 ? 128 : 64);
      problem.arch = Arch::parse("sm_100a");
      problem.tile_m.reset();
      problem.kv_copy = copy;
      problem.mask = turn % 2 == 0 ? Mask::causal : Mask::none;
      problem.window = turn % 3 == 0 ? Window::sliding : Window::none;
      problem.split_kv = turn % 4 < 2 ? SplitKv::on : SplitKv::off;
      problem.pack_gqa = turn % 3 == 1 ? 4 : 1;
      if (turn % 5 == 0) problem.seqused = UsedLengths::qk;
      testing::FmhaLaunchFacts facts;
      facts.input_seed = static_cast<std::uint64_t>(turn);
      facts.seqused_k = {256, 131, 0, 257};
      if (problem.seqused == UsedLengths::qk) facts.seqused_q = {40, 0, 33, 12};
      if (problem.window == Window::sliding) facts.window_size_left = 100, facts.window_size_right = 7;
      if (problem.split_kv == SplitKv::on) facts.num_splits = 3;
      facts.has_foreign_pages = turn % 4 == 3;
      facts.pool_layout = static_cast<PoolLayout>(turn % 3);
      testing::check_runs(problem, {4, 4, 1, 40, 300, problem.head_dim}, *compiler,
                          {Schedule::lazy, Schedule::adversarial}, 1, facts);
    }
  for (const int head_dim : {192, 256}) {
    Fmha problem = paged(32, head_dim);
    problem.arch = Arch::parse("sm_103a");
    problem.tile_m.reset();
    if (head_dim == 192) problem.head_dim_v = 128;
    testing::check_runs(problem, {2, 2, 1, 140, 300, head_dim, problem.head_dim_v.value_or(head_dim)}, *compiler,
                        {Schedule::lazy}, 1, {.seqused_k = {300, 99}});
  }
  for (const KvCopy copy : {KvCopy::tma, KvCopy::cp_async}) {
    Fmha problem = paged(0);
    problem.arch = Arch::parse("sm_100a");
    problem.tile_m.reset();
    problem.kv_layout = KvLayout::ragged;
    problem.page_size.reset();
    problem.seqused = UsedLengths::none;
    problem.kv_copy = copy;
    problem.mask = Mask::causal;
    testing::check_runs(problem, {5, 2, 1, 70, 400, 64}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                        {.seqused_k = {128, 0, 1, 129, 400}});
  }
}

TEST_CASE("ragged keys: no sequence sees another's, whatever is there") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const KvCopy copy : {KvCopy::tma, KvCopy::cp_async})
    for (const Mask mask : {Mask::none, Mask::causal}) {
      Fmha problem = paged(0);
      problem.kv_layout = KvLayout::ragged;
      problem.page_size.reset();
      problem.seqused = UsedLengths::none;
      problem.kv_copy = copy;
      problem.mask = mask;
      testing::check_runs(problem, {5, 2, 1, 70, 400, 64}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                          {.seqused_k = {176, 0, 1, 177, 400}});
      problem.seqused = UsedLengths::k;
      problem.split_kv = SplitKv::on;
      testing::check_runs(problem, {3, 2, 1, 70, 400, 64}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                          {.num_splits = 2, .seqused_k = {176, 0, 250}});
    }
}

}  // namespace
}  // namespace tessera::fmha_paged_test
