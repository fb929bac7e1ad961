// Attention whose keys are split into parts of a size: each sequence's results, bit for bit the same whatever else is
// in the batch, wherever in it the sequence is, however long others may be and however many multiprocessors there are.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "tests/emulated/fmha_run.h"
#include "tests/support/sample.h"

namespace tessera::fmha_parts_test {
namespace {

using emulator::Schedule;
using testing::find_compiler;
using testing::FmhaLaunchFacts;

constexpr auto kTwo = {Schedule::lazy, Schedule::adversarial};

struct Sequence {
  std::int64_t source, keys, queries;
};

/// What a problem is launched with besides its sequences.
struct Launch {
  std::int64_t heads_q, heads_kv;
  FmhaLaunchFacts facts{};
};

/// What each of the sequences gets, all correct. Dense queries are as many for all: the first's.
std::vector<std::vector<std::byte>> results_of(const Fmha& problem, const Launch& launch, Compiler& compiler,
                                               const std::vector<Sequence>& sequences, std::int64_t seqlen_k,
                                               int num_sms) {
  FmhaLaunchFacts facts = launch.facts;
  facts.num_sms = num_sms;
  facts.source_queries = 80;
  facts.source_keys = 640;
  std::int64_t queries = sequences.front().queries;
  for (const Sequence& sequence : sequences) {
    facts.sources.push_back(sequence.source);
    facts.seqused_k.push_back(sequence.keys);
    if (problem.q_layout == QueryLayout::ragged) facts.query_lengths.push_back(sequence.queries);
    if (problem.seqused == UsedLengths::qk) facts.seqused_q.push_back(sequence.queries);
    queries = std::max(queries, sequence.queries);
  }
  if (problem.q_layout == QueryLayout::ragged)
    queries = std::accumulate(facts.query_lengths.begin(), facts.query_lengths.end(), std::int64_t{3});
  const reference::FmhaSizes sizes{static_cast<std::int64_t>(sequences.size()),
                                   launch.heads_q,
                                   launch.heads_kv,
                                   queries,
                                   seqlen_k,
                                   problem.head_dim,
                                   problem.head_dim_v.value_or(problem.head_dim)};
  const std::vector<std::uint64_t> seeds{1};
  const testing::FmhaVerdict verdict = testing::run_fmha(problem, sizes, compiler, kTwo, seeds, facts);
  CAPTURE(verdict.kernel);
  CAPTURE(testing::text_of(sizes, facts));
  for (const std::string& failure : verdict.failures) FAIL_CHECK(failure);
  return verdict.sequences;
}

/// Four sequences together, each alone, and in another order among others.
void check_invariance(const Fmha& problem, const Launch& launch, Compiler& compiler, const Sequence (&of)[4]) {
  if (!testing::takes_next_case(32)) return;
  const auto results = [&](const std::vector<Sequence>& sequences, std::int64_t seqlen_k, int num_sms) {
    return results_of(problem, launch, compiler, sequences, seqlen_k, num_sms);
  };
  const std::int64_t longest = std::max({of[0].keys, of[1].keys, of[2].keys, of[3].keys});
  const auto together = results({of[0], of[1], of[2], of[3]}, longest, 3);
  for (std::size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    CHECK(results({of[i]}, longest + 64, 5).at(0) == together.at(i));
  }
  Sequence other = of[0], shorter = of[0];
  other.source = 4;
  shorter.keys = std::min<std::int64_t>(of[0].keys, 333);
  const auto turned = results({of[3], of[2], other, of[1], of[0], shorter}, 640, 2);
  CHECK(turned.at(0) == together.at(3));
  CHECK(turned.at(1) == together.at(2));
  CHECK(turned.at(3) == together.at(1));
  CHECK(turned.at(4) == together.at(0));
}

Fmha problem_of(const char* arch, int head_dim, Mask mask, UsedLengths seqused) {
  Fmha problem;
  problem.arch = Arch::parse(arch);
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.seqused = seqused;
  problem.split_size = 128;
  return problem;
}

// More than two parts, a whole tile, one block more than a part, no keys.
constexpr Sequence kFew[4] = {{0, 500, 2}, {1, 100, 2}, {2, 129, 2}, {3, 0, 2}};
// A tile and some rows, one row, none, the rest of a warp's rows.
constexpr Sequence kRagged[4] = {{0, 500, 70}, {1, 100, 1}, {2, 320, 0}, {3, 257, 5}};

TEST_CASE("attention: with a size of parts a sequence has the same bits in any batch, at any place, on any device") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    Fmha problem = problem_of("sm_90a", 64, mask, UsedLengths::k);
    problem.pack_gqa = 8;
    problem.tile_m = problem.tile_n = 64;
    check_invariance(problem, {16, 2, {}}, *compiler, kFew);
    problem.split_kv = SplitKv::on;
    check_invariance(problem, {16, 2, {}}, *compiler, kFew);
  }
  Fmha used = problem_of("sm_90a", 128, Mask::none, UsedLengths::qk);
  used.output = Output::unnormalized;
  used.window = Window::sliding;
  check_invariance(used, {4, 2, {.window_size_left = 150, .input_seed = 12}}, *compiler,
                   {{0, 500, 40}, {1, 100, 3}, {2, 300, 0}, {3, 0, 7}});
}

TEST_CASE("attention: with a size of parts, keys in pages and ragged ones") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha problem = problem_of("sm_90a", 64, Mask::causal, UsedLengths::k);
  problem.kv_layout = KvLayout::paged;
  problem.page_size = 16;
  problem.pack_gqa = 4;
  check_invariance(problem, {8, 2, {.softmax_scale = 1.0}}, *compiler, kFew);
  problem.kv_dtype = DType::e4m3;
  problem.head_dim = 128;
  check_invariance(problem, {4, 1, {.descales = FmhaLaunchFacts::Descales::each}}, *compiler, kFew);
  Fmha ragged = problem_of("sm_90a", 64, Mask::none, UsedLengths::none);
  ragged.kv_layout = KvLayout::ragged;
  check_invariance(ragged, {2, 1, {}}, *compiler, kFew);
}

TEST_CASE("attention: with a size of parts, ragged queries") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  // Scores that differ by dozens, so that references move: the next sequence's rows may not move a row's.
  for (const auto& [arch, pack_gqa] : {std::pair("sm_90a", 1), {"sm_90a", 4}, {"sm_100a", 1}, {"sm_100a", 4}}) {
    Fmha problem = problem_of(arch, 64, Mask::causal, UsedLengths::k);
    problem.q_layout = QueryLayout::ragged;
    problem.pack_gqa = pack_gqa;
    check_invariance(problem, {4, 1, {.softmax_scale = 1.0}}, *compiler, kRagged);
    problem.sink = Sink::per_head;
    problem.kv_layout = KvLayout::paged;
    problem.page_size = 64;
    check_invariance(problem, {4, 1, {.softmax_scale = 1.0, .input_seed = 12}}, *compiler, kRagged);
  }
}

TEST_CASE("attention on tcgen05: with a size of parts a sequence has the same bits in any batch") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha problem = problem_of("sm_100a", 64, Mask::causal, UsedLengths::k);
  problem.pack_gqa = 8;
  check_invariance(problem, {8, 1, {.softmax_scale = 1.0}}, *compiler, kFew);
  problem.kv_layout = KvLayout::paged;
  problem.page_size = 16;
  check_invariance(problem, {8, 1, {}}, *compiler, kFew);
}

}  // namespace
}  // namespace tessera::fmha_parts_test
