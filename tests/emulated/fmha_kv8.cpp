// Attention of 16-bit queries over e4m3 keys and values: every code widened exactly, with and without descales, dense
// and paged, beside masks, windows, used lengths, packed heads, ragged queries and split keys.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_kv8_test {
namespace {

using emulator::Schedule;
using Descales = testing::FmhaLaunchFacts::Descales;
using PoolLayout = testing::FmhaLaunchFacts::PoolLayout;

Fmha over_e4m3(int head_dim, DType dtype = DType::bf16) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.dtype = dtype;
  problem.kv_dtype = DType::e4m3;
  return problem;
}

TEST_CASE("e4m3 keys: every head_dim, either type of queries, dense") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}};
  int turn = 0;
  for (const auto& dims : kHeadDims)
    for (const DType dtype : {DType::bf16, DType::f16}) {
      ++turn;
      Fmha problem = over_e4m3(dims[0], dtype);
      problem.head_dim_v = dims[1];
      problem.mask = turn % 2 == 0 ? Mask::causal : Mask::none;
      problem.output = turn % 5 == 0 ? Output::unnormalized : Output::normalized;
      testing::check_runs(
          problem, {2, 4, 2, 150, 260, dims[0], dims[1]}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
          {.descales = static_cast<Descales>(turn % 3), .input_seed = static_cast<std::uint64_t>(turn)});
    }
}

TEST_CASE("e4m3 keys: decode, dense and paged, with descales of each head") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : {0, 1, 16, 64})
    for (const SplitKv split : {SplitKv::on, SplitKv::dealt})
      for (const int head_dim : {64, 128}) {
        ++turn;
        Fmha problem = over_e4m3(head_dim, turn % 4 == 0 ? DType::f16 : DType::bf16);
        problem.mask = Mask::causal;
        problem.split_kv = split;
        problem.pack_gqa = 4;
        problem.tile_m = 64;
        problem.tile_n = 64;
        problem.stages = turn % 3 == 0 ? 2 : 1;
        problem.seqused = UsedLengths::k;
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
        testing::check_runs(problem, {3, 8, 2, 3, 320, head_dim}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                            facts);
      }
}

TEST_CASE("e4m3 keys: windows, queries and keys of their own lengths, ragged queries and keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = over_e4m3(128);
  problem.window = Window::sliding;
  problem.seqused = UsedLengths::qk;
  problem.swizzle = Swizzle::b64;
  testing::check_runs(problem, {3, 2, 1, 90, 300, 128}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                      {.window_size_left = 70,
                       .window_size_right = 5,
                       .seqused_q = {90, 0, 41},
                       .seqused_k = {300, 17, 161},
                       .descales = Descales::each});
  problem = over_e4m3(64);
  problem.q_layout = QueryLayout::ragged;
  problem.kv_layout = KvLayout::ragged;
  problem.mask = Mask::causal;
  problem.swizzle = Swizzle::none;
  testing::check_runs(problem, {4, 2, 1, 200, 300, 64}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                      {.seqused_k = {176, 0, 1, 177}, .query_lengths = {70, 3, 0, 120}, .descales = Descales::each});
}

TEST_CASE("e4m3 keys: scores that are capped or lowered, trees, and head_dims of padded columns") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int head_dim : {16, 32, 64, 80, 96, 128, 160, 256})
    for (const int kind : {0, 1, 2, 3}) {
      ++turn;
      Fmha problem = over_e4m3(head_dim, turn % 3 == 0 ? DType::f16 : DType::bf16);
      problem.softcap = kind == 0 || kind == 2 ? Softcap::tanh : Softcap::none;
      problem.alibi = kind == 1 || kind == 2 ? Alibi::per_head : Alibi::none;
      problem.tree_mask = kind == 3 ? TreeMask::bits : TreeMask::none;
      problem.mask = kind == 1 ? Mask::causal : Mask::none;
      problem.pack_gqa = turn % 2 == 0 ? 2 : 1;
      testing::FmhaLaunchFacts facts;
      facts.input_seed = static_cast<std::uint64_t>(turn);
      facts.descales = static_cast<Descales>(turn % 3);
      if (turn % 4 != 0) {
        problem.kv_layout = KvLayout::paged;
        problem.page_size = turn % 4 == 1 ? 16 : 64;
        problem.seqused = UsedLengths::k;
        facts.seqused_k = {300, 97};
      }
      if (kind == 0) facts.softcap = 8;
      testing::check_runs(problem, {2, 4, 2, 40, 300, head_dim}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                          facts);
    }
}

}  // namespace
}  // namespace tessera::fmha_kv8_test
