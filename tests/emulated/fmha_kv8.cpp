// Attention of 16-bit queries over e4m3 keys and values: every code widened exactly, with and without descales, dense
// and paged, beside masks, windows, used lengths, packed heads, ragged queries and split keys.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_narrow_keys.h"

namespace tessera::fmha_kv8_test {
namespace {

using Descales = testing::FmhaLaunchFacts::Descales;

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
      testing::check_narrow(
          problem, {2, 4, 2, 150, 260, dims[0], dims[1]}, *compiler,
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
        const DType dtype = turn % 4 == 0 ? DType::f16 : DType::bf16;
        Fmha problem = testing::decoding(over_e4m3(head_dim, dtype), split, page_size);
        problem.stages = turn % 3 == 0 ? 2 : 1;
        testing::FmhaLaunchFacts facts = testing::facts_of_decoding(problem, turn);
        facts.descales = turn % 5 == 0 ? Descales::one : Descales::each;
        testing::check_decoding(problem, *compiler, facts);
      }
}

TEST_CASE("e4m3 keys: windows, queries and keys of their own lengths, ragged queries and keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  testing::check_window(over_e4m3(128), *compiler);
  Fmha problem = over_e4m3(64);
  problem.kv_layout = KvLayout::ragged;
  problem.swizzle = Swizzle::none;
  testing::check_ragged(problem, {4, 2, 1, 200, 300, 64}, *compiler);
  problem = over_e4m3(256);
  problem.kv_layout = KvLayout::ragged;
  testing::check_ragged(problem, {4, 4, 2, 200, 300, 256}, *compiler);
}

TEST_CASE("e4m3 keys: an engine's step, whose few rows are multiplied from raw slots") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  struct Case {
    int tile_m = 0, tile_n = 0, stages = 0, head_dim = 0, pack_gqa = 0;
  };
  // The last one has too few raw slots, and widens all keys.
  constexpr Case kCases[] = {{64, 64, 1, 32, 2},   {64, 64, 1, 128, 4},  {128, 80, 2, 32, 2},  {128, 80, 2, 128, 4},
                             {128, 64, 2, 32, 2},  {128, 64, 2, 128, 4}, {128, 80, 2, 128, 1}, {64, 128, 1, 64, 8},
                             {128, 64, 3, 128, 8}, {128, 96, 2, 96, 8},  {64, 64, 1, 96, 1},   {128, 80, 4, 128, 4}};
  int turn = 0;
  for (const Case& tile : kCases) {
    ++turn;
    Fmha problem = over_e4m3(tile.head_dim, turn % 3 == 0 ? DType::f16 : DType::bf16);
    testing::use_lengths(problem, turn % 2 == 0 ? 64 : 1);
    problem.q_layout = QueryLayout::ragged;
    problem.mask = turn % 4 == 0 ? Mask::none : Mask::causal;
    problem.split_kv = SplitKv::dealt;
    problem.pack_gqa = tile.pack_gqa;
    problem.tile_m = tile.tile_m;
    problem.tile_n = tile.tile_n;
    problem.stages = tile.stages;
    problem.sink = turn % 2 == 0 && tile.tile_m == 128 ? Sink::per_head : Sink::none;
    problem.window = turn % 5 == 0 ? Window::sliding : Window::none;
    testing::FmhaLaunchFacts facts = testing::facts_of_turn(turn);
    facts.descales = Descales::each;
    facts.num_sms = 2;
    if (turn % 5 == 0) facts.window_size_left = 90, facts.window_size_right = 0;
    facts.query_lengths = {1, 70, 2, 0, 1, 1, 130, 1};
    facts.seqused_k = {170, 90, 81, 33, 0, 1, 150, 300};
    testing::check_narrow(problem, {8, *problem.pack_gqa, 1, 206, 300, tile.head_dim}, *compiler, facts);
  }
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
        testing::use_lengths(problem, turn % 4 == 1 ? 16 : 64);
        facts.seqused_k = {300, 97};
      }
      if (kind == 0) facts.softcap = 8;
      testing::check_narrow(problem, {2, 4, 2, 40, 300, head_dim}, *compiler, facts);
    }
}

}  // namespace
}  // namespace tessera::fmha_kv8_test
