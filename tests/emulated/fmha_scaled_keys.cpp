// Attention over keys and values that are codes with scales, in pages: NVFP4 and MXFP8, by wgmma and mma.sync, beside
// masks, windows, packed heads, ragged queries and split keys; and bit for bit as over the bf16 keys that they stand
// for.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_narrow_keys.h"

namespace tessera::fmha_scaled_keys_test {
namespace {

using emulator::Schedule;

Fmha over_codes(KvFormat format, int head_dim, int page_size) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.kv_format = format;
  testing::use_lengths(problem, page_size);
  return problem;
}

constexpr KvFormat kFormats[] = {KvFormat::nvfp4, KvFormat::mxfp8};

TEST_CASE("codes with scales by wgmma: decode of grouped heads, pages of every size") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const KvFormat format : kFormats)
    for (const int head_dim : {64, 128, 256})
      for (const int page_size : {8, 16, 64, 128}) {
        ++turn;
        const SplitKv split = turn % 3 == 0 ? SplitKv::dealt : turn % 3 == 1 ? SplitKv::on : SplitKv::off;
        Fmha problem = testing::decoding(over_codes(format, head_dim, page_size), split, page_size);
        problem.mma_kind = MmaKind::wgmma_f16;
        testing::check_decoding(problem, *compiler, testing::facts_of_decoding(problem, turn));
      }
}

TEST_CASE("codes with scales by mma.sync: few queries, and rows of a warp's own") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const char* const arch : {"sm_90a", "sm_120a"})
    for (const KvFormat format : kFormats)
      for (const int head_dim : {64, 128, 256})
        for (const int tile_m : {16, 64, 128}) {
          ++turn;
          if (tile_m == 16 && head_dim == 256) continue;  // no registers for 256 columns of O of all warps
          constexpr int kPages[] = {16, 64, 8, 32};
          Fmha problem = over_codes(format, head_dim, kPages[turn % 4]);
          problem.arch = Arch::parse(arch);
          problem.mma_kind = MmaKind::mma_f16;
          problem.mask = turn % 2 == 0 ? Mask::causal : Mask::none;
          problem.pack_gqa = 4;
          problem.tile_m = tile_m;
          problem.tile_n = tile_m == 16 ? 64 : 32;
          problem.stages = 1 + turn % 2;
          if (turn % 4 == 1) problem.split_kv = SplitKv::on;
          testing::FmhaLaunchFacts facts = testing::facts_of_turn(turn);
          facts.seqused_k = {200, 77};
          if (problem.split_kv == SplitKv::on) facts.num_splits = 2;
          facts.has_foreign_pages = turn % 5 == 0;
          const std::int64_t queries = tile_m == 16 ? 2 : 21;
          testing::check_narrow(problem, {2, 8, 2, queries, 200, head_dim}, *compiler, facts);
        }
}

TEST_CASE("codes with scales by tcgen05: pages of every size, packed heads, split keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const KvFormat format : kFormats)
    for (const int head_dim : {64, 128, 256})
      for (const int page_size : {8, 16, 64}) {
        ++turn;
        Fmha problem = over_codes(format, head_dim, page_size);
        problem.arch = Arch::parse(turn % 4 == 3 ? "sm_103a" : "sm_100a");
        problem.mask = turn % 2 == 0 ? Mask::causal : Mask::none;
        problem.pack_gqa = turn % 3 == 0 ? 1 : 4;
        testing::FmhaLaunchFacts facts = testing::facts_of_turn(turn);
        facts.seqused_k = {200, 77, 0};
        if (turn % 5 == 1) {
          problem.split_kv = SplitKv::on;
          facts.num_splits = 2;
        }
        facts.has_foreign_pages = turn % 4 == 0;
        testing::check_narrow(problem, {3, 8, 2, 21, 200, head_dim}, *compiler, facts);
      }
}

TEST_CASE("codes with scales: prefill, windows, ragged queries, scores that are capped, trees") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const KvFormat format : kFormats) {
    Fmha problem = over_codes(format, 128, 32);
    problem.mma_kind = MmaKind::wgmma_f16;
    testing::check_window(problem, *compiler);
    problem = over_codes(format, 64, 16);
    problem.swizzle = Swizzle::none;
    problem.mma_kind = MmaKind::wgmma_f16;
    testing::check_ragged(problem, {4, 4, 2, 200, 177, 64}, *compiler);
    problem = over_codes(format, 128, 64);
    problem.softcap = Softcap::tanh;
    problem.tree_mask = TreeMask::bits;
    problem.output = Output::unnormalized;
    testing::check_narrow(problem, {2, 4, 2, 40, 300, 128}, *compiler, {.softcap = 8, .seqused_k = {300, 97}});
  }
}

TEST_CASE("codes with scales by wgmma: the bits of bf16 keys made from them") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const KvFormat format : kFormats)
    for (const int head_dim : {64, 128, 256}) {
      Fmha problem = testing::decoding(over_codes(format, head_dim, 16), SplitKv::off, 16);
      problem.mma_kind = MmaKind::wgmma_f16;
      testing::FmhaLaunchFacts facts;
      facts.seqused_k = {300, 131};
      const reference::FmhaSizes sizes{2, 8, 2, 5, 320, head_dim};
      const Schedule schedules[] = {Schedule::lazy};
      const std::uint64_t seeds[] = {1};
      const testing::FmhaVerdict narrow = run_fmha(problem, sizes, *compiler, schedules, seeds, facts);
      problem.kv_format = KvFormat::plain;
      facts.rounded_to = format;
      const testing::FmhaVerdict wide = run_fmha(problem, sizes, *compiler, schedules, seeds, facts);
      for (const auto* const of : {&narrow.failures, &wide.failures})
        for (const std::string& failure : *of) FAIL_CHECK(failure);
      CAPTURE(narrow.kernel);
      CHECK(narrow.kernel != wide.kernel);
      CHECK(narrow.sequences == wide.sequences);
    }
}

}  // namespace
}  // namespace tessera::fmha_scaled_keys_test
