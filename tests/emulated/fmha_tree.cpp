// Attention over trees of drafted tokens, in the emulator against float64.
#include <doctest/doctest.h>

#include <string_view>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_tree_test {
namespace {

using emulator::Schedule;
using testing::FmhaLaunchFacts;

void check_trees(const char* arch, Compiler& compiler) {
  const auto check = [&](const Fmha& problem, reference::FmhaSizes sizes, const FmhaLaunchFacts& facts = {}) {
    sizes.head_dim = problem.head_dim;
    testing::check_runs(problem, sizes, compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
  };
  Fmha plain;
  plain.arch = Arch::parse(arch);
  plain.head_dim = 64;
  plain.tree_mask = TreeMask::bits;
  check(plain, {2, 2, 1, 9, 200});
  check(plain, {1, 2, 1, 70, 129});
  check(plain, {1, 2, 1, 40, 17});  // more queries than keys
  check(plain, {1, 2, 1, 40, 100}, {.tree_words = 1});
  check(plain, {1, 2, 1, 3, 100}, {.tree_words = 0});  // nobody sees a query's key
  check(plain, {1, 2, 1, 33, 100}, {.softmax_scale = -0.3});
  Fmha wide = plain;
  wide.head_dim = 512;
  wide.output = Output::unnormalized;
  check(wide, {1, 2, 1, 40, 90});
  Fmha packed = plain;
  packed.pack_gqa = 4;
  packed.seqused = UsedLengths::qk;
  packed.sink = Sink::per_head;
  packed.softcap = Softcap::tanh;
  check(packed, {3, 8, 2, 20, 300}, {.seqused_q = {20, 0, 3}, .seqused_k = {300, 200, 2}});
  packed.split_kv = SplitKv::on;
  check(packed, {3, 8, 2, 20, 300}, {.num_splits = 3, .seqused_q = {20, 0, 3}, .seqused_k = {300, 200, 2}});
  Fmha paged = plain;
  paged.kv_layout = KvLayout::paged;
  paged.page_size = 16;
  paged.pack_gqa = 4;
  check(paged, {3, 8, 2, 12, 300}, {.seqused_k = {300, 131, 0}});
  for (const SplitKv split : {SplitKv::off, std::string_view(arch) == "sm_90a" ? SplitKv::dealt : SplitKv::on}) {
    Fmha step = paged;
    step.seqused = UsedLengths::k;
    step.q_layout = QueryLayout::ragged;
    step.split_kv = split;
    check(step, {5, 8, 2, 125, 300},
          {.seqused_k = {90, 300, 0, 257, 1}, .query_lengths = {70, 1, 0, 33, 1}, .num_sms = 3});
  }
}

TEST_CASE("attention: trees of drafted tokens") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const char* const arch : {"sm_90a", "sm_100a"}) check_trees(arch, *compiler);
}

}  // namespace
}  // namespace tessera::fmha_tree_test
