// Attention over e4m3 q, k and v: both products of 8 bits, V transposed in shared memory, sums that are promoted. Every
// head_dim, either type of o, descales of all kinds; masks, windows, used lengths, packed heads, ragged queries and
// keys, pages, split keys, sinks, altered scores, trees.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_narrow_keys.h"

namespace tessera::fmha_8_bit_test {
namespace {

using emulator::Schedule;
using Descales = testing::FmhaLaunchFacts::Descales;

Fmha of_e4m3(int head_dim) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.dtype = DType::e4m3;
  return problem;
}

TEST_CASE("e4m3 attention: every head_dim, masks, either type of o, dense") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[][2] = {{64, 64}, {128, 128}, {192, 128}, {192, 192}, {256, 256}};
  int turn = 0;
  for (const auto& dims : kHeadDims)
    for (const Mask mask : {Mask::none, Mask::causal}) {
      ++turn;
      Fmha problem = of_e4m3(dims[0]);
      problem.head_dim_v = dims[1];
      problem.mask = mask;
      if (turn % 3 == 0) problem.o_dtype = DType::f16;
      problem.output = turn % 5 == 0 ? Output::unnormalized : Output::normalized;
      testing::check_narrow(
          problem, {2, 2, 1, 150, 260, dims[0], dims[1]}, *compiler,
          {.descales = static_cast<Descales>(turn % 3), .input_seed = static_cast<std::uint64_t>(turn)});
    }
}

TEST_CASE("e4m3 attention: sums are promoted, at every width of a step") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const int tile_n : {32, 64, 96, 128, 160}) {
    Fmha problem = of_e4m3(128);
    problem.tile_m = tile_n == 96 ? 192 : 128;
    problem.tile_n = tile_n;
    problem.promote_every = tile_n == 128 ? 128 : 2 * tile_n;
    problem.mask = tile_n % 64 == 0 ? Mask::causal : Mask::none;
    testing::check_narrow(problem, {1, 2, 1, 140, 900, 128}, *compiler,
                          {.input_seed = static_cast<std::uint64_t>(tile_n / 32)});
  }
}

TEST_CASE("e4m3 attention: CTAs share the tiles of a last round that is not full") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = of_e4m3(64);
  problem.tile_m = 192;
  problem.tile_n = 64;
  testing::check_narrow(problem, {1, 5, 1, 180, 200, 64}, *compiler, {.num_sms = 4});  // one tile by three CTAs
  testing::check_narrow(problem, {2, 1, 1, 400, 200, 64}, *compiler, {.num_sms = 4});  // two tiles by two each
  problem.tile_m = 128;
  problem.output = Output::unnormalized;
  testing::check_narrow(problem, {1, 3, 1, 250, 200, 64}, *compiler, {.num_sms = 4});
}

TEST_CASE("e4m3 attention: sums of 256 columns are kept as f16, in the rows of o that they become") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    Fmha problem = of_e4m3(256);
    problem.tile_m = 128;
    problem.promote_every = 192;
    problem.mask = mask;
    problem.o_dtype = mask == Mask::none ? DType::bf16 : DType::f16;
    testing::check_narrow(problem, {1, 2, 1, 140, 900, 256}, *compiler, {.descales = Descales::each, .input_seed = 5});
    // Without a mask two CTAs share the tiles of a last round.
    testing::check_narrow(problem, {1, 5, 1, 180, 600, 256}, *compiler, {.num_sms = 4});
    problem.pack_gqa = 5;
    testing::check_narrow(problem, {1, 5, 1, 60, 600, 256}, *compiler, {.num_sms = 2});
  }
  // Rows of o are not the tile's own, or of fp32: sums wait in shared memory.
  Fmha split = of_e4m3(256);
  split.tile_m = 128;
  split.tile_n = 64;
  split.promote_every = 128;
  split.split_kv = SplitKv::dealt;
  testing::check_narrow(split, {2, 2, 1, 140, 900, 256}, *compiler, {.num_sms = 3});
}

TEST_CASE("e4m3 attention: decode, dense and paged, split and dealt") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : {0, 1, 16, 64})
    for (const SplitKv split : {SplitKv::on, SplitKv::dealt})
      for (const int head_dim : {64, 128}) {
        ++turn;
        Fmha problem = testing::decoding(of_e4m3(head_dim), split, page_size);
        problem.o_dtype = turn % 4 == 0 ? DType::f16 : DType::bf16;
        problem.pack_gqa = turn % 3 == 2 ? 3 : 4;  // copied queries, and boxes
        problem.stages = turn % 3 == 0 ? 3 : 2;
        problem.promote_every = turn % 2 == 0 ? 64 : 0;
        problem.sink = turn % 2 == 0 ? Sink::per_head : Sink::none;
        testing::FmhaLaunchFacts facts = testing::facts_of_decoding(problem, turn);
        facts.descales = turn % 5 == 0 ? Descales::one : Descales::each;
        testing::check_decoding(problem, *compiler, facts);
      }
}

TEST_CASE("e4m3 attention: windows, queries and keys of their own lengths, ragged queries and keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  testing::check_window(of_e4m3(128), *compiler);
  Fmha problem = of_e4m3(64);
  problem.kv_layout = KvLayout::ragged;
  problem.promote_every = 128;
  testing::check_ragged(problem, {4, 2, 1, 200, 300, 64}, *compiler);
  problem = of_e4m3(128);
  problem.window = Window::chunked;
  problem.mask = Mask::causal;
  problem.output = Output::unnormalized;
  problem.swizzle = Swizzle::none;
  testing::check_runs(problem, {1, 2, 1, 150, 300, 128}, *compiler, {Schedule::lazy}, 1, {.attention_chunk = 100});
}

TEST_CASE("e4m3 attention: a step's whole tiles beside dealt keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = of_e4m3(128);
  problem.q_layout = QueryLayout::ragged;
  problem.split_kv = SplitKv::dealt;
  problem.kv_layout = KvLayout::paged;
  problem.page_size = 16;
  problem.mask = Mask::causal;
  problem.pack_gqa = 4;
  testing::check_narrow(problem, {5, 4, 1, 130, 330, 128}, *compiler,
                        {.seqused_k = {330, 70, 12, 90, 280}, .query_lengths = {1, 66, 1, 60, 1}, .num_sms = 3});
}

TEST_CASE("e4m3 attention: scores that are capped or lowered, and trees") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[][2] = {{64, 64}, {128, 128}, {192, 128}, {192, 192}, {256, 256}};
  int turn = 0;
  for (const int kind : {3, 0, 2, 1, 4})  // 4: a tree beside scores that are altered both ways
    for (const auto& dims : kHeadDims) {
      ++turn;
      Fmha problem = of_e4m3(dims[0]);
      problem.head_dim_v = dims[1];
      if (turn % 3 == 0) problem.o_dtype = DType::f16;
      if (kind != 1 && kind != 3) problem.softcap = Softcap::tanh;
      if (kind == 1 || kind == 2 || kind == 4) problem.alibi = Alibi::per_head;
      if (kind >= 3) problem.tree_mask = TreeMask::bits;
      if (kind == 1) problem.mask = Mask::causal;
      problem.pack_gqa = turn % 3 + 1;
      testing::FmhaLaunchFacts facts;
      facts.input_seed = static_cast<std::uint64_t>(turn);
      facts.descales = static_cast<Descales>(turn % 3);
      if (turn % 4 != 0) {
        problem.kv_layout = turn % 4 == 1 ? KvLayout::ragged : KvLayout::paged;
        if (turn % 4 > 1) problem.page_size = turn % 4 == 2 ? 16 : 64;
        problem.seqused = UsedLengths::k;
        facts.seqused_k = {200, 97};
      }
      if (turn % 5 == 0) problem.split_kv = SplitKv::dealt;
      if (kind == 0) facts.softcap = 8;
      testing::check_runs(problem, {2, 2 * *problem.pack_gqa, 2, 40, 200, dims[0], dims[1]}, *compiler,
                          {Schedule::adversarial}, 1, facts);
    }
}

}  // namespace
}  // namespace tessera::fmha_8_bit_test
