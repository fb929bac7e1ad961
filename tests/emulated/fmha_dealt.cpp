// Attention whose key blocks are dealt to the CTAs by lengths in memory, in the emulator against float64.
#include <doctest/doctest.h>

#include "tessera/plan.h"
#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_dealt_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;

constexpr auto kTwo = {Schedule::lazy, Schedule::adversarial};

Fmha problem_of(int head_dim, Mask mask, UsedLengths seqused, int pack_gqa) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.seqused = seqused;
  problem.pack_gqa = pack_gqa;
  problem.split_kv = SplitKv::dealt;
  problem.tile_m = 64;
  problem.tile_n = 64;
  return problem;
}

testing::FmhaLaunchFacts keys(std::vector<std::int64_t> seqused_k, int num_sms) {
  testing::FmhaLaunchFacts facts;
  facts.seqused_k = std::move(seqused_k);
  facts.num_sms = num_sms;
  return facts;
}

TEST_CASE("attention: keys dealt by their lengths") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    const Fmha packed = problem_of(64, mask, UsedLengths::k, 8);
    const auto check = [&](reference::FmhaSizes sizes, const testing::FmhaLaunchFacts& facts) {
      sizes.head_dim = 64;
      check_runs(packed, sizes, *compiler, kTwo, 1, facts);
    };
    check({4, 16, 2, 1, 700}, keys({700, 65, 0, 301}, 3));  // whole tiles, parts at both ends of a range, no keys
    check({1, 8, 1, 1, 900}, keys({840}, 7));               // one tile, a part to each CTA
    check({2, 8, 1, 3, 300}, keys({1, 65}, 60));            // more CTAs than blocks
    check({2, 8, 1, 1, 384}, keys({384, 384}, 2));          // a range ends where a tile does
    check({5, 8, 1, 1, 200}, keys({200, 3, 64, 0, 129}, 1));
    check({3, 8, 1, 20, 400}, keys({400, 0, 90}, 2));  // 160 rows: three tiles of a head
    std::vector<std::int64_t> many;
    for (std::int64_t b = 0; b < 70; ++b) many.push_back(b * 37 % 130);  // three sequences to a lane
    check({70, 8, 1, 1, 130}, keys(many, 5));
  }
}

TEST_CASE("attention: keys dealt, with what else a launch can ask for") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  check_runs(problem_of(64, Mask::causal, UsedLengths::none, 1), {2, 2, 1, 150, 333, 64}, *compiler, kTwo, 1,
             keys({}, 3));
  Fmha other = problem_of(128, Mask::causal, UsedLengths::qk, 4);
  other.window = Window::sliding;
  other.output = Output::unnormalized;
  testing::FmhaLaunchFacts facts = keys({500, 70, 0, 333}, 3);
  facts.seqused_q = {30, 7, 5, 0};
  facts.window_size_left = 200;
  check_runs(other, {4, 8, 2, 33, 500, 128}, *compiler, kTwo, 1, facts);
  other.output = Output::normalized;
  other.dtype = DType::f16;
  other.mask = Mask::none;
  check_runs(other, {4, 8, 2, 33, 500, 128}, *compiler, kTwo, 1, facts);
  // A pair of CTAs.
  Fmha wide = problem_of(512, Mask::none, UsedLengths::k, 16);
  wide.tile_n.reset();
  check_runs(wide, {3, 16, 1, 1, 400, 512}, *compiler, kTwo, 1, keys({400, 17, 210}, 6));
}

}  // namespace
}  // namespace tessera::fmha_dealt_test
