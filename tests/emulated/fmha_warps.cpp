// Attention of few queries by mma.sync: four warps share each block's keys. 16-bit keys and e4m3 ones, every head_dim
// that there are registers for, beside what else a launch can ask for.
#include <doctest/doctest.h>

#include "generator/attention/fmha_operator.h"
#include "generator/candidates.h"
#include "tests/emulated/fmha_run.h"

namespace tessera {
namespace {

using emulator::Schedule;
using Descales = testing::FmhaLaunchFacts::Descales;
using PoolLayout = testing::FmhaLaunchFacts::PoolLayout;

Fmha of_warps(int head_dim, bool has_8_bit_keys, DType dtype = DType::bf16) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.dtype = dtype;
  problem.mma_kind = MmaKind::mma_f16;
  if (has_8_bit_keys) problem.kv_dtype = DType::e4m3;
  return problem;
}

TEST_CASE("attention by warps: every head_dim, either type of queries and keys, 1 to 40 rows") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[][2] = {{16, 16}, {32, 32}, {64, 64}, {80, 80}, {96, 96}, {128, 128}, {160, 160}, {192, 128}};
  int turn = 0;
  for (const auto& dims : kHeadDims)
    for (const bool has_8_bit_keys : {false, true}) {
      ++turn;
      Fmha problem = of_warps(dims[0], has_8_bit_keys, turn % 3 == 0 ? DType::f16 : DType::bf16);
      problem.head_dim_v = dims[1];
      problem.mask = turn % 2 == 0 ? Mask::causal : Mask::none;
      problem.output = turn % 5 == 0 ? Output::unnormalized : Output::normalized;
      problem.tile_n = turn % 4 == 0 ? 128 : 64;
      problem.pack_gqa = turn % 3 == 1 ? 2 : 1;
      const std::int64_t queries = turn % 3 == 2 ? 40 : 1 + turn % 7;
      testing::check_runs(problem, {2, 4, 2, queries, 131 + 9 * turn, dims[0], dims[1]}, *compiler,
                          {Schedule::lazy, Schedule::adversarial}, 1,
                          {.descales = has_8_bit_keys ? static_cast<Descales>(turn % 3) : Descales::none,
                           .input_seed = static_cast<std::uint64_t>(turn)});
    }
}

TEST_CASE("attention by warps: decode in pages, split and dealt, lengths of nothing and of one key") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : {0, 1, 16, 64, 256})
    for (const SplitKv split : {SplitKv::on, SplitKv::dealt})
      for (const bool has_8_bit_keys : {true, false}) {
        ++turn;
        Fmha problem = of_warps(turn % 3 == 0 ? 64 : 128, has_8_bit_keys);
        problem.mask = Mask::causal;
        problem.split_kv = split;
        problem.pack_gqa = 4;
        problem.stages = turn % 4 == 0 ? 1 : 2;
        problem.seqused = UsedLengths::k;
        if (turn % 5 == 0) problem.sink = Sink::per_head;
        if (page_size > 0) {
          problem.kv_layout = KvLayout::paged;
          problem.page_size = page_size;
        }
        testing::FmhaLaunchFacts facts;
        facts.seqused_k = {300, 131, 0, 1};
        if (has_8_bit_keys) facts.descales = turn % 3 == 0 ? Descales::one : Descales::each;
        if (split == SplitKv::on) facts.num_splits = 3;
        facts.has_foreign_pages = turn % 3 == 0;
        facts.pool_layout = static_cast<PoolLayout>(turn % 3);
        testing::check_runs(problem, {4, 8, 2, 2, 320, problem.head_dim}, *compiler,
                            {Schedule::lazy, Schedule::adversarial}, 1, facts);
      }
}

TEST_CASE("attention by warps: windows, scores that are capped or lowered, trees, odd heads, ragged queries and keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (int turn = 0; turn < 12; ++turn) {
    Fmha problem = of_warps(turn % 2 == 0 ? 128 : 64, turn % 4 < 2, turn % 5 == 0 ? DType::f16 : DType::bf16);
    problem.pack_gqa = turn % 3 == 0 ? 3 : 4;
    testing::FmhaLaunchFacts facts;
    if (problem.kv_dtype) facts.descales = Descales::each;
    reference::FmhaSizes sizes{3, 2 * *problem.pack_gqa, 2, 4, 280, problem.head_dim};
    if (turn % 4 == 0) {
      problem.window = Window::sliding;
      facts.window_size_left = 100;
      facts.window_size_right = turn % 8 == 0 ? 0 : 7;
    }
    if (turn % 4 == 1) problem.softcap = Softcap::tanh;
    if (turn % 6 < 2) problem.alibi = Alibi::per_head;
    if (turn % 4 == 2) problem.tree_mask = TreeMask::bits;
    if (turn % 3 == 1) {
      problem.seqused = UsedLengths::qk;
      facts.seqused_q = {4, 0, 1};
      facts.seqused_k = {280, 60, 5};
    }
    if (turn % 3 == 2) {
      problem.q_layout = QueryLayout::ragged;
      problem.kv_layout = KvLayout::ragged;
      problem.split_kv = SplitKv::dealt;
      if (turn % 2 == 0) problem.split_size = 128;
      sizes.seqlen_q = 9;
      facts.query_lengths = {1, 5, 2};
      facts.seqused_k = {280, 130, 2};
    }
    testing::check_runs(problem, sizes, *compiler, {Schedule::eager, Schedule::adversarial}, 1, facts);
  }
}

TEST_CASE("attention by warps is what few rows get") {
  Fmha decode;
  decode.batch = 8;
  decode.heads_q = 32;
  decode.heads_kv = 8;
  decode.seqlen_q = 1;
  decode.seqlen_k = 8192;
  const auto kind_of = [](const Fmha& problem) { return chosen_config<FmhaOperator>(problem).mma_kind; };
  CHECK(kind_of(decode) == MmaKind::mma_f16);
  decode.seqlen_q = 2;  // 8 rows
  CHECK(kind_of(decode) == MmaKind::mma_f16);
  decode.seqlen_q = 3;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
  decode.seqlen_q = 4;
  decode.kv_dtype = DType::e4m3;
  CHECK(kind_of(decode) == MmaKind::mma_f16);
  decode.seqlen_q = 5;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
  decode.kv_dtype = {};
  decode.seqlen_q = kUnknownHint;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
  decode.seqlen_q = 1;
  decode.tile_m = 64;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
  decode.tile_m = {};
  decode.v_layout = Layout::k_major;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
}

}  // namespace
}  // namespace tessera
