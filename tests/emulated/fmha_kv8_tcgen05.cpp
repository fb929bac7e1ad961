// Attention of 16-bit queries over e4m3 keys and values on tcgen05: what fmha_kv8.cpp asks of sm_90a, of kernels that
// widen into the slots of the tensor core's products.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_kv8_tcgen05_test {
namespace {

using emulator::Schedule;
using Descales = testing::FmhaLaunchFacts::Descales;
using PoolLayout = testing::FmhaLaunchFacts::PoolLayout;

Fmha over_e4m3(int head_dim, int turn) {
  Fmha problem;
  problem.arch = Arch::parse(turn % 2 == 0 ? "sm_100a" : "sm_103a");
  problem.head_dim = head_dim;
  problem.dtype = turn % 3 == 0 ? DType::f16 : DType::bf16;
  problem.kv_dtype = DType::e4m3;
  return problem;
}

TEST_CASE("e4m3 keys on tcgen05: every head_dim and tile, either type of queries, dense") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[][2] = {{128, 128}, {16, 16},   {32, 32},   {64, 64},   {80, 80},
                                  {96, 96},   {160, 160}, {192, 128}, {192, 192}, {256, 256}};
  int turn = 0;
  for (const auto& dims : kHeadDims)
    for (const int tile_m : {256, 128}) {
      ++turn;
      if (tile_m == 256 && dims[0] == 256) continue;
      Fmha problem = over_e4m3(dims[0], turn);
      problem.head_dim_v = dims[1];
      problem.tile_m = tile_m;
      problem.mask = turn % 4 < 2 ? Mask::causal : Mask::none;
      problem.output = turn % 5 == 0 ? Output::unnormalized : Output::normalized;
      if (turn % 3 == 1) problem.p_path = ProbabilityPath::smem;
      testing::check_runs(
          problem, {1, 2, 1, turn % 2 == 0 ? 150 : 260, 330, dims[0], dims[1]}, *compiler, {Schedule::adversarial}, 1,
          {.descales = static_cast<Descales>((turn + 1) % 3), .input_seed = static_cast<std::uint64_t>(turn)});
    }
}

TEST_CASE("e4m3 keys on tcgen05: decode, dense and paged, with descales of each head") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : {16, 0, 1, 64})
    for (const SplitKv split : {SplitKv::on, SplitKv::off})
      for (const int head_dim : {64, 128}) {
        ++turn;
        Fmha problem = over_e4m3(head_dim, turn);
        problem.mask = Mask::causal;
        problem.split_kv = split;
        problem.pack_gqa = turn % 3 == 0 ? 3 : 4;
        problem.tile_m = 128;
        problem.tile_n = turn % 2 == 0 ? 64 : 128;
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
                            {Schedule::lazy, Schedule::adversarial}, 1, facts);
      }
}

TEST_CASE("e4m3 keys on tcgen05: windows, queries and keys of their own lengths, ragged queries and keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = over_e4m3(128, 0);
  problem.window = Window::sliding;
  problem.seqused = UsedLengths::qk;
  problem.swizzle = Swizzle::b64;
  testing::check_runs(problem, {3, 2, 1, 90, 300, 128}, *compiler, {Schedule::adversarial}, 1,
                      {.window_size_left = 70,
                       .window_size_right = 5,
                       .seqused_q = {90, 0, 41},
                       .seqused_k = {300, 17, 161},
                       .descales = Descales::each});
  problem = over_e4m3(64, 1);
  problem.q_layout = QueryLayout::ragged;
  problem.kv_layout = KvLayout::ragged;
  problem.mask = Mask::causal;
  problem.swizzle = Swizzle::none;
  testing::check_runs(problem, {4, 2, 1, 200, 300, 64}, *compiler, {Schedule::lazy}, 1,
                      {.seqused_k = {176, 0, 1, 177}, .query_lengths = {70, 3, 0, 120}, .descales = Descales::each});
  // No key at all, for any query.
  testing::check_runs(over_e4m3(64, 2), {2, 2, 1, 20, 0, 64}, *compiler, {Schedule::adversarial}, 1,
                      {.descales = Descales::each});
}

TEST_CASE("e4m3 keys on tcgen05: scores that are capped or lowered, and trees") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int head_dim : {64, 128, 80})
    for (const int kind : {2, 0, 1, 3}) {
      ++turn;
      Fmha problem = over_e4m3(head_dim, turn);
      problem.softcap = kind == 0 || kind == 2 ? Softcap::tanh : Softcap::none;
      problem.alibi = kind == 1 || kind == 2 ? Alibi::per_head : Alibi::none;
      problem.tree_mask = kind == 3 ? TreeMask::bits : TreeMask::none;
      problem.mask = kind == 1 ? Mask::causal : Mask::none;
      problem.pack_gqa = turn % 2 == 0 ? 2 : 1;
      testing::FmhaLaunchFacts facts;
      facts.input_seed = static_cast<std::uint64_t>(turn);
      facts.descales = turn % 2 == 0 ? Descales::one : Descales::each;
      if (turn % 4 != 0) {
        problem.kv_layout = KvLayout::paged;
        problem.page_size = turn % 4 == 1 ? 16 : 64;
        problem.seqused = UsedLengths::k;
        facts.seqused_k = {300, 97};
      }
      if (kind == 0) facts.softcap = 8;
      testing::check_runs(problem, {2, 4, 2, 40, 300, head_dim}, *compiler, {Schedule::adversarial}, 1, facts);
    }
}

}  // namespace
}  // namespace tessera::fmha_kv8_tcgen05_test
