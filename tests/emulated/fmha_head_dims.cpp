// Attention with narrow heads, and with heads that are padded in shared memory, in the emulator against float64.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"
#include "tests/support/sample.h"

namespace tessera::fmha_head_dims_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;
using testing::FmhaLaunchFacts;

void check_head_dim(const char* arch, int head_dim, Compiler& compiler) {
  const auto check = [&](const Fmha& problem, reference::FmhaSizes sizes, const FmhaLaunchFacts& facts = {}) {
    sizes.head_dim = head_dim;
    check_runs(problem, sizes, compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
  };
  // Several heads: what lies behind a row's columns in memory is the next head's.
  const Fmha plain{.arch = Arch::parse(arch), .head_dim = head_dim};
  check(plain, {2, 2, 1, 70, 129});
  check(plain, {1, 2, 1, 3, 0});
  Fmha other = plain;
  other.mask = Mask::causal;
  other.output = Output::unnormalized;
  other.dtype = DType::f16;
  check(other, {1, 2, 2, 130, 90});
  Fmha used = plain;
  used.seqused = UsedLengths::k;
  used.pack_gqa = 4;
  used.sink = Sink::per_head;
  check(used, {2, 8, 2, 9, 300}, {.seqused_k = {300, 65}});
  used.split_kv = SplitKv::on;
  check(used, {2, 8, 2, 9, 300}, {.num_splits = 2, .seqused_k = {0, 290}});
  Fmha paged = plain;
  paged.kv_layout = KvLayout::paged;
  paged.seqused = UsedLengths::k;
  for (const int page_size : {1, 16, 128}) {
    paged.page_size = page_size;
    check(paged, {2, 2, 2, 5, 300}, {.seqused_k = {300, 77}, .pool_layout = FmhaLaunchFacts::PoolLayout::head_major});
  }
  Fmha packed = plain;
  packed.kv_layout = KvLayout::ragged;
  check(packed, {2, 2, 2, 70, 200}, {.seqused_k = {129, 200}});
  // Ragged queries: last rows leave one by one; dealt keys: parts and whole tiles.
  for (const SplitKv split : {SplitKv::off, plain.arch == Arch{} ? SplitKv::dealt : SplitKv::on}) {
    Fmha ragged = plain;
    ragged.q_layout = QueryLayout::ragged;
    ragged.seqused = UsedLengths::k;
    ragged.split_kv = split;
    check(ragged, {3, 2, 1, 101, 300}, {.seqused_k = {300, 64, 0}, .query_lengths = {70, 1, 30}, .num_sms = 3});
  }
}

TEST_CASE("attention: head_dim 16, 32, 72, 80 and 160") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  testing::Sample sample(8);
  for (const char* const arch : {"sm_90a", "sm_100a"})
    for (const int head_dim : {16, 32, 72, 80, 160})
      if (sample.takes()) check_head_dim(arch, head_dim, *compiler);
}

}  // namespace
}  // namespace tessera::fmha_head_dims_test
