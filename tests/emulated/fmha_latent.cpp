// Attention over keys that are values too, in the emulator against float64, with the race detector.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_latent_test {
namespace {

using emulator::Schedule;
using Descales = testing::FmhaLaunchFacts::Descales;

Fmha latent(int heads) { return {.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on, .pack_gqa = heads}; }

TEST_CASE("latent attention: one query of each sequence") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  // Whole pairs of blocks, a part of a block, a pair with one block, less than a block; more tiles than SMs.
  for (const std::int64_t keys : {256, 200, 130, 3})
    testing::check_runs(latent(64), {2, 64, 1, 1, keys, 576, 512}, *compiler, {Schedule::lazy, Schedule::adversarial},
                        1);
  testing::check_runs(latent(128), {3, 128, 1, 1, 330, 576, 512}, *compiler,
                      {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}, 1, {.num_sms = 2});
  testing::check_runs(latent(16), {5, 16, 1, 1, 140, 576, 512}, *compiler, {Schedule::adversarial}, 1, {.num_sms = 2});
}

TEST_CASE("latent attention: a negative scale, which scores get before the largest is found, in whole blocks too") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  testing::check_runs(latent(64), {1, 64, 1, 1, 256, 576, 512}, *compiler, {Schedule::adversarial}, 1,
                      {.softmax_scale = -0.05});
}

TEST_CASE("latent attention: lengths in memory, NaNs behind them") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = latent(64);
  problem.seqused = UsedLengths::k;
  testing::check_runs(problem, {6, 64, 1, 1, 300, 576, 512}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                      {.seqused_k = {300, 0, 1, 64, 129, 190}, .num_sms = 2});
}

TEST_CASE("latent attention: queries aligned at the end") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = latent(32);
  problem.mask = Mask::causal;
  // Three queries of 32 rows: a tile of two, and half a tile.
  testing::check_runs(problem, {2, 32, 1, 3, 193, 576, 512}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1);
  // The first queries see no key.
  testing::check_runs(problem, {1, 32, 1, 4, 2, 576, 512}, *compiler, {Schedule::adversarial}, 1);
}

TEST_CASE("latent attention: keys in pages, and entries that are no pages") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : {64, 8, 16, 32, 128, 256}) {
    ++turn;
    Fmha problem = latent(page_size == 16 || page_size == 128 ? 128 : turn % 2 == 0 ? 64 : 16);
    problem.kv_layout = KvLayout::paged;
    problem.page_size = page_size;
    problem.mask = turn % 3 == 0 ? Mask::causal : Mask::none;
    problem.split_kv = turn % 2 == 0 ? SplitKv::off : SplitKv::dealt;
    testing::FmhaLaunchFacts facts{.seqused_k = {300, 131, 0, 64}, .num_sms = 3};
    facts.input_seed = static_cast<std::uint64_t>(turn);
    facts.has_foreign_pages = turn % 3 == 1;
    facts.spare_pages = turn % 4;
    testing::check_runs(problem, {4, *problem.pack_gqa, 1, 2, 300, 576, 512}, *compiler,
                        {Schedule::lazy, Schedule::adversarial}, 1, facts);
  }
}

TEST_CASE("latent attention: keys dealt to CTAs, and their parts merged") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  Fmha problem = latent(64);
  problem.split_kv = SplitKv::dealt;
  // A sequence over three CTAs; cuts at a sequence's end; a range with two parts.
  testing::check_runs(problem, {1, 64, 1, 1, 700, 576, 512}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                      {.num_sms = 3});
  testing::check_runs(problem, {4, 64, 1, 1, 256, 576, 512}, *compiler, {Schedule::adversarial}, 1, {.num_sms = 4});
  testing::check_runs(problem, {3, 64, 1, 1, 500, 576, 512}, *compiler, {Schedule::adversarial}, 1, {.num_sms = 2});
  // A sequence over two CTAs, of which either may be the first at its end: a tail is added or merged, with the same
  // bits.
  testing::check_runs(problem, {1, 64, 1, 1, 500, 576, 512}, *compiler,
                      {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}, 3, {.num_sms = 2});
  // The last tile is not full of rows.
  Fmha queries = latent(16);
  queries.split_kv = SplitKv::dealt;
  testing::check_runs(queries, {1, 16, 1, 5, 500, 576, 512}, *compiler, {Schedule::fair, Schedule::adversarial}, 1,
                      {.num_sms = 4});
  problem.seqused = UsedLengths::k;
  problem.pack_gqa = 128;
  problem.mask = Mask::causal;
  testing::check_runs(problem, {7, 128, 1, 1, 600, 576, 512}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                      {.seqused_k = {600, 0, 3, 257, 128, 0, 511}, .num_sms = 7});
  problem.pack_gqa = 16;
  testing::check_runs(problem, {40, 16, 1, 2, 300, 576, 512}, *compiler, {Schedule::adversarial}, 1,
                      {.seqused_k = std::vector<std::int64_t>(40, 131), .num_sms = 9});
}

/// Of the second of two launches over one workspace: tails that were added where their sequence begins, parts that were
/// merged, and what was wrong.
struct Again {
  int added = 0, merged = 0;
  std::vector<std::string> failures;
};
Again launch_again(Compiler& compiler, const std::vector<std::int64_t>& earlier, const std::vector<std::int64_t>& keys,
                   std::optional<testing::FmhaLaunchFacts::Edit> edit = {}) {
  constexpr int kSms = 5, kWords = 2 * kSms;  // "there" and "added" of each CTA: fmha_latent/tails.cuh
  Fmha problem = latent(64);
  problem.split_kv = SplitKv::dealt;
  problem.seqused = UsedLengths::k;
  testing::FmhaLaunchFacts facts{.seqused_k = keys, .num_sms = kSms};
  facts.earlier_k = earlier;
  facts.edit = std::move(edit);
  facts.watched_bytes = 4 * kWords;
  const Schedule schedules[] = {Schedule::fair, Schedule::adversarial};
  const std::uint64_t seeds[] = {1, 2};
  const reference::FmhaSizes sizes{static_cast<std::int64_t>(keys.size()), 64, 1, 1, 700, 576, 512};
  const testing::FmhaVerdict verdict = testing::run_fmha(problem, sizes, compiler, schedules, seeds, facts);
  Again again;
  again.failures = verdict.failures;
  for (std::size_t run = 0; run + 1 < verdict.watched.size(); run += 2) {
    std::int32_t before[kWords], after[kWords];
    std::memcpy(before, verdict.watched[run].data(), sizeof(before));
    std::memcpy(after, verdict.watched[run + 1].data(), sizeof(after));
    for (int word = 1; word < kWords; word += 2) {
      again.added += after[word] == 1 && before[word] != 1 ? 1 : 0;
      again.merged += after[word] == 0 && before[word] != 0 ? 1 : 0;
    }
  }
  return again;
}

TEST_CASE("latent attention: what an earlier launch left in the workspace") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  const std::vector<std::int64_t> first{700, 300, 511, 128}, second{260, 640, 90, 513};
  Again both;
  for (const bool turned : {false, true}) {
    const Again again = launch_again(*compiler, turned ? second : first, turned ? first : second);
    for (const std::string& failure : again.failures) FAIL_CHECK(failure);
    both.added += again.added;
    both.merged += again.merged;
  }
  CHECK(both.added > 0);
  CHECK(both.merged > 0);
  // Whether a tail is there would be what it was behind the first launch.
  const Again stale =
      launch_again(*compiler, first, second,
                   testing::FmhaLaunchFacts::Edit{"fmha_latent/kernel.cuh", "clear_tail<C>(params);", ";"});
  CHECK(!stale.failures.empty());
}

Fmha latent_e4m3(int heads, DType dtype = DType::bf16) {
  Fmha problem = latent(heads);
  problem.dtype = dtype;
  problem.kv_dtype = DType::e4m3;
  return problem;
}

// Descales of single sequences: the fourth one's is negative, and folds into no exponent.
TEST_CASE("latent attention over e4m3 keys: one descale for keys and values, dense, in pages, dealt") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  // A key more than a pair of blocks.
  testing::check_runs(latent_e4m3(64), {1, 64, 1, 1, 129, 576, 512}, *compiler,
                      {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial, Schedule::split}, 1,
                      {.descales = Descales::one, .num_sms = 2});
  testing::check_runs(latent_e4m3(128), {3, 128, 1, 1, 330, 576, 512}, *compiler,
                      {Schedule::lazy, Schedule::adversarial}, 1, {.descales = Descales::each, .num_sms = 2});
  int turn = 0;
  for (const int page_size : {64, 8, 16, 32, 64, 128, 256}) {
    const int kind = page_size == 64 ? 1 : turn;
    ++turn;
    Fmha problem = latent_e4m3(kind % 2 == 0 ? 64 : 16, kind % 3 == 0 ? DType::f16 : DType::bf16);
    problem.kv_layout = KvLayout::paged;
    problem.page_size = page_size;
    problem.mask = kind % 3 == 2 ? Mask::none : Mask::causal;
    problem.split_kv = kind % 2 == 0 ? SplitKv::off : SplitKv::dealt;
    testing::FmhaLaunchFacts facts{.seqused_k = {193, 0, 65}, .descales = Descales::each, .num_sms = 2};
    facts.input_seed = static_cast<std::uint64_t>(turn);
    facts.has_foreign_pages = turn % 3 == 1;
    facts.spare_pages = turn % 4;
    testing::check_runs(problem, {3, *problem.pack_gqa, 1, turn % 4 + 1, 200, 576, 512}, *compiler,
                        {Schedule::adversarial}, 1, facts);
  }
  // More than a block, and than three.
  for (const std::int64_t keys : {65, 193})
    testing::check_runs(latent_e4m3(16, DType::f16), {5, 16, 1, 1, keys, 576, 512}, *compiler, {Schedule::adversarial},
                        1, {.descales = keys == 65 ? Descales::none : Descales::each, .num_sms = 2});
  // Tiles of few rows: one whole, two queries in one, a query in two, the last one half full.
  struct FewRows {
    int heads, tile_m, queries;
  };
  for (const FewRows& few : {FewRows{16, 16, 1}, FewRows{16, 32, 2}, FewRows{32, 16, 1}, FewRows{8, 16, 3}}) {
    Fmha rows = latent_e4m3(few.heads, few.heads == 8 ? DType::f16 : DType::bf16);
    rows.tile_m = few.tile_m;
    rows.mask = few.queries > 1 ? Mask::causal : Mask::none;
    rows.seqused = UsedLengths::k;
    rows.split_kv = few.heads == 32 ? SplitKv::off : SplitKv::dealt;
    testing::check_runs(rows, {3, few.heads, 1, few.queries, 700, 576, 512}, *compiler,
                        {Schedule::lazy, Schedule::adversarial}, 1,
                        {.seqused_k = {700, 130, 3}, .descales = Descales::each, .num_sms = 2});
  }
  Fmha problem = latent_e4m3(64);
  problem.seqused = UsedLengths::k;
  problem.split_kv = SplitKv::dealt;
  testing::check_runs(problem, {6, 64, 1, 1, 300, 576, 512}, *compiler, {Schedule::lazy}, 1,
                      {.seqused_k = {300, 0, 1, 65, 128, 190}, .descales = Descales::each, .num_sms = 3});
}

}  // namespace
}  // namespace tessera::fmha_latent_test
