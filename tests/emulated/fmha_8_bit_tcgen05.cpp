// Attention over e4m3 q, k and v on tcgen05: products of kind::f8f6f4 whose V is MN-major, P in e4m3. Every head_dim
// and tile, either type of o, descales of all kinds, both ways of P, pairs of CTAs; masks, windows, used lengths,
// packed heads, ragged queries and keys, pages, split keys, sinks, altered scores.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_8_bit_tcgen05_test {
namespace {

using emulator::Schedule;
using Descales = testing::FmhaLaunchFacts::Descales;
using PoolLayout = testing::FmhaLaunchFacts::PoolLayout;

Fmha of_e4m3(int head_dim, int turn) {
  Fmha problem;
  problem.arch = Arch::parse(turn % 2 == 0 ? "sm_100a" : "sm_103a");
  problem.head_dim = head_dim;
  problem.dtype = DType::e4m3;
  if (turn % 3 == 0) problem.o_dtype = DType::f16;
  return problem;
}

TEST_CASE("e4m3 attention on tcgen05: every head_dim and tile, either type of o, dense") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  struct Kind {
    int head_dim, head_dim_v, tile_m, cta_group;
  };
  constexpr Kind kKinds[] = {{128, 128, 256, 1}, {64, 64, 256, 1},   {192, 128, 256, 1}, {192, 192, 256, 1},
                             {256, 256, 128, 1}, {64, 64, 128, 1},   {128, 128, 128, 1}, {192, 128, 128, 1},
                             {192, 192, 128, 1}, {128, 128, 512, 2}, {256, 256, 256, 2}};
  int turn = 0;
  for (const Kind& kind : kKinds)
    for (const Output output : {Output::normalized, Output::unnormalized}) {
      ++turn;
      Fmha problem = of_e4m3(kind.head_dim, turn);
      problem.head_dim_v = kind.head_dim_v;
      problem.tile_m = kind.tile_m;
      problem.cta_group = kind.cta_group;
      problem.mask = turn % 4 < 2 ? Mask::causal : Mask::none;
      problem.output = output;
      if (turn % 3 == 1) problem.p_path = ProbabilityPath::smem, problem.stages = 2;
      testing::check_runs(
          problem, {1, 2, 1, turn % 2 == 0 ? 150 : 260, 330, kind.head_dim, kind.head_dim_v}, *compiler,
          {Schedule::adversarial}, 1,
          {.descales = static_cast<Descales>((turn + 1) % 3), .input_seed = static_cast<std::uint64_t>(turn)});
    }
}

TEST_CASE("e4m3 attention on tcgen05: every swizzle and width of a step, both ways of P") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128})
    for (const int tile_n : {32, 64, 96, 128})
      for (const ProbabilityPath p_path : {ProbabilityPath::tmem, ProbabilityPath::smem}) {
        Fmha problem = of_e4m3(128, tile_n / 32);
        problem.swizzle = swizzle;
        problem.tile_m = 128;
        problem.tile_n = tile_n;
        problem.p_path = p_path;
        testing::check_runs(problem, {1, 1, 1, 60, 300, 128}, *compiler, {Schedule::adversarial}, 1,
                            {.input_seed = static_cast<std::uint64_t>(tile_n)});
      }
}

TEST_CASE("e4m3 attention on tcgen05: decode, dense and paged, with descales of each head") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : {16, 0, 1, 64})
    for (const SplitKv split : {SplitKv::on, SplitKv::off})
      for (const int head_dim : {64, 128}) {
        ++turn;
        Fmha problem = of_e4m3(head_dim, turn);
        problem.mask = Mask::causal;
        problem.split_kv = split;
        problem.pack_gqa = turn % 3 == 0 ? 3 : 4;
        problem.tile_m = 128;
        problem.seqused = UsedLengths::k;
        problem.sink = turn % 2 == 0 ? Sink::per_head : Sink::none;
        if (page_size > 0) {
          problem.kv_layout = KvLayout::paged;
          problem.page_size = page_size;
        }
        testing::FmhaLaunchFacts facts;
        facts.seqused_k = {300, 131, 0};
        facts.descales = turn % 5 == 0 ? Descales::one : Descales::each;
        if (split == SplitKv::on) facts.num_splits = 3;
        facts.has_foreign_pages = turn % 3 == 0;
        facts.pool_layout = static_cast<PoolLayout>(turn % 3);
        testing::check_runs(problem, {3, 2 * *problem.pack_gqa, 2, 3, 320, head_dim}, *compiler,
                            {Schedule::adversarial}, 1, facts);
      }
}

TEST_CASE("e4m3 attention on tcgen05: windows, lengths of their own, ragged queries and keys, altered scores") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = of_e4m3(128, 0);
  problem.window = Window::sliding;
  problem.seqused = UsedLengths::qk;
  testing::check_runs(problem, {3, 2, 1, 90, 300, 128}, *compiler, {Schedule::adversarial}, 1,
                      {.window_size_left = 70,
                       .window_size_right = 5,
                       .seqused_q = {90, 0, 41},
                       .seqused_k = {300, 17, 161},
                       .descales = Descales::each});
  problem = of_e4m3(64, 1);
  problem.q_layout = QueryLayout::ragged;
  problem.kv_layout = KvLayout::ragged;
  problem.mask = Mask::causal;
  testing::check_runs(problem, {4, 2, 1, 200, 300, 64}, *compiler, {Schedule::lazy}, 1,
                      {.seqused_k = {176, 0, 1, 177}, .query_lengths = {70, 3, 0, 120}, .descales = Descales::each});
  problem = of_e4m3(128, 2);
  problem.softcap = Softcap::tanh;
  problem.alibi = Alibi::per_head;
  testing::check_runs(problem, {1, 2, 1, 40, 300, 128}, *compiler, {Schedule::adversarial}, 1,
                      {.descales = Descales::each});
  problem = of_e4m3(64, 3);
  problem.tree_mask = TreeMask::bits;
  testing::check_runs(problem, {2, 2, 1, 40, 200, 64}, *compiler, {Schedule::adversarial}, 1);
  // No key at all, for any query.
  testing::check_runs(of_e4m3(64, 4), {2, 2, 1, 20, 0, 64}, *compiler, {Schedule::adversarial}, 1);
}

}  // namespace
}  // namespace tessera::fmha_8_bit_tcgen05_test
