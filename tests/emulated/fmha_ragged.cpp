// Attention over ragged queries, in the emulator against float64.
#include <doctest/doctest.h>

#include <numeric>
#include <random>

#include "tessera/plan.h"
#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_ragged_test {
namespace {

using emulator::Schedule;
using testing::check_runs;
using testing::find_compiler;

constexpr auto kTwo = {Schedule::lazy, Schedule::adversarial};

Fmha problem_of(int head_dim, Mask mask, UsedLengths seqused, SplitKv split_kv) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.mask = mask;
  problem.seqused = seqused;
  problem.q_layout = QueryLayout::ragged;
  problem.split_kv = split_kv;
  return problem;
}

struct Shape {
  std::int64_t heads_q, heads_kv, seqlen_k;
  std::vector<std::int64_t> queries, keys;
  int num_sms = 3;
  std::int64_t rows_behind = 0;  ///< of q and o, behind the last sequence's
};

void check(const Fmha& problem, const Shape& shape, Compiler& compiler, testing::FmhaLaunchFacts facts = {}) {
  facts.query_lengths = shape.queries;
  facts.seqused_k = shape.keys;
  facts.num_sms = shape.num_sms;
  const std::int64_t queries = std::accumulate(shape.queries.begin(), shape.queries.end(), std::int64_t{0});
  check_runs(problem,
             {static_cast<std::int64_t>(shape.queries.size()), shape.heads_q, shape.heads_kv,
              queries + shape.rows_behind, shape.seqlen_k, problem.head_dim},
             compiler, kTwo, 1, facts);
}

TEST_CASE("attention: ragged queries") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    const Fmha used = problem_of(64, mask, UsedLengths::k, SplitKv::off);
    check(used, {2, 1, 400, {300, 0, 1, 64, 130}, {400, 7, 90, 64, 0}, 3, 5}, *compiler);
    check(used, {1, 1, 130, {0, 0, 0}, {130, 0, 1}, 3, 70}, *compiler);  // nobody has a query
    check(used, {1, 1, 700, {0, 700, 0}, {0, 700, 30}}, *compiler);
    check(problem_of(64, mask, UsedLengths::none, SplitKv::off), {2, 2, 200, {65, 3, 200, 300}, {}}, *compiler);
    std::vector<std::int64_t> many, keys;
    for (std::int64_t b = 0; b < 40; ++b) many.push_back(b * 29 % 70), keys.push_back(b * 17 % 90);
    check(used, {2, 1, 100, many, keys, 4}, *compiler);
    Fmha packed = problem_of(64, mask, UsedLengths::k, SplitKv::off);
    packed.pack_gqa = 4;
    check(packed, {8, 2, 300, {33, 1, 0, 80}, {300, 20, 7, 150}, 3, 9}, *compiler);
  }
}

TEST_CASE("attention: ragged queries that see all keys: CTAs share the tiles of a last round that is not full") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const int tile_m : {128, 192}) {
    Fmha problem = problem_of(64, Mask::none, tile_m == 192 ? UsedLengths::k : UsedLengths::none, SplitKv::off);
    problem.tile_m = tile_m;
    problem.tile_n = 64;
    problem.stages = 2;
    const std::vector<std::int64_t> queries = {300, 0, 1, 400, 130};
    std::vector<std::int64_t> keys = {400, 7, 90, 64, 0};
    if (tile_m != 192) keys.clear();
    // With 192 rows 14 tiles: behind full rounds one by three CTAs, two by two each, or all of them alone.
    for (const int num_sms : {13, 4, 42}) check(problem, {2, 1, 400, queries, keys, num_sms, 5}, *compiler);
    if (!keys.empty()) keys = {300};
    check(problem, {2, 1, 300, {150}, keys, 42, 5}, *compiler);  // two tiles by two CTAs each, no full round before
  }
}

// Blocks of a page and 16 keys begin at every place of a page that they can, and sequences end in either part, at its
// end, and where the second part has no key.
TEST_CASE("attention: ragged queries over pages whose blocks are parts of two pages") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const Mask mask : {Mask::none, Mask::causal})
    for (const int page_size : {64, 32})
      for (const int head_dim : {128, 64}) {
        Fmha problem = problem_of(head_dim, mask, UsedLengths::k, SplitKv::off);
        problem.kv_layout = KvLayout::paged;
        problem.page_size = page_size;
        problem.tile_m = 192;
        problem.tile_n = page_size + 16;
        problem.stages = 2 + turn % 2;
        testing::FmhaLaunchFacts facts;
        facts.pool_layout = static_cast<testing::FmhaLaunchFacts::PoolLayout>(turn % 3);
        facts.has_foreign_pages = turn++ % 2 == 1;
        check(problem, {2, 1, 405, {200, 0, 1, 64, 130, 9}, {399, 16, 81, 160, 64, 0}, 3, 5}, *compiler, facts);
        check(problem, {2, 1, 340, {150, 3, 90, 1, 20}, {333, 144, 128, 79, 191}, 3}, *compiler, facts);
      }
}

TEST_CASE("attention: ragged queries whose keys are dealt") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    Fmha dealt = problem_of(64, mask, UsedLengths::k, SplitKv::dealt);
    dealt.tile_m = 64;
    dealt.tile_n = 64;
    check(dealt, {2, 1, 600, {1, 0, 100, 1, 3, 0}, {600, 80, 333, 0, 64, 9}, 3, 20}, *compiler);
    dealt.pack_gqa = 8;
    check(dealt, {16, 2, 500, {1, 1, 0, 20, 1}, {500, 66, 300, 200, 1}, 4, 3}, *compiler);
    check(dealt, {8, 1, 100, {0, 0}, {100, 3}, 4, 3}, *compiler);
  }
}

TEST_CASE("attention: a step of an engine: ragged queries over keys in pages, and over ragged keys") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const SplitKv split : {SplitKv::off, SplitKv::dealt}) {
    for (const int page_size : {1, 16, 64}) {
      Fmha step = problem_of(64, Mask::causal, UsedLengths::k, split);
      step.kv_layout = KvLayout::paged;
      step.page_size = page_size;
      step.pack_gqa = 4;
      // Prefills of two sequences, one query of each of three others, one sequence that has none.
      check(step, {8, 2, 300, {90, 1, 1, 0, 33, 1}, {90, 300, 65, 64, 257, 1}, 3, 7}, *compiler);
    }
    Fmha packed = problem_of(128, Mask::causal, UsedLengths::none, split);
    packed.kv_layout = KvLayout::ragged;
    check(packed, {2, 1, 200, {90, 1, 0, 130}, {90, 200, 5, 129}, 3, 7}, *compiler);
  }
}

// Which sequences are left whole depends on the lengths and on how many CTAs there are: none, some, all, more than the
// list of them has places.
TEST_CASE("attention: a step: prefills that are left whole beside dealt keys") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha step = problem_of(64, Mask::causal, UsedLengths::k, SplitKv::dealt);
  step.kv_layout = KvLayout::paged;
  step.page_size = 16;
  step.pack_gqa = 4;
  step.tile_n = 64;
  const std::vector<std::int64_t> queries{1, 130, 1, 0, 100, 1, 40, 17}, keys{400, 190, 90, 20, 100, 0, 300, 17};
  for (const int rows : {64, 128}) {
    step.tile_m = rows;
    for (const int num_sms : {1, 2, 5, 40}) check(step, {8, 2, 400, queries, keys, num_sms, 3}, *compiler);
    check(step, {4, 1, 600, {40, 1, 40}, {600, 600, 40}, 2}, *compiler);  // one whole sequence, one too long for that
    check(step, {4, 1, 200, {64, 100}, {64, 200}, 2}, *compiler);         // no single queries
  }
  std::vector<std::int64_t> many, their_keys;
  for (std::int64_t b = 0; b < 70; ++b) many.push_back(b % 9 == 8 ? 1 : 17 + b % 3), their_keys.push_back(20 + b);
  step.tile_m = 64;
  check(step, {4, 1, 100, many, their_keys, 2}, *compiler);
  // More sequences than are counted at once, and than have a count of their own; prefills far apart.
  for (const std::size_t sequences : {700u, 2'300u}) {
    std::vector<std::int64_t> singles(sequences, 1), few(sequences);
    for (std::size_t b = 0; b < sequences; ++b) few[b] = 1 + static_cast<std::int64_t>(b * 7 % 90);
    singles[3] = 40, singles[sequences - 60] = 33, singles[sequences / 2] = 0;
    few[3] = few[sequences - 60] = 80;
    check(step, {4, 1, 100, singles, few, 3}, *compiler);
  }
  step.kv_layout = KvLayout::ragged;
  step.page_size = 0;
  step.seqused = UsedLengths::none;
  step.window = Window::sliding;
  step.output = Output::unnormalized;
  testing::FmhaLaunchFacts facts;
  facts.window_size_left = 70;
  check(step, {8, 2, 400, queries, {400, 190, 90, 20, 100, 1, 300, 17}, 2, 3}, *compiler, facts);
  Fmha wide = problem_of(512, Mask::causal, UsedLengths::k, SplitKv::dealt);  // a pair of CTAs
  wide.tile_m = 64;
  check(wide, {2, 2, 200, {1, 130, 1, 90}, {200, 130, 64, 90}, 4}, *compiler);
}

TEST_CASE("attention on tcgen05: ragged queries") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    Fmha used = problem_of(64, mask, UsedLengths::k, SplitKv::off);
    used.arch = Arch::parse(mask == Mask::none ? "sm_100a" : "sm_103a");
    // Whole tiles, their halves, one row; sequences without queries or keys.
    check(used, {2, 1, 400, {300, 0, 1, 128, 130}, {400, 7, 90, 64, 0}, 3, 5}, *compiler);
    check(used, {1, 1, 130, {0, 0, 0}, {130, 0, 1}, 3, 70}, *compiler);  // nobody has a query
    check(used, {1, 1, 700, {0, 700, 0}, {0, 700, 30}}, *compiler);
    std::vector<std::int64_t> many, keys;
    for (std::int64_t b = 0; b < 40; ++b) many.push_back(b * 29 % 70), keys.push_back(b * 17 % 90);
    check(used, {2, 1, 100, many, keys, 4}, *compiler);
    for (const int pack_gqa : {4, 3, 20}) {
      Fmha packed = used;
      packed.pack_gqa = pack_gqa;
      check(packed, {2 * pack_gqa, 2, 300, {33, 1, 0, 80}, {300, 20, 7, 150}, 3, 9}, *compiler);
      packed.split_kv = SplitKv::on;
      check(packed, {pack_gqa, 1, 300, {33, 1, 0, 8}, {300, 20, 7, 150}, 3, 9}, *compiler, {.num_splits = 3});
    }
  }
  Fmha empty = problem_of(64, Mask::none, UsedLengths::none, SplitKv::off);
  empty.arch = Arch::parse("sm_100a");
  check(empty, {1, 1, 0, {3, 0, 200}, {}}, *compiler);  // nobody has a key
}

TEST_CASE("attention on tcgen05: a step of an engine, and what else goes with ragged queries") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const SplitKv split : {SplitKv::off, SplitKv::on}) {
    for (const int page_size : {1, 16}) {
      Fmha step = problem_of(64, Mask::causal, UsedLengths::k, split);
      step.arch = Arch::parse("sm_100a");
      step.kv_layout = KvLayout::paged;
      step.page_size = page_size;
      step.pack_gqa = 4;
      check(step, {8, 2, 300, {90, 1, 1, 0, 33, 1}, {90, 300, 65, 64, 257, 1}, 3, 7}, *compiler);
    }
    Fmha packed = problem_of(128, Mask::causal, UsedLengths::none, split);
    packed.arch = Arch::parse("sm_100a");
    packed.kv_layout = KvLayout::ragged;
    check(packed, {2, 1, 200, {90, 1, 0, 130}, {90, 200, 5, 129}, 3, 7}, *compiler);
  }
  Fmha other = problem_of(128, Mask::causal, UsedLengths::none, SplitKv::off);
  other.arch = Arch::parse("sm_100a");
  other.output = Output::unnormalized;
  other.window = Window::sliding;
  testing::FmhaLaunchFacts facts;
  facts.window_size_left = 100;
  check(other, {2, 1, 300, {150, 0, 1, 300}, {}, 2, 4}, *compiler, facts);
  other.window = Window::chunked;
  other.output = Output::normalized;
  facts.attention_chunk = 70;
  check(other, {2, 1, 300, {150, 0, 1, 200}, {}, 1, 4}, *compiler, facts);
  Fmha pair = problem_of(512, Mask::causal, UsedLengths::k, SplitKv::off);
  pair.arch = Arch::parse("sm_100a");
  check(pair, {1, 1, 300, {130, 9}, {300, 200}, 6}, *compiler);
  pair.head_dim = 128;
  pair.cta_group = 2;
  pair.v_layout = Layout::k_major;
  pair.seqused = UsedLengths::none;
  check(pair, {1, 1, 296, {600, 9}, {}, 2}, *compiler);
}

TEST_CASE("attention: ragged queries, with what else a launch can ask for") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  Fmha other = problem_of(128, Mask::causal, UsedLengths::none, SplitKv::off);
  other.output = Output::unnormalized;
  other.window = Window::sliding;
  testing::FmhaLaunchFacts facts;
  facts.window_size_left = 100;
  check(other, {2, 1, 300, {150, 0, 1, 200}, {}, 3, 4}, *compiler, facts);
  other.output = Output::normalized;
  other.dtype = DType::f16;
  other.head_dim_v = 128;
  check(other, {2, 1, 300, {150, 0, 1, 200}, {}, 1, 4}, *compiler, facts);
  Fmha wide = problem_of(256, Mask::causal, UsedLengths::k, SplitKv::off);  // one slot for Q
  check(wide, {1, 1, 300, {130, 9}, {300, 200}}, *compiler);
  wide.head_dim = 512;  // a pair of CTAs
  check(wide, {1, 1, 300, {130, 9}, {300, 200}, 6}, *compiler);
}

}  // namespace
}  // namespace tessera::fmha_ragged_test
