// Attention over keys that are values too on tcgen05: what fmha_latent.cpp asks of sm_90a, of kernels whose products
// have 64 rows on both halves of each warp's lanes.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_latent_tcgen05_test {
namespace {

using emulator::Schedule;
using Descales = testing::FmhaLaunchFacts::Descales;

Fmha latent_of(int heads, int turn) {
  Fmha problem{.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on, .pack_gqa = heads};
  problem.arch = Arch::parse(turn % 2 == 0 ? "sm_100a" : "sm_103a");
  if (turn % 3 == 2) problem.dtype = DType::f16;
  return problem;
}

TEST_CASE("latent attention on tcgen05: heads and queries, whole blocks and parts of one") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  struct Case {
    int heads;
    std::int64_t batch, queries, keys;
    Mask mask;
  };
  // Half a tile, one and two, queries that share a tile, heads that leave rows over; the first queries see no key.
  constexpr Case kCases[] = {{128, 2, 1, 200, Mask::none},  {64, 1, 1, 256, Mask::none}, {16, 2, 4, 193, Mask::causal},
                             {32, 2, 3, 130, Mask::causal}, {48, 1, 2, 129, Mask::none}, {128, 1, 2, 3, Mask::causal},
                             {32, 1, 4, 2, Mask::causal},   {16, 3, 1, 0, Mask::none},   {20, 1, 7, 70, Mask::causal}};
  int turn = 0;
  for (const Case& at : kCases) {
    ++turn;
    Fmha problem = latent_of(at.heads, turn);
    problem.mask = at.mask;
    testing::check_runs(problem, {at.batch, at.heads, 1, at.queries, at.keys, 576, 512}, *compiler,
                        {Schedule::adversarial}, 1,
                        {.num_sms = turn % 2 == 0 ? 2 : 4, .input_seed = static_cast<std::uint64_t>(turn)});
  }
}

TEST_CASE("latent attention on tcgen05: lengths in memory, NaNs behind them; parts of keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = latent_of(64, 0);
  problem.seqused = UsedLengths::k;
  testing::check_runs(problem, {5, 64, 1, 1, 200, 576, 512}, *compiler, {Schedule::lazy}, 1,
                      {.seqused_k = {200, 0, 1, 64, 129}, .num_sms = 2});
  problem = latent_of(128, 1);
  problem.seqused = UsedLengths::k;
  problem.split_kv = SplitKv::on;
  problem.mask = Mask::causal;
  problem.sink = Sink::per_head;
  testing::check_runs(problem, {2, 128, 1, 1, 330, 576, 512}, *compiler, {Schedule::adversarial}, 1,
                      {.num_splits = 3, .seqused_k = {330, 70}});
}

TEST_CASE("latent attention on tcgen05: keys in pages, and entries that are no pages") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : {64, 8, 16, 32, 128, 256}) {
    ++turn;
    Fmha problem = latent_of(turn % 2 == 0 ? 64 : 16, turn);
    problem.kv_layout = KvLayout::paged;
    problem.page_size = page_size;
    problem.mask = turn % 3 == 0 ? Mask::causal : Mask::none;
    problem.split_kv = turn % 2 == 0 ? SplitKv::off : SplitKv::on;
    testing::FmhaLaunchFacts facts{.seqused_k = {200, 131, 0, 64}, .num_sms = 3};
    if (turn % 2 != 0) facts.num_splits = 2;
    facts.input_seed = static_cast<std::uint64_t>(turn);
    facts.has_foreign_pages = turn % 3 == 1;
    facts.spare_pages = turn % 4;
    testing::check_runs(problem, {4, *problem.pack_gqa, 1, 2, 200, 576, 512}, *compiler, {Schedule::adversarial}, 1,
                        facts);
  }
}

TEST_CASE("latent attention on tcgen05: windows, ragged queries, trees, altered scores, narrow swizzles") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (int turn = 1; turn <= 6; ++turn) {
    Fmha problem = latent_of(turn % 2 == 0 ? 32 : 16, turn);
    testing::FmhaLaunchFacts facts;
    if (turn == 1) problem.window = Window::sliding, facts.window_size_left = 90, facts.window_size_right = 3;
    if (turn == 2) problem.q_layout = QueryLayout::ragged, facts.query_lengths = {5, 0, 2};
    if (turn == 3) problem.softcap = Softcap::tanh, problem.alibi = Alibi::per_head;
    if (turn == 4) problem.tree_mask = TreeMask::bits;
    if (turn == 5) problem.seqused = UsedLengths::qk, facts.seqused_q = {7, 0, 3}, facts.seqused_k = {150, 9, 66};
    if (turn == 6) problem.swizzle = Swizzle::b64;
    const std::int64_t batch = turn == 2 || turn == 5 ? 3 : 1;
    testing::check_runs(problem, {batch, *problem.pack_gqa, 1, 7, 150, 576, 512}, *compiler, {Schedule::adversarial}, 1,
                        facts);
  }
}

TEST_CASE("latent attention over e4m3 keys on tcgen05: one descale for keys and values, dense, in pages, split") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  const auto e4m3_of = [](int heads, int turn) {
    Fmha problem = latent_of(heads, turn);
    problem.kv_dtype = DType::e4m3;
    return problem;
  };
  // A key more than two blocks.
  testing::check_runs(e4m3_of(16, 0), {1, 16, 1, 2, 129, 576, 512}, *compiler,
                      {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial, Schedule::split}, 1,
                      {.descales = Descales::each, .num_sms = 2});
  int turn = 0;
  for (const int page_size : {64, 8, 16, 32, 128, 256}) {
    ++turn;
    Fmha problem = e4m3_of(turn % 2 == 0 ? 64 : 16, turn);
    problem.kv_layout = KvLayout::paged;
    problem.page_size = page_size;
    problem.mask = turn % 3 == 2 ? Mask::none : Mask::causal;
    problem.split_kv = turn % 2 == 0 ? SplitKv::off : SplitKv::on;
    testing::FmhaLaunchFacts facts{.seqused_k = {193, 0, 65, 30}, .descales = Descales::each, .num_sms = 3};
    if (turn % 2 != 0) facts.num_splits = 2;
    facts.input_seed = static_cast<std::uint64_t>(turn);
    facts.has_foreign_pages = turn % 3 == 1;
    facts.spare_pages = turn % 4;
    testing::check_runs(problem, {4, *problem.pack_gqa, 1, turn % 4 + 1, 200, 576, 512}, *compiler,
                        {Schedule::adversarial}, 1, facts);
  }
  Fmha problem = e4m3_of(128, 1);
  problem.seqused = UsedLengths::k;
  testing::check_runs(problem, {5, 128, 1, 1, 200, 576, 512}, *compiler, {Schedule::lazy}, 1,
                      {.seqused_k = {200, 0, 1, 65, 128}, .descales = Descales::one, .num_sms = 2});
  problem = e4m3_of(32, 2);
  problem.swizzle = Swizzle::b64;
  problem.window = Window::sliding;
  testing::check_runs(problem, {1, 32, 1, 3, 150, 576, 512}, *compiler, {Schedule::adversarial}, 1,
                      {.window_size_left = 90, .window_size_right = 3});
  testing::check_runs(e4m3_of(16, 1), {2, 16, 1, 1, 0, 576, 512}, *compiler, {Schedule::adversarial}, 1, {});
}

}  // namespace
}  // namespace tessera::fmha_latent_tcgen05_test
